// Every status of cuBLASLt and cuDNN, returned by every call once: the result is computed by another algorithm or by
// tandem's own kernels, with one warning per problem, or the operation throws.
#include <cublasLt.h>
#include <cudnn.h>

#include <iostream>

#include <cuda_emulation/control.h>

#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

const Device kGpu("cuda:0");

/// Computes something whose problem no earlier call had, for each `number`, and checks the result.
using Operation = std::function<void(int64_t number)>;

/// What one run of an operation did.
struct Run {
  std::vector<std::string> calls;
  size_t num_warnings;
  bool threw;
};

/// `library` begins the names of its calls; those of other libraries are left out.
Run run(const std::string& library, const Operation& operation, int64_t number) {
  Run result{{}, 0, false};
  ::testing::internal::CaptureStderr();
  try {
    operation(number);
  } catch (const BackendError&) {
    result.threw = true;
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (size_t at = log.find("does not compute"); at != std::string::npos; at = log.find("does not compute", at + 1)) {
    ++result.num_warnings;
  }
  result.calls = cuda_emulation::library_calls();
  std::erase_if(result.calls, [&](const std::string& call) { return call.rfind(library, 0) != 0; });
  cuda_emulation::forget_library_calls();
  return result;
}

/// Fails each call of the operation with each status. `first` creates the library's handle; `last` begins the name of
/// the call that computes.
void inject(const std::string& library, const std::string& first, const std::string& last, const Operation& operation,
            const std::vector<int>& statuses, int status_that_throws) {
  int64_t number = 0;
  size_t num_injected = 0;
  for (const int status : statuses) {
    cuda_emulation::fail_library_call(first, 0, status);
    const Run failed = run(library, operation, ++number);
    EXPECT_EQ(failed.calls.size(), 1u) << failed.calls[0] << " " << status;
    EXPECT_EQ(failed.num_warnings, 1u) << failed.calls[0] << " " << status;
    ++num_injected;
  }
  run(library, operation, ++number);
  const Run complete = run(library, operation, ++number);
  EXPECT_EQ(complete.num_warnings, 0u);
  const auto computes = [&](const std::string& call) { return call.rfind(last, 0) == 0; };
  EXPECT_EQ(std::count_if(complete.calls.begin(), complete.calls.end(), computes), 1);

  for (size_t index = 0; index < complete.calls.size(); ++index) {
    for (const int status : statuses) {
      SCOPED_TRACE(str(complete.calls[index], ", call ", index, ", status ", status));
      const bool frees = complete.calls[index].find("Destroy") != std::string::npos;
      const auto begin = complete.calls.begin(), at = begin + static_cast<std::ptrdiff_t>(index);
      cuda_emulation::fail_library_call(*at, static_cast<size_t>(std::count(begin, at, *at)), status);
      const Run failed = run(library, operation, ++number);
      ++num_injected;
      ASSERT_GT(failed.calls.size(), index);
      EXPECT_EQ(failed.calls[index], complete.calls[index]);
      if (computes(failed.calls[index]) && status == status_that_throws) {
        EXPECT_TRUE(failed.threw);
        continue;
      }
      EXPECT_FALSE(failed.threw);
      bool library_computed = false;
      for (size_t i = 0; i < failed.calls.size(); ++i) library_computed |= i != index && computes(failed.calls[i]);
      EXPECT_EQ(failed.num_warnings, library_computed ? 0u : 1u);
      if (frees) {
        EXPECT_TRUE(library_computed);
      }
      const Run again = run(library, operation, number);
      EXPECT_EQ(again.num_warnings, 0u) << "the failure was not remembered";
      if (!library_computed) {
        EXPECT_TRUE(again.calls.empty()) << again.calls[0];
      }
    }
  }
  std::cout << "injected " << num_injected << " statuses\n";
}

// All calls of a product, including the attributes of bias and batches.
TEST(LibraryStatus, EveryFailureOfCublasLtIsHandled) {
  inject(
      "cublasLt", "cublasLtCreate", "cublasLtMatmul,",
      [](int64_t number) {
        const Tensor a = ones({2, 3, 4}, {kFloat32, kGpu}), b = ones({2, 4, 8 + number}, a.options());
        EXPECT_TRUE(close(baddbmm(ones({2, 3, 8 + number}, a.options()), a, b, 0.5, 2),
                          dense(full({2, 3, 8 + number}, 8.5)), 0));
      },
      {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE,
       CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
       CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_LICENSE_ERROR},
      CUBLAS_STATUS_EXECUTION_FAILED);
}

TEST(LibraryStatus, NextProposalOfCublasLtIsUsed) {
  cuda_emulation::forget_library_calls();
  for (const int i : {0, 1}) {
    cuda_emulation::fail_library_call(str("cublasLtMatmul, algorithm ", i), 0, CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const Operation product = [](int64_t) {
    const Tensor a = ones({5, 7}, {kFloat32, kGpu}), b = ones({7, 3}, a.options());
    EXPECT_EQ(matmul(a, b).to_vector<float>(), std::vector<float>(15, 7));
  };
  const auto first = run("cublasLtMatmul,", product, 0), second = run("cublasLtMatmul,", product, 0);
  EXPECT_EQ(first.calls, (std::vector<std::string>{"cublasLtMatmul, algorithm 0", "cublasLtMatmul, algorithm 1",
                                                   "cublasLtMatmul, algorithm 2"}));
  EXPECT_EQ(first.num_warnings, 0u);
  EXPECT_EQ(second.calls, std::vector<std::string>{"cublasLtMatmul, algorithm 2"});
}

// The product without the epilogue, and then tandem's own kernels, in place of the fused product.
TEST(LibraryStatus, GeluIsComputedIfCublasLtRefusesItsEpilogue) {
  const Tensor values = random_tensor({7, 24}, 1, kBFloat16), weights = random_tensor({16, 24}, 2, kBFloat16);
  const Dense expected = dense(linear_gelu(values.to(kFloat64), weights.to(kFloat64), {}, GeluApproximation::kTanh));
  const Tensor weight = weights.to(kGpu).clone().requires_grad_();
  for (const int64_t refused : {0, 4, 8}) {  // of the calls: those with the epilogue, and then those without
    const int64_t rows = 7 - refused / 4;    // another problem each time
    const Tensor x = values.slice(0, 0, rows).to(kGpu);
    cuda_emulation::forget_library_calls();
    for (int i = 0; i < refused; ++i) {
      cuda_emulation::fail_library_call(str("cublasLtMatmul, algorithm ", i % 4), static_cast<size_t>(i / 4),
                                        CUBLAS_STATUS_NOT_SUPPORTED);
    }
    const Operation product = [&](int64_t) {
      const Tensor y = linear_gelu(x, weight, {}, GeluApproximation::kTanh);
      Dense rows_of_expected = dense_zeros({rows, 16});
      for (int64_t i = 0; i < rows * 16; ++i) rows_of_expected[i] = expected[i];
      EXPECT_TRUE(close(y, rows_of_expected, 4 * epsilon(kBFloat16) * 5));
    };
    EXPECT_EQ(run("cublasLtMatmul", product, 0).num_warnings, static_cast<size_t>(refused / 4)) << refused;
    EXPECT_EQ(run("cublasLtMatmul", product, 0).num_warnings, 0u) << refused;
  }
}

const std::vector<int> kCudnnStatuses = {CUDNN_STATUS_NOT_INITIALIZED,
                                         CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED,
                                         CUDNN_STATUS_BAD_PARAM,
                                         CUDNN_STATUS_NOT_SUPPORTED,
                                         CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
                                         CUDNN_STATUS_INTERNAL_ERROR,
                                         CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED,
                                         CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                                         CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                                         CUDNN_STATUS_EXECUTION_FAILED,
                                         CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER};

TEST(LibraryStatus, EveryFailureOfCudnnIsHandled) {
  inject(
      "cudnn", "cudnnCreate", "cudnnBackendExecute",
      [](int64_t number) {
        const Tensor input = ones({1, 2, 4, number + 4}, {kFloat32, kGpu}),
                     weight = ones({3, 2, 2, 2}, input.options());
        EXPECT_TRUE(close(conv2d(input, weight), dense(full({1, 3, 3, number + 3}, 8)), 0));
      },
      kCudnnStatuses, 0);
}

TEST(LibraryStatus, EveryFailureOfCudnnsAttentionIsHandled) {
  inject(
      "cudnn", "cudnnCreate", "cudnn_frontend execute",
      [](int64_t number) {
        const Tensor qkv = ones({1, number + 2, 24}, {kBFloat16, kGpu});
        EXPECT_EQ(qkv_attention(qkv, 1, {.is_causal = true}).to_vector<float>(),
                  std::vector<float>(static_cast<size_t>(number + 2) * 8, 1));
      },
      kCudnnStatuses, 0);
}

// Each pass by cuDNN or by tandem's kernels: they read and write the same numbers per query.
TEST(LibraryStatus, OnePassOfAttentionMayFail) {
  Dense allowed = random_dense({2, 1, 90, 90}, 3, 0, 2);
  for (int64_t i = 0; i < allowed.numel(); ++i) allowed[i] = allowed[i] >= 1;
  for (int64_t s = 0; s < 90; ++s) allowed[5 * 90 + s] = 0;  // a query without keys
  for (const char* failing : {"", "cudnn_frontend execute, attention", "cudnn_frontend execute, attention backward"}) {
    const int64_t length = 40 + static_cast<int64_t>(std::string(failing).size());  // another problem each time
    const Tensor values = random_tensor({2, length, 48}, 1, kBFloat16),
                 grad = random_tensor({2, length, 16}, 2, kBFloat16);
    for (const bool has_mask : {false, true}) {
      SCOPED_TRACE(str(failing, has_mask));
      const auto gradient = [&](Device device, DType dtype) {
        Generator generator(7);
        AttentionOptions options{.is_causal = !has_mask};
        if (has_mask) {
          options.attn_mask =
              make_tensor(allowed, kBool).slice(-2, 0, length).slice(-1, 0, length).contiguous().to(device);
          options.dropout_p = 0.25;
          options.generator = &generator;
        }
        Tensor qkv = values.to(device).to(dtype).requires_grad_();
        qkv_attention(qkv, 2, options).backward(grad.to(device).to(dtype));
        return qkv.grad();
      };
      const Tensor expected = gradient(Device(), kFloat32);
      cuda_emulation::forget_library_calls();
      if (*failing != '\0') cuda_emulation::fail_library_call(failing, 0, CUDNN_STATUS_EXECUTION_FAILED);
      Tensor actual;
      const auto once = run(
          "cudnn_frontend execute", [&](int64_t) { actual = gradient(kGpu, kBFloat16); }, 0);
      EXPECT_EQ(once.num_warnings, *failing == '\0' ? 0u : 1u);
      EXPECT_EQ(once.calls.size(), 2u);
      EXPECT_TRUE(close(actual, dense(expected), 4 * epsilon(kBFloat16)));
    }
  }
}

TEST(CudnnAttention, ComputesBandsMasksDropoutAndGroupedHeads) {
  const auto passes = [](AttentionOptions options) {
    options.enable_gqa = true;
    const Tensor query = random_tensor({2, 4, 9, 8}, 1, kBFloat16).to(kGpu).requires_grad_();
    const Tensor key = random_tensor({2, 2, 11, 8}, 2, kBFloat16).to(kGpu).requires_grad_();
    cuda_emulation::forget_library_calls();
    scaled_dot_product_attention(query, key, key, options).backward(ones(query.shape(), query.options()));
    const std::vector<std::string> calls = cuda_emulation::library_calls();
    return std::count_if(calls.begin(), calls.end(),
                         [](const std::string& call) { return call.rfind("cudnn_frontend execute", 0) == 0; });
  };
  EXPECT_EQ(passes({}), 2);
  EXPECT_EQ(passes({.is_causal = true}), 2);
  EXPECT_EQ(passes({.is_causal = true, .query_offset = 10}), 2);  // all keys
  EXPECT_EQ(passes({.is_causal = true, .query_offset = 2}), 2);   // from the last key
  EXPECT_EQ(passes({.is_causal = true, .query_offset = 1}), 2);   // by a bias
  EXPECT_EQ(passes({.is_causal = true, .window = {2, 0}}), 2);
  EXPECT_EQ(passes({.is_causal = true, .window = {2, 0}, .query_offset = 2}), 2);
  EXPECT_EQ(passes({.window = {2, 3}}), 2);
  EXPECT_EQ(passes({.attn_mask = zeros({9, 1}, {kFloat32, kGpu})}), 2);
  EXPECT_EQ(passes({.dropout_p = 0.5}), 2);
  EXPECT_EQ(passes({.dropout_p = 0.5, .window = {2, 0}}), 2);
  EXPECT_EQ(passes({.dropout_p = 1}), 0);
}

TEST(LibraryStatus, EveryFailureOfCudnnsRecurrentLayersIsHandled) {
  inject(
      "cudnn", "cudnnCreate", "cudnnRNNForward",
      [](int64_t number) {
        const TensorOptions options{kFloat32, kGpu};
        const auto size = static_cast<float>(number + 1);
        const Tensor x = ones({2, 1, number + 1}, options), weight = ones({2, number + 1}, options);
        const RecurrentResult result =
            rnn_relu(x, zeros({1, 1, 2}, options), {weight, ones({2, 2}, options)}, {.has_biases = false});
        EXPECT_EQ(result.output.to_vector<float>(), (std::vector<float>{size, size, 3 * size, 3 * size}));
      },
      kCudnnStatuses, 0);
}

/// The number of calls of cuDNN that begin with `name`.
int64_t num_calls(const std::vector<std::string>& calls, const std::string& name) {
  return std::count_if(calls.begin(), calls.end(), [&](const std::string& call) { return call.rfind(name, 0) == 0; });
}

/// An LSTM in both directions on packed sequences.
struct PackedLstm {
  Tensor batch_sizes = from_vector<int64_t>({3, 2, 2, 1}, {4});
  int64_t num_layers;
  std::vector<Tensor> tensors;  ///< input, h, c, parameters

  PackedLstm(Device device, DType dtype, int64_t input_size = 5, int64_t layers = 2) : num_layers(layers) {
    constexpr int64_t kHidden = 3;
    const auto add = [&](const Shape& shape) {
      const Tensor values = random_tensor(shape, tensors.size(), kFloat32, -0.5, 0.5);
      tensors.push_back(values.to(device).to(dtype).requires_grad_());
    };
    add({8, input_size});
    for (int i = 0; i < 2; ++i) add({2 * layers, 3, kHidden});
    for (int64_t i = 0; i < 2 * layers; ++i) {
      add({4 * kHidden, i < 2 ? input_size : 2 * kHidden});
      add({4 * kHidden, kHidden});
      for (int bias = 0; bias < 2; ++bias) add({4 * kHidden});
    }
  }
  /// A number that depends on all results.
  Tensor loss() const {
    const auto [output, h_n, c_n] = lstm(tensors[0], {tensors[1], tensors[2]}, {tensors.begin() + 3, tensors.end()},
                                         {.num_layers = num_layers, .bidirectional = true, .batch_sizes = batch_sizes});
    return (output * output).sum() + (h_n * h_n * h_n).sum() + c_n.sum();
  }
  std::vector<Tensor> gradients() const {
    const std::vector<Tensor> losses = {loss()};
    return grad(losses, tensors);
  }
};

void expect_close(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(close(actual[i], dense(expected[i]), tolerance)) << "tensor " << i;
  }
}

// Each call of forward and backward once: backward then composes the gradients of operations.
TEST(LibraryStatus, EveryFailureOfCudnnInTrainingOfRecurrentLayersIsHandled) {
  const auto train = [](int64_t number) {
    const double terms = 4 * static_cast<double>(number + 3);
    expect_close(PackedLstm(kGpu, kFloat32, number, 1).gradients(),
                 PackedLstm(Device(), kFloat64, number, 1).gradients(), 4 * epsilon(kFloat32) * std::sqrt(terms));
  };
  int64_t number = 10;  // other layers than those of the next tests
  run("cudnn", train, number);
  const auto complete = run("cudnn", train, ++number);
  EXPECT_EQ(num_calls(complete.calls, "cudnnRNNForward"), 1);
  EXPECT_EQ(num_calls(complete.calls, "cudnnRNNBackwardData_v8"), 1);
  EXPECT_EQ(num_calls(complete.calls, "cudnnRNNBackwardWeights_v8"), 1);
  for (size_t index = 0; index < complete.calls.size(); ++index) {
    SCOPED_TRACE(str(complete.calls[index], ", call ", index));
    const auto begin = complete.calls.begin(), at = begin + static_cast<std::ptrdiff_t>(index);
    cuda_emulation::fail_library_call(*at, static_cast<size_t>(std::count(begin, at, *at)),
                                      CUDNN_STATUS_EXECUTION_FAILED);
    const bool frees = at->find("Destroy") != std::string::npos;
    EXPECT_EQ(run("cudnn", train, ++number).num_warnings, frees ? 0u : 1u);
    EXPECT_EQ(run("cudnn", train, number).num_warnings, 0u) << "the failure was not remembered";
  }
}

TEST(CudnnRecurrent, ComputesLayersOfAllDtypesButFloat64) {
  const auto forward = [](DType dtype) {
    const auto once = run(
        "cudnnRNNForward", [&](int64_t) { PackedLstm(kGpu, dtype).loss(); }, 0);
    EXPECT_EQ(once.num_warnings, 0u);
    return once.calls.empty() ? "" : once.calls[0];
  };
  EXPECT_EQ(forward(kFloat32), "cudnnRNNForward, fma");
  EXPECT_EQ(forward(kBFloat16), "cudnnRNNForward, tensor cores");
  EXPECT_EQ(forward(kFloat16), "cudnnRNNForward, tensor cores");
  cuda::set_allow_tf32(true);
  EXPECT_EQ(forward(kFloat32), "cudnnRNNForward, tf32");
  cuda::set_allow_tf32(false);
  EXPECT_EQ(forward(kFloat64), "");
}

// The registry's cases cover tandem's own kernels with float64 layers, and with cells of all dtypes.
TEST(CudnnRecurrent, WithoutCudnnLayersOfAllDtypesMatchThoseOfTheCpu) {
  int64_t input_size = 6;
  for (const DType dtype : {kFloat32, kFloat16, kBFloat16}) {
    cuda_emulation::forget_library_calls();
    cuda_emulation::fail_library_call("cudnnSetRNNDescriptor_v8", 0, CUDNN_STATUS_NOT_SUPPORTED);
    const auto once = run(
        "cudnnRNN",
        [&](int64_t) {
          const PackedLstm rounded(Device(), dtype, ++input_size, 1), layer(kGpu, dtype, input_size, 1);
          PackedLstm exact(Device(), kFloat64, input_size, 1);
          for (size_t i = 0; i < exact.tensors.size(); ++i) {
            exact.tensors[i] = rounded.tensors[i].detach().to(kFloat64).requires_grad_();
          }
          expect_close(layer.gradients(), exact.gradients(), 4 * epsilon(dtype) * std::sqrt(4.0 * 10));
        },
        0);
    EXPECT_EQ(once.num_warnings, 1u);
    EXPECT_TRUE(once.calls.empty());
  }
}

TEST(CudnnRecurrent, BackwardCanBeRepeated) {
  const PackedLstm layers(kGpu, kFloat32);
  const std::vector<Tensor> losses = {layers.loss()};
  const auto first = grad(losses, layers.tensors, {}, {.retain_graph = true});
  const auto second = grad(losses, layers.tensors);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same_bits(first[i].cpu(), second[i].cpu())) << i;
}

TEST(CudnnRecurrent, SecondDerivativesMatchThoseOfTheCpu) {
  const auto second = [](Device device) {
    const PackedLstm layers(device, kFloat32);
    const std::vector<Tensor> losses = {layers.loss()};
    Tensor norm;
    for (const Tensor& gradient : grad(losses, layers.tensors, {}, {.create_graph = true})) {
      const Tensor square = (gradient * gradient).sum();
      norm = norm.defined() ? norm + square : square;
    }
    const std::vector<Tensor> norms = {norm};
    return grad(norms, layers.tensors);
  };
  cuda_emulation::forget_library_calls();
  const auto actual = second(kGpu);
  EXPECT_EQ(num_calls(cuda_emulation::library_calls(), "cudnnRNNForward"), 2);
  expect_close(actual, second(Device()), 64 * epsilon(kFloat32));
}

TEST(CudnnRecurrent, CapturedStepEqualsEagerOne) {
  const PackedLstm layers(kGpu, kFloat32);
  const Tensor& input = layers.tensors[0];
  const Tensor other = random_tensor(input.shape(), 77).to(kGpu);
  const auto step = [&] {
    for (const Tensor& tensor : layers.tensors) tensor.zero_grad();
    layers.loss().backward();
  };
  const auto gradients = [&] {
    std::vector<Tensor> all;
    for (const Tensor& tensor : layers.tensors) all.push_back(tensor.grad().cpu());
    return all;
  };
  step();
  cuda::Graph graph(kGpu);
  graph.capture(step);
  const auto set_input = [&](const Tensor& values) {
    const NoGradGuard no_grad;
    input.copy_(values);
  };
  set_input(other);
  for (const Tensor& tensor : layers.tensors) tensor.zero_grad();
  graph.replay();
  const auto replayed = gradients();
  step();
  const auto eager = gradients();
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(replayed[i], eager[i])) << i;
}

// The emulated engines in the order of the heuristic: 0 is not deterministic, 1 uses tensor cores, 2 is a transform.
TEST(CudnnEngine, IsDeterministicAndExact) {
  const auto engine = [](DType dtype) {
    cuda_emulation::forget_library_calls();
    const Tensor input = ones({1, 3, 5, 6}, {dtype, kGpu});
    conv2d(input, ones({2, 3, 2, 2}, input.options()));
    const std::vector<std::string> calls = cuda_emulation::library_calls();
    const auto executed = std::find_if(
        calls.begin(), calls.end(), [](const std::string& call) { return call.rfind("cudnnBackendExecute", 0) == 0; });
    return executed == calls.end() ? "" : *executed;
  };
  EXPECT_EQ(engine(kFloat32), "cudnnBackendExecute, engine 3");
  EXPECT_EQ(engine(kBFloat16), "cudnnBackendExecute, engine 1");
  EXPECT_EQ(engine(kFloat16), "cudnnBackendExecute, engine 1");
  cuda::set_allow_tf32(true);
  EXPECT_EQ(engine(kFloat32), "cudnnBackendExecute, engine 1");
  cuda::set_allow_tf32(false);
  EXPECT_EQ(engine(kFloat64), "");
}

}}  // namespace tandem::testing

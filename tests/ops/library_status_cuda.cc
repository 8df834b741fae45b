// Every status of cuBLASLt and cuDNN, returned by every call once: the result is computed by another algorithm or by
// tandem's own kernels, with one warning per problem, or the operation throws.
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda_emulation/control.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <tandem/base/error.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/matmul.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

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
  for (const char* failing : {"", "cudnn_frontend execute, attention", "cudnn_frontend execute, attention backward"}) {
    SCOPED_TRACE(failing);
    const int64_t length = 40 + static_cast<int64_t>(std::string(failing).size());  // another problem each time
    const Tensor values = random_tensor({2, length, 48}, 1, kBFloat16),
                 grad = random_tensor({2, length, 16}, 2, kBFloat16);
    const auto gradient = [&](Device device, DType dtype) {
      Tensor qkv = values.to(device).to(dtype).set_requires_grad();
      qkv_attention(qkv, 2, {.is_causal = true}).backward(grad.to(device).to(dtype));
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

TEST(CudnnAttention, ComputesGroupedHeadsButNoBandsAndNoDropout) {
  const auto passes = [](AttentionOptions options) {
    options.enable_gqa = true;
    const Tensor query = random_tensor({2, 4, 9, 8}, 1, kBFloat16).to(kGpu).set_requires_grad();
    const Tensor key = random_tensor({2, 2, 9, 8}, 2, kBFloat16).to(kGpu).set_requires_grad();
    cuda_emulation::forget_library_calls();
    scaled_dot_product_attention(query, key, key, options).backward(ones(query.shape(), query.options()));
    const std::vector<std::string> calls = cuda_emulation::library_calls();
    return std::count_if(calls.begin(), calls.end(),
                         [](const std::string& call) { return call.rfind("cudnn_frontend execute", 0) == 0; });
  };
  EXPECT_EQ(passes({}), 2);
  EXPECT_EQ(passes({.is_causal = true}), 2);
  EXPECT_EQ(passes({.is_causal = true, .query_offset = 8}), 2);  // all keys
  EXPECT_EQ(passes({.is_causal = true, .query_offset = 3}), 0);
  EXPECT_EQ(passes({.window = {2, 0}}), 0);
  EXPECT_EQ(passes({.dropout_p = 0.5}), 0);
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

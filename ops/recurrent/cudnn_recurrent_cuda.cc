// Recurrent layers by cuDNN.
#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/ops/common/cudnn_graph_cuda.h>
#include <tandem/ops/common/library_fallback.h>
#include <tandem/ops/recurrent/recurrent_kernels.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Owns a descriptor.
template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
class Descriptor {
 public:
  Descriptor() { check_cudnn(create(&descriptor_), "creation of a descriptor"); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { destroy(descriptor_); }
  operator T() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};
using TensorDescriptor = Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using DataDescriptor =
    Descriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor>;

cudnnForwardMode_t mode_of(const RecurrentProblem& p) {
  return p.is_training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
}
cudnnDataType_t type_of(DType dtype) {
  return dtype == kFloat16 ? CUDNN_DATA_HALF : dtype == kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

constexpr cudnnRNNMode_t kModes[] = {CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH, CUDNN_RNN_RELU};  // of RecurrentKind
constexpr const char* kNames[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

std::string text_of(const RecurrentProblem& p) {
  return str(kNames[static_cast<int>(p.kind)], " ", p.dtype, ", input size ", p.input_size, ", hidden size ", p.hidden,
             ", directions ", p.directions, p.has_biases ? ", biases" : "");
}

/// The descriptors of problems that differ only in is_training and batch_sizes.
///
/// cuDNN's gates have PyTorch's order, and its formula of a GRU is PyTorch's. The algorithm is the standard one: the
/// persistent ones do not compute sequences of unequal lengths.
struct Plan {
  Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor> dropout;
  Descriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor> rnn;
  DataDescriptor input, output;
  TensorDescriptor state;
  size_t weight_bytes = 0;
  std::vector<int64_t> offsets;  ///< as in RecurrentMemory

  Plan(cudnnHandle_t handle, const RecurrentProblem& p) {
    const cudnnMathType_t math = p.dtype != kFloat32 ? CUDNN_TENSOR_OP_MATH
                                 : p.tf32            ? CUDNN_DEFAULT_MATH
                                                     : CUDNN_FMA_MATH;
    const auto hidden = static_cast<int32_t>(p.hidden);
    TANDEM_CUDNN_CHECK(cudnnSetDropoutDescriptor(dropout, handle, 0, nullptr, 0, 0));
    TANDEM_CUDNN_CHECK(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, kModes[static_cast<int>(p.kind)],
                                                p.has_biases ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS,
                                                p.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                                                CUDNN_LINEAR_INPUT, type_of(p.dtype), CUDNN_DATA_FLOAT, math,
                                                static_cast<int32_t>(p.input_size), hidden, hidden, 1, dropout,
                                                CUDNN_RNN_PADDED_IO_DISABLED));
    TANDEM_CUDNN_CHECK(cudnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    find_parameters(handle, p);
  }

  /// Sets the descriptors of the sequences and states. All sequences are packed: rows of a step are consecutive.
  void set_sizes(const RecurrentProblem& p) {
    std::vector<int> lengths(static_cast<size_t>(p.batch_sizes.front()));
    for (const int64_t count : p.batch_sizes) {
      for (int64_t i = 0; i < count; ++i) ++lengths[static_cast<size_t>(i)];
    }
    const auto batch = static_cast<int>(lengths.size()), hidden = static_cast<int>(p.hidden);
    const auto set = [&](cudnnRNNDataDescriptor_t data, int64_t width) {
      TANDEM_CUDNN_CHECK(cudnnSetRNNDataDescriptor(data, type_of(p.dtype), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                                   static_cast<int>(p.batch_sizes.size()), batch,
                                                   static_cast<int>(width), lengths.data(), nullptr));
    };
    set(input, p.input_size);
    set(output, p.directions * p.hidden);
    const int sizes[] = {static_cast<int>(p.directions), batch, hidden}, strides[] = {batch * hidden, hidden, 1};
    TANDEM_CUDNN_CHECK(cudnnSetTensorNdDescriptor(state, type_of(p.dtype), 3, sizes, strides));
  }

 private:
  void find_parameters(cudnnHandle_t handle, const RecurrentProblem& p) {
    const TensorDescriptor matrix, vector;
    const auto base = uintptr_t{1} << 32;  // of no memory: cuDNN only computes addresses
    const auto offset = [&](int64_t direction, int64_t gate, bool is_bias) {
      void *weight = nullptr, *bias = nullptr;
      TANDEM_CUDNN_CHECK(cudnnGetRNNWeightParams(handle, rnn, static_cast<int32_t>(direction), weight_bytes,
                                                 reinterpret_cast<void*>(base), static_cast<int32_t>(gate), matrix,
                                                 &weight, vector, &bias));
      return static_cast<int64_t>(reinterpret_cast<uintptr_t>(is_bias ? bias : weight) - base) / size_of(p.dtype);
    };
    const int64_t gates = num_gates(p.kind);
    for (int64_t direction = 0; direction < p.directions; ++direction) {
      for (const int64_t columns : {p.input_size, p.hidden, int64_t{1}, int64_t{1}}) {
        const size_t part = offsets.size() % 4;
        const bool is_bias = part >= 2;
        if (is_bias && !p.has_biases) {
          offsets.push_back(0);
          continue;
        }
        const int64_t first = part % 2 == 0 ? 0 : gates, begin = offset(direction, first, is_bias);
        if (offset(direction, first + gates - 1, is_bias) != begin + (gates - 1) * p.hidden * columns) {
          throw CudnnFailure{"the parameters of its gates are not adjacent"};
        }
        offsets.push_back(begin);
      }
    }
  }
};

using Key = std::tuple<RecurrentKind, DType, bool, bool, int64_t, int64_t, int64_t>;
using Handle = CudnnHandle<std::map<Key, std::unique_ptr<Plan>>>;  // null where tandem's own kernels compute

/// Whether cuDNN may compute the layer. It has 32-bit sizes, and at most 2^16 - 1 steps.
bool is_possible(const RecurrentProblem& p) {
  if (p.dtype == kFloat64 || p.batch_sizes.size() >= 1 << 16) return false;
  int64_t rows = 0;
  for (const int64_t count : p.batch_sizes) rows += count;
  const int64_t width = std::max(p.input_size, p.directions * num_gates(p.kind) * p.hidden);
  return rows > 0 && p.input_size > 0 && p.hidden > 0 && rows * width <= std::numeric_limits<int32_t>::max();
}

/// Calls f(handle, plan) with the plan, set to the problem's sizes. Returns false if there is no plan or a call failed.
template <class F>
bool run(const KernelContext& context, const RecurrentProblem& p, const F& f) {
  const DeviceGuard guard(context.device);
  Handle& own = Handle::of(context.device);
  std::lock_guard lock(own.mutex);
  const auto [found, is_new] =
      own.plans.try_emplace({p.kind, p.dtype, p.tf32, p.has_biases, p.directions, p.input_size, p.hidden});
  std::unique_ptr<Plan>& plan = found->second;
  if (!is_new && plan == nullptr) return false;
  try {
    if (own.handle == nullptr) TANDEM_CUDNN_CHECK(cudnnCreate(&own.handle));
    if (plan == nullptr) plan = std::make_unique<Plan>(own.handle, p);
    if (is_new) log(LogLevel::kDebug, "cuDNN computes ", text_of(p));
    plan->set_sizes(p);
    TANDEM_CUDNN_CHECK(cudnnSetStream(own.handle, static_cast<cudaStream_t>(context.stream)));
    f(own.handle, *plan);
    return true;
  } catch (const CudnnFailure& failure) {
    warn_fallback("cuDNN", text_of(p), failure.reason);
    plan.reset();
    return false;
  }
}

}  // namespace

RecurrentMemory recurrent_memory(const KernelContext& context, const RecurrentProblem& problem) {
  RecurrentMemory memory;
  if (!is_possible(problem)) return memory;
  run(context, problem, [&](cudnnHandle_t handle, const Plan& plan) {
    size_t workspace = 0, reserve = 0;
    TANDEM_CUDNN_CHECK(cudnnGetRNNTempSpaceSizes(handle, plan.rnn, mode_of(problem), plan.input, &workspace,
                                                 problem.is_training ? &reserve : nullptr));
    memory = {static_cast<int64_t>(plan.weight_bytes), static_cast<int64_t>(workspace), static_cast<int64_t>(reserve),
              plan.offsets};
  });
  return memory;
}

bool recurrent_pass(const KernelContext& context, const RecurrentProblem& problem, const RecurrentMemory& memory,
                    const RecurrentPass& pass) {
  return run(context, problem, [&](cudnnHandle_t handle, const Plan& plan) {
    const auto& [in, out, grad_in, grad_out, weights, weights_grad, workspace, reserve] = pass;
    const auto weight_bytes = static_cast<size_t>(memory.weights),
               workspace_bytes = static_cast<size_t>(memory.workspace),
               reserve_bytes = static_cast<size_t>(memory.reserve);
    const cudnnTensorDescriptor_t h = plan.state, c = problem.kind == RecurrentKind::kLstm ? h : nullptr;
    if (grad_out.rows == nullptr) {
      TANDEM_CUDNN_CHECK(cudnnRNNForward(handle, plan.rnn, mode_of(problem), nullptr, plan.input, in.rows, plan.output,
                                         out.rows, h, in.h, out.h, c, in.c, out.c, weight_bytes, weights,
                                         workspace_bytes, workspace, reserve_bytes, reserve));
      return;
    }
    TANDEM_CUDNN_CHECK(cudnnRNNBackwardData_v8(handle, plan.rnn, nullptr, plan.output, out.rows, grad_out.rows,
                                               plan.input, grad_in.rows, h, in.h, grad_out.h, grad_in.h, c, in.c,
                                               grad_out.c, grad_in.c, weight_bytes, weights, workspace_bytes, workspace,
                                               reserve_bytes, reserve));
    if (weights_grad == nullptr) return;
    TANDEM_CUDNN_CHECK(cudnnRNNBackwardWeights_v8(handle, plan.rnn, CUDNN_WGRAD_MODE_ADD, nullptr, plan.input, in.rows,
                                                  h, in.h, plan.output, out.rows, weight_bytes, weights_grad,
                                                  workspace_bytes, workspace, reserve_bytes, reserve));
  });
}

}}}  // namespace tandem::v0::cuda

// Helpers of operator functions: broadcasting, dtypes, memory orders. Private to ops/.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/check.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The shape to which the operands broadcast (NumPy's rule). Throws ShapeError listing the operands.
Shape broadcast_shape(const char* op, OperandSpan operands);
inline Shape broadcast_shape(const char* op, Operands operands) {
  return broadcast_shape(op, OperandSpan(operands.begin(), operands.size()));
}
/// Strides of `tensor` broadcast to `shape`: 0 along broadcast dimensions.
Shape broadcast_strides(const Tensor& tensor, const Shape& shape);

/// The dtype of an operation on two tensors, as in PyTorch: promoted, but a 0-dim tensor counts only if it is of a
/// higher kind (bool < integer < floating) than the other.
DType result_dtype(const Tensor& a, const Tensor& b);
/// The dtype of an operation on a tensor and a 0-dim tensor or a number: the tensor's, unless `number` is of a higher
/// kind.
DType result_dtype(DType tensor, DType number);

/// `tensor` itself if it is row-major or undefined, else an unrecorded row-major copy.
Tensor row_major(const Tensor& tensor);
/// `tensor` itself if it has the dtype or is undefined, else an unrecorded copy in the same memory order.
Tensor converted(const Tensor& tensor, DType dtype);

using v0::empty_preserving_layout;

inline bool is_half(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }
/// The dtype in which a kernel computes that has no half types on CPUs.
inline DType kernel_dtype(const KernelContext& context, DType dtype) {
  return context.device.is_cpu() && is_half(dtype) ? kFloat32 : dtype;
}

/// Uninitialized memory for a kernel; undefined for 0 bytes.
Tensor scratch_memory(int64_t num_bytes, Device device);
/// The address of the elements; null for an undefined tensor.
void* data_or_null(const Tensor& tensor);

/// Whether the memory order of a 4-d tensor is N, H, W, C without gaps. Also true for a row-major tensor with C = 1 or
/// H = W = 1.
bool is_channels_last(const Tensor& tensor);
/// `tensor` [N, C, H, W] itself if it is channels-last, else an unrecorded channels-last copy.
Tensor channels_last(const Tensor& tensor);
/// An uninitialized channels-last tensor. `shape` is [N, C, H, W].
Tensor empty_channels_last(const Shape& shape, TensorOptions options);

/// The node of record_gradient.
template <class F, class Indices>
struct GradientNode;
template <class F, size_t... i>
struct GradientNode<F, std::index_sequence<i...>> : autograd::Node {
  std::array<autograd::SavedTensor, sizeof...(i)> saved;
  F gradient;

  GradientNode(const Operand* to_save, const F& f) : saved{{{*this, to_save[i].name}...}}, gradient(f) {}
  TensorList backward(autograd::BackwardContext& context) override {
    if constexpr (std::is_invocable_v<F&, autograd::BackwardContext&, decltype(saved[i])...>) {
      return {gradient(context, saved[i]...)};
    } else {
      const std::array<Tensor, sizeof...(i)> tensors{saved[i].get()...};
      return {gradient(context.grad(), tensors[i]...)};
    }
  }
};

template <class F, size_t... i>
void record_gradient(const char* op, const Tensor& out, std::initializer_list<const Tensor*> inputs,
                     const Operand* to_save, std::index_sequence<i...>, const F& gradient) {
  if (trace_enabled()) [[unlikely]]
    autograd::trace_output(out);
  const auto is_recorded = [](const Tensor* input) { return autograd::should_record(*input); };
  if (std::none_of(inputs.begin(), inputs.end(), is_recorded)) return;
  const auto node = make_ref<GradientNode<F, std::index_sequence<i...>>>(to_save, gradient);
  autograd::set_history(node, op, out, inputs.begin(), inputs.size());
  (node->saved[i].save(to_save[i].tensor), ...);
}

/// autograd::record for an operation whose backward is a function. Saves the tensors `to_save` (may be undefined). For
/// one input, gradient(grad, saved tensors...) returns its gradient:
///
///     record_gradient("exp", y, {&x}, {{"output", y}}, [](const Tensor& grad, const Tensor& y) { return grad * y; });
///
/// In general, gradient(context, saved...), with arguments of type const SavedTensor&, returns a Tensor or TensorList.
template <size_t n, class F>
void record_gradient(const char* op, const Tensor& out, std::initializer_list<const Tensor*> inputs,
                     const Operand (&to_save)[n], const F& gradient) {
  record_gradient(op, out, inputs, to_save, std::make_index_sequence<n>(), gradient);
}
template <class F>
void record_gradient(const char* op, const Tensor& out, std::initializer_list<const Tensor*> inputs,
                     const F& gradient) {
  record_gradient(op, out, inputs, nullptr, std::index_sequence<>(), gradient);
}

/// record_gradient for a list of inputs, without saved tensors; gradients(context) returns a TensorList.
template <class F>
void record_gradients(const char* op, const Tensor& out, std::span<const Tensor> inputs, const F& gradients) {
  struct ListNode : autograd::Node {
    std::optional<F> function;
    TensorList backward(autograd::BackwardContext& context) override { return (*function)(context); }
  };
  if (auto* node = autograd::record_list<ListNode>(op, out, inputs)) node->function.emplace(gradients);
}

/// Clears the gradients that are not needed, of a node that computes all.
inline void clear_unneeded(const autograd::BackwardContext& context, TensorList& grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!context.needs(static_cast<int>(i))) grads[i] = {};
  }
}

/// Records an in-place operation that overwrites all elements of `self`: the gradient of its old value is zero.
inline void record_overwrite(const char* op, const Tensor& self) {
  record_gradient(op, self, {&self}, [](const Tensor&) { return Tensor(); });
}

/// Sums `grad` over the dimensions along which `shape` was broadcast (recorded); `grad` itself if there are none.
/// Defined in ops/reduce/reduce.cc.
Tensor sum_to_shape(const Tensor& grad, const Shape& shape);

}}}  // namespace tandem::v0::ops

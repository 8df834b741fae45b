// Helpers of operator functions: broadcasting, dtypes, memory orders. Private to ops/.
#pragma once

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

/// Sums `grad` over the dimensions along which `shape` was broadcast (recorded); `grad` itself if there are none.
/// Defined in ops/reduce/reduce.cc.
Tensor sum_to_shape(const Tensor& grad, const Shape& shape);

}}}  // namespace tandem::v0::ops

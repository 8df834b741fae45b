// What the fronts of operations share: argument checks, broadcasting, error texts.  Private to ops/.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/base/parallel_for.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// An argument with the name that the public function gives it.
struct Operand {
  const char* name;
  const Tensor& tensor;
};
using Operands = std::initializer_list<Operand>;
/// The same where which there are is known at run time only: operations with optional arguments list those that are defined.
using OperandSpan = std::span<const Operand>;

/// "<op>: <problem>\n  input  cpu  float32 [128]\n  mat1  ...\n  <hint>", the columns aligned; operands that are
/// `marked`, one by one, get " <- differs".  `hint` may be empty.
std::string operand_error(const char* op, const std::string& problem, OperandSpan operands,
                          const std::vector<bool>& marked = {}, const std::string& hint = "");
inline std::string operand_error(const char* op, const std::string& problem, Operands operands,
                                 const std::vector<bool>& marked = {}, const std::string& hint = "") {
  return operand_error(op, problem, OperandSpan(operands.begin(), operands.size()), marked, hint);
}

/// Throws StateError if one is undefined, DeviceError unless all are on one device: the message lists every operand,
/// marks those that differ from the majority (the first operand's device on a tie), and says how to move them.  Returns
/// the context for kernels on that device; throws DeviceError if no kernel exists for it in this build.  A front keeps it
/// to its end: it is also the operation's span in the trace.
[[nodiscard]] KernelContext check_same_device(const char* op, OperandSpan operands);
[[nodiscard]] inline KernelContext check_same_device(const char* op, Operands operands) {
  return check_same_device(op, OperandSpan(operands.begin(), operands.size()));
}

/// The same for at least one tensor, "tensors[0]", "tensors[1]" ...
[[nodiscard]] KernelContext check_same_device_list(const char* op, const std::vector<Tensor>& tensors);

/// Throws DTypeError listing the operands unless all have one dtype.
void check_same_dtype(const char* op, OperandSpan operands);
inline void check_same_dtype(const char* op, Operands operands) {
  check_same_dtype(op, OperandSpan(operands.begin(), operands.size()));
}
/// Throws DTypeError unless the operand is floating.
void check_floating(const char* op, Operand operand);

/// The shape that the operands broadcast to (NumPy's rule).  Throws ShapeError listing them.
Shape broadcast_shape(const char* op, Operands operands);
/// Strides of `tensor` seen in `shape`, 0 along broadcast dimensions.
Shape broadcast_strides(const Tensor& tensor, const Shape& shape);

/// dtype of an operation on two tensors, as in PyTorch: promoted, but a 0-dim tensor counts only where it is of a
/// higher kind (bool < integer < floating) than the other.
DType result_dtype(const Tensor& a, const Tensor& b);
/// dtype of an operation on a tensor and something of no dimension: the tensor's, unless `number` is of a higher kind.
DType result_dtype(DType tensor, DType number);

/// `tensor` itself where it is row-major, else an unrecorded row-major copy: what kernels read.
Tensor row_major(const Tensor& tensor);

using v0::empty_preserving_layout;

/// Whether a 4-d tensor's memory is N, H, W, C without gaps, as convolutions write it (so too where C = 1 or H = W = 1 and the
/// tensor is row-major).
bool is_channels_last(const Tensor& tensor);
/// `tensor` [N, C, H, W] itself where it is channels-last, else an unrecorded channels-last copy.
Tensor channels_last(const Tensor& tensor);
/// Uninitialised and channels-last.  `shape` is [N, C, H, W].
Tensor empty_channels_last(const Shape& shape, TensorOptions options);

/// Sums `grad` over the dimensions along which `shape` was broadcast, recorded; returns `grad` itself where none were.
/// Defined in ops/reduce/reduce.cc.
Tensor sum_to_shape(const Tensor& grad, const Shape& shape);

}}}  // namespace tandem::v0::ops

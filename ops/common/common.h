// Helpers of operator functions: argument checks, broadcasting, error texts. Private to ops/.
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

/// An argument with its name in the public function.
struct Operand {
  const char* name;
  const Tensor& tensor;
};
using Operands = std::initializer_list<Operand>;
/// A list of operands of a length known only at run time: operations with optional arguments list the defined ones.
using OperandSpan = std::span<const Operand>;

/// "<op>: <problem>\n  input  cpu  float32 [128]\n  mat1  ...\n  <hint>" with aligned columns; operands whose entry in
/// `marked` is true get " <- differs". `hint` may be empty.
std::string operand_error(const char* op, const std::string& problem, OperandSpan operands,
                          const std::vector<bool>& marked = {}, const std::string& hint = "");
inline std::string operand_error(const char* op, const std::string& problem, Operands operands,
                                 const std::vector<bool>& marked = {}, const std::string& hint = "") {
  return operand_error(op, problem, OperandSpan(operands.begin(), operands.size()), marked, hint);
}

/// Throws StateError if an operand is undefined, DeviceError unless all are on one device: the message lists every
/// operand, marks those that differ from the majority (the first operand's device on a tie), and says how to move them.
/// Returns the context for kernels on that device; throws DeviceError if this build has no kernels for it. Operator
/// functions must keep the context until they return, because it is also the operation's trace span.
[[nodiscard]] KernelContext check_same_device(const char* op, OperandSpan operands);
[[nodiscard]] inline KernelContext check_same_device(const char* op, Operands operands) {
  return check_same_device(op, OperandSpan(operands.begin(), operands.size()));
}

/// check_same_device for a list of at least one tensor, named "tensors[0]", "tensors[1]", ....
[[nodiscard]] KernelContext check_same_device_list(const char* op, const std::vector<Tensor>& tensors);

/// Throws DTypeError listing the operands unless all have one dtype.
void check_same_dtype(const char* op, OperandSpan operands);
inline void check_same_dtype(const char* op, Operands operands) {
  check_same_dtype(op, OperandSpan(operands.begin(), operands.size()));
}
/// Throws DTypeError unless the operand is floating.
void check_floating(const char* op, Operand operand);

/// The shape to which the operands broadcast (NumPy's rule). Throws ShapeError listing the operands.
Shape broadcast_shape(const char* op, Operands operands);
/// Strides of `tensor` broadcast to `shape`: 0 along broadcast dimensions.
Shape broadcast_strides(const Tensor& tensor, const Shape& shape);

/// The dtype of an operation on two tensors, as in PyTorch: promoted, but a 0-dim tensor counts only if it is of a
/// higher kind (bool < integer < floating) than the other.
DType result_dtype(const Tensor& a, const Tensor& b);
/// The dtype of an operation on a tensor and a 0-dim tensor or a number: the tensor's, unless `number` is of a higher
/// kind.
DType result_dtype(DType tensor, DType number);

/// `tensor` itself if it is row-major, else an unrecorded row-major copy.
Tensor row_major(const Tensor& tensor);

using v0::empty_preserving_layout;

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

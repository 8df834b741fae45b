// Argument checks for operations of the library and of programs.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// An argument with its name in the public function.
struct Operand {
  const char* name;      ///< of the argument
  const Tensor& tensor;  ///< its value
};
/// The arguments of an operation.
using Operands = std::initializer_list<Operand>;
/// A list of operands of a length known only at run time: operations with optional arguments list the defined ones.
using OperandSpan = std::span<const Operand>;

/// "<op>: <problem>\n  input  cpu  float32 [128]\n  mat1  ...\n  <hint>" with aligned columns; operands whose entry in
/// `marked` is true get " <- differs". `hint` may be empty.
TANDEM_API std::string operand_error(const char* op, const std::string& problem, OperandSpan operands,
                                     const std::vector<bool>& marked = {}, const std::string& hint = "");
inline std::string operand_error(const char* op, const std::string& problem, Operands operands,
                                 const std::vector<bool>& marked = {}, const std::string& hint = "") {
  return operand_error(op, problem, OperandSpan(operands.begin(), operands.size()), marked, hint);
}

/// Throws StateError if an operand is undefined, DeviceError unless all are on one device: the message lists every
/// operand, marks each one on another device than the majority (on a tie: than the first operand), and shows the call
/// that moves it. Returns the context for kernels on that device; throws DeviceError if this build has no kernels for
/// it. Operator functions must keep the context until they return, because it is also the operation's trace span.
[[nodiscard]] TANDEM_API KernelContext check_same_device(const char* op, OperandSpan operands);
[[nodiscard]] inline KernelContext check_same_device(const char* op, Operands operands) {
  return check_same_device(op, OperandSpan(operands.begin(), operands.size()));
}

/// check_same_device for a list of at least one tensor, named "tensors[0]", "tensors[1]", ....
[[nodiscard]] TANDEM_API KernelContext check_same_device_list(const char* op, const std::vector<Tensor>& tensors);

/// Throws DTypeError listing the operands unless all have one dtype.
TANDEM_API void check_same_dtype(const char* op, OperandSpan operands);
inline void check_same_dtype(const char* op, Operands operands) {
  check_same_dtype(op, OperandSpan(operands.begin(), operands.size()));
}
/// Throws DTypeError unless the operand is floating.
TANDEM_API void check_floating(const char* op, Operand operand);

}}}  // namespace tandem::v0::ops

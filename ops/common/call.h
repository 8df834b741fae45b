// Call: the arguments and the context of one call of an operator function. Private to ops/.
#pragma once

#include <initializer_list>
#include <span>

#include <tandem/base/small_vector.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/check.h>

namespace tandem { inline namespace v0 { namespace ops {

/// cast_for under autocast.
void autocast(CastPolicy policy, std::span<Tensor* const> tensors);

/// Throws an E whose text lists the operands.
template <class E, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const char* op, OperandSpan operands, const Parts&... problem) {
  throw E(with_module_scope(operand_error(op, str(problem...), operands)));
}

/// Throws an E unless `holds`, for an operation of one tensor. `problem` is evaluated in any case.
template <class E = ShapeError, class... Parts>
void check_input(const char* op, const Tensor& input, bool holds, const Parts&... problem) {
  const Operand operand = {"input", input};
  if (!holds) [[unlikely]]
    fail<E>(op, {&operand, 1}, problem...);
}

inline constexpr bool kOptional = true;

/// A tensor argument with its name.
struct Argument {
  const char* name;
  const Tensor* tensor;
  Tensor* variable = nullptr;  ///< `tensor`, if the call may replace it
  bool optional = false;       ///< may be undefined; it is then not an operand

  Argument(const char* name_, const Tensor& tensor_, bool optional_ = false)
      : name(name_), tensor(&tensor_), optional(optional_) {}
  Argument(const char* name_, Tensor* variable_, bool optional_ = false)
      : name(name_), tensor(variable_), variable(variable_), optional(optional_) {}
};
using Arguments = std::initializer_list<Argument>;

/// The operands of a call; the tensors must outlive it.
struct CallOperands {
  const char* op;  ///< the operation's public name
  SmallVector<Operand, 4> operands;

  CallOperands(const char* name, Arguments arguments);
  explicit CallOperands(const char* name) : op(name) {}

  /// Throws an E whose text lists the operands unless `holds`. `problem` is evaluated in any case.
  template <class E = ShapeError, class... Parts>
  void require(bool holds, const Parts&... problem) const {
    if (!holds) [[unlikely]]
      fail<E>(op, operands, problem...);
  }
};

/// The dtypes that a call accepts.
enum class DTypes {
  kAny,
  kFloating,      ///< the first operand is floating
  kSame,          ///< all operands have one dtype
  kSameFloating,  ///< all operands have one dtype, which is floating
};

/// One call of an operator function, which keeps it until it returns: the context of its kernels and its trace span.
/// The constructors throw as check_same_device, check_same_dtype and check_floating do.
struct Call : CallOperands, KernelContext {
  Call(const char* name, Arguments arguments, DTypes dtypes = DTypes::kAny);
  /// Under autocast, first replaces the variables among the arguments by their casts.
  Call(const char* name, CastPolicy policy, Arguments arguments, DTypes dtypes = DTypes::kAny);
  /// For operands that are known only at run time.
  explicit Call(CallOperands all, DTypes dtypes = DTypes::kAny);
};

}}}  // namespace tandem::v0::ops

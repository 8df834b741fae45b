#include <utility>

#include <tandem/ops/activation.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/elementwise/elementwise_op.h>
#include <tandem/ops/elementwise/pair_functions.h>

namespace tandem { inline namespace v0 {

using namespace functions;

template <bool is_maximum>
Tensor Extremum<is_maximum>::gradient(const Tensor& grad, const Tensor& a, const Tensor& b) {
  if (!is_grad_enabled()) return ops::ternary_kernel(ExtremumBackward{}, grad, a, b);
  return where(lt(a, b), 0, where(eq(a, b), mul(grad, 0.5), grad));
}

Tensor maximum(Tensor input, Tensor other) { return ops::binary(Maximum{}, std::move(input), std::move(other)); }
Tensor minimum(Tensor input, Tensor other) { return ops::binary(Minimum{}, std::move(input), std::move(other)); }

Tensor clamp(Tensor input, Tensor min, Tensor max) {
  const ops::Call call("clamp", CastPolicy::kWidest,
                       {{"input", &input}, {"min", &min, max.defined()}, {"max", &max, ops::kOptional}});
  for (const ops::Operand& operand : call.operands) ops::check_not_bool("clamp", operand.name, operand.tensor);
  if (min.defined()) input = where(bitwise_or(lt(input, min), ne(min, min)), min, input);
  if (max.defined()) input = where(bitwise_or(gt(input, max), ne(max, max)), max, input);
  return input;
}

namespace {

struct FloorDivide : FloorDiv {
  static constexpr const char* kName = "floor_divide";
  static constexpr const char* kArguments[] = {"input", "other"};
};

template <class B>
Tensor rounded_div(Tensor a, B b, RoundingMode mode) {
  if (mode == RoundingMode::kTrunc) return ops::binary(TruncDiv{}, std::move(a), std::move(b));
  return ops::binary(FloorDiv{}, std::move(a), std::move(b));
}

}  // namespace

Tensor div(Tensor a, Tensor b, RoundingMode rounding_mode) {
  return rounded_div(std::move(a), std::move(b), rounding_mode);
}
Tensor div(Tensor a, Scalar b, RoundingMode rounding_mode) { return rounded_div(std::move(a), b, rounding_mode); }

/// Defines the forms of a function with a tensor and with a number.
#define TANDEM_DEFINE_PAIR(name, Op)                                                                        \
  Tensor name(Tensor input, Tensor other) { return ops::binary(Op{}, std::move(input), std::move(other)); } \
  Tensor name(Tensor input, Scalar other) { return ops::binary(Op{}, std::move(input), other); }
TANDEM_DEFINE_PAIR(floor_divide, FloorDivide)
TANDEM_DEFINE_PAIR(fmod, Fmod)
TANDEM_DEFINE_PAIR(remainder, Remainder)
TANDEM_DEFINE_PAIR(bitwise_and, BitwiseAnd)
TANDEM_DEFINE_PAIR(bitwise_or, BitwiseOr)
TANDEM_DEFINE_PAIR(bitwise_xor, BitwiseXor)

Tensor bitwise_not(const Tensor& input) {
  const ops::Call call("bitwise_not", {{"input", input}});
  BitwiseXor{}.check("bitwise_not", input);
  return input.dtype() == kBool ? eq(input, false) : bitwise_xor(input, -1);
}

Tensor Logaddexp::backward_a(const Tensor& grad, const Tensor& a, const Tensor& b) {
  return mul(grad, sigmoid(sub(a, b)));
}

Tensor Xlogy::backward_a(const Tensor& grad, const Tensor& a, const Tensor& b) {
  return where(bitwise_and(eq(a, 0), le(b, 0)), 0, xlogy(grad, b));
}

Tensor Atan2::backward_a(const Tensor& grad, const Tensor& a, const Tensor& b) {
  const Tensor square = add(mul(a, a), mul(b, b));
  return mul(grad, div(b, where(eq(square, 0), 1, square)));
}

Tensor logaddexp(Tensor input, Tensor other) { return ops::binary(Logaddexp{}, std::move(input), std::move(other)); }
Tensor xlogy(Tensor input, Tensor other) { return ops::binary(Xlogy{}, std::move(input), std::move(other)); }
Tensor atan2(Tensor input, Tensor other) { return ops::binary(Atan2{}, std::move(input), std::move(other)); }

void LerpNumber::check(const char* name, const Tensor& input) const {
  ops::check_floating(name, {kArguments[0], input});
}

void Addcmul::check(const char* name, const Tensor& input) const {
  ops::check_not_bool(name, kArguments[0], input);
  TANDEM_CHECK(DTypeError, value.dtype() != kFloat64 || is_floating_point(input.dtype()), name,
               ": value is the floating number ", value.to_double(), ", but the result is ", input.dtype());
}

Tensor lerp(Tensor input, Tensor end, Scalar weight) {
  return ops::binary(LerpNumber{{}, weight}, std::move(input), std::move(end));
}
Tensor lerp(Tensor input, Tensor end, Tensor weight) {
  return ops::ternary(Lerp{}, std::move(input), std::move(end), std::move(weight));
}
Tensor addcmul(Tensor input, Tensor tensor1, Tensor tensor2, Scalar value) {
  return ops::ternary(Addcmul{{}, value}, std::move(input), std::move(tensor1), std::move(tensor2));
}
Tensor addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, Scalar value) {
  return ops::ternary(Addcdiv{{}, value}, std::move(input), std::move(tensor1), std::move(tensor2));
}

const Tensor& Tensor::lerp_(const Tensor& end, Scalar weight) const {
  return ops::binary_in_place("lerp_", LerpNumber{{}, weight}, *this, end);
}

#define TANDEM_DEFINE_TERNARY_IN_PLACE(name)                                                        \
  const Tensor& Tensor::name##_(const Tensor& tensor1, const Tensor& tensor2, Scalar value) const { \
    const ops::Call call(#name "_", {{"self", *this}, {"tensor1", tensor1}, {"tensor2", tensor2}}); \
    const Tensor result = name(*this, tensor1, tensor2, value);                                     \
    ops::check_in_place(#name "_", *this, result.dtype());                                          \
    return ops::copy_in_place(#name "_", *this, result);                                            \
  }
TANDEM_DEFINE_TERNARY_IN_PLACE(addcmul)
TANDEM_DEFINE_TERNARY_IN_PLACE(addcdiv)

}}  // namespace tandem::v0

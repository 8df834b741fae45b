#include <tandem/ops/math.h>

#include <cmath>

#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise/elementwise_op.h>
#include <tandem/ops/elementwise/math_functions.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 {

TANDEM_MATH_FUNCTIONS(TANDEM_DEFINE_UNARY)
TANDEM_STEP_FUNCTIONS(TANDEM_DEFINE_UNARY)
TANDEM_RARE_FUNCTIONS(TANDEM_DEFINE_UNARY)

TANDEM_MATH_FUNCTIONS(TANDEM_DEFINE_METHOD)
TANDEM_STEP_FUNCTIONS(TANDEM_DEFINE_METHOD)
TANDEM_RARE_FUNCTIONS(TANDEM_DEFINE_METHOD)
TANDEM_DEFINE_METHOD(square)
TANDEM_DEFINE_METHOD(frac)

TANDEM_DEFINE_IN_PLACE(sqrt, Sqrt)
TANDEM_DEFINE_IN_PLACE(rsqrt, Rsqrt)
TANDEM_DEFINE_IN_PLACE(reciprocal, Reciprocal)
TANDEM_DEFINE_IN_PLACE(sin, Sin)
TANDEM_DEFINE_IN_PLACE(cos, Cos)
TANDEM_DEFINE_IN_PLACE(tanh, Tanh)
TANDEM_DEFINE_IN_PLACE(sigmoid, Sigmoid)
TANDEM_STEP_FUNCTIONS(TANDEM_DEFINE_IN_PLACE)

Tensor square(Tensor input) {
  const ops::Call call("square", CastPolicy::kFloat32, {{"input", &input}});
  ops::check_not_bool("square", "input", input);
  return pow(input, 2);
}

Tensor round(Tensor input, int64_t decimals) {
  const ops::Call call("round", CastPolicy::kWidest, {{"input", &input}});
  if (decimals == 0) return round(input);
  ops::check_floating("round", {"input", input});
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return ops::in_float32(input, [&](const Tensor& x) {
    return decimals > 0 ? div(round(mul(x, scale)), scale) : mul(round(div(x, scale)), scale);
  });
}

Tensor frac(Tensor input) {
  const ops::Call call("frac", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  return sub(input, trunc(input));
}

void functions::PowScalar::prepare(Tensor& input) const {
  ops::convert(input, ops::dtype_with(input, exponent));
  TANDEM_CHECK(ValueError, is_floating_point(input.dtype()) || exponent.to_int() >= 0,
               ops::operand_error(kName, str("an integer to the power ", exponent.to_int(), " is not an integer"),
                                  {{"input", input}}, {}, "make the exponent a floating number"));
}

Tensor functions::PowScalar::backward(const Tensor& grad, const Tensor& input) const {
  const double e = exponent.to_double();
  if (e == 0) return zeros(grad.shape(), grad.options());
  return mul(grad, mul(tandem::pow(input, e - 1), e));
}

void functions::Pow::check(const char* name, const Tensor& input) const {
  ops::check_not_bool(name, kArguments[0], input);
}

Tensor functions::Pow::backward_a(const Tensor& grad, const Tensor& input, const Tensor& exponent) {
  return mul(grad, where(eq(exponent, 0), 0, mul(exponent, tandem::pow(input, sub(exponent, 1)))));
}

Tensor functions::Pow::backward_b(const Tensor& grad, const Tensor& input, const Tensor& exponent,
                                  const Tensor& output) {
  // Replaces 0 by 1, so that the logarithm and its gradient stay finite there.
  const Tensor base = where(mul(eq(input, 0), ge(exponent, 0)), 1, input);
  return mul(grad, mul(output, log(base)));
}

Tensor pow(Tensor input, Scalar exponent) { return ops::unary(functions::PowScalar{{}, exponent}, std::move(input)); }

Tensor pow(Tensor input, Tensor exponent) {
  return ops::binary(functions::Pow{}, std::move(input), std::move(exponent));
}

Tensor pow(Scalar input, Tensor exponent) {
  const ops::Call call("pow", CastPolicy::kFloat32, {{"exponent", &exponent}});
  return pow(ops::number_with(exponent, input), exponent);
}

Tensor Tensor::pow(Scalar exponent) const { return tandem::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return tandem::pow(*this, exponent); }

void functions::Clamp::prepare(Tensor& input) const {
  TANDEM_CHECK(ValueError, min || max, "clamp: at least one of min and max is needed");
  TANDEM_CHECK(ValueError, !min || !std::isnan(min->to_double()), "clamp: min is NaN");
  TANDEM_CHECK(ValueError, !max || !std::isnan(max->to_double()), "clamp: max is NaN");
  if (min) ops::convert(input, ops::dtype_with(input, *min));
  if (max) ops::convert(input, ops::dtype_with(input, *max));
}

Tensor clamp(Tensor input, std::optional<Scalar> min, std::optional<Scalar> max) {
  return ops::unary(functions::Clamp{{}, min, max}, std::move(input));
}
Tensor clamp_min(Tensor input, Scalar min) {
  const ops::Call call("clamp_min", {{"input", input}});
  return clamp(std::move(input), min);
}
Tensor clamp_max(Tensor input, Scalar max) {
  const ops::Call call("clamp_max", {{"input", input}});
  return clamp(std::move(input), {}, max);
}

const Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return ops::unary_in_place("clamp_", functions::Clamp{{}, min, max}, *this);
}
const Tensor& Tensor::clamp_min_(Scalar min) const {
  return ops::unary_in_place("clamp_min_", functions::Clamp{{}, min, {}}, *this);
}
const Tensor& Tensor::clamp_max_(Scalar max) const {
  return ops::unary_in_place("clamp_max_", functions::Clamp{{}, {}, max}, *this);
}
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return tandem::clamp(*this, min, max);
}
const Tensor& Tensor::pow_(Scalar exponent) const {
  return ops::unary_in_place("pow_", functions::PowScalar{{}, exponent}, *this);
}

}}  // namespace tandem::v0

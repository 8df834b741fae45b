#include <tandem/ops/math.h>

#include <cmath>

#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise/elementwise_op.h>
#include <tandem/ops/elementwise/math_functions.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 {

TANDEM_MATH_FUNCTIONS(TANDEM_DEFINE_UNARY)

Tensor Tensor::sqrt() const { return tandem::sqrt(*this); }

// --- pow -----------------------------------------------------------------------------------------

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

Tensor Tensor::pow(Scalar exponent) const { return tandem::pow(*this, exponent); }

// --- clamp ---------------------------------------------------------------------------------------

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

}}  // namespace tandem::v0

#include <cmath>
#include <limits>

#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>

namespace tandem { inline namespace v0 {

Tensor isnan(const Tensor& input) {
  const ops::Call call("isnan", {{"input", input}});
  return ne(input, input);
}

Tensor isinf(const Tensor& input) {
  const ops::Call call("isinf", {{"input", input}});
  return is_floating_point(input.dtype()) ? eq(abs(input.detach()), INFINITY)
                                          : zeros(input.shape(), {kBool, input.device()});
}

Tensor isfinite(const Tensor& input) {
  const ops::Call call("isfinite", {{"input", input}});
  return is_floating_point(input.dtype()) ? lt(abs(input.detach()), INFINITY)
                                          : ones(input.shape(), {kBool, input.device()});
}

Tensor nan_to_num(const Tensor& input, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const ops::Call call("nan_to_num", {{"input", input}});
  if (!is_floating_point(input.dtype())) return clone(input);
  const double largest = input.dtype() == kFloat16    ? 65504
                         : input.dtype() == kBFloat16 ? 0x1.fep127
                         : input.dtype() == kFloat32  ? std::numeric_limits<float>::max()
                                                      : std::numeric_limits<double>::max();
  const Tensor without_nan = where(isnan(input), nan, input);
  const Tensor without_inf = where(eq(input, INFINITY), posinf.value_or(largest), without_nan);
  return where(eq(input, -INFINITY), neginf.value_or(-largest), without_inf);
}

namespace {

Tensor as_bool(const Tensor& input) { return input.dtype() == kBool ? input : ne(input, 0); }

}  // namespace

Tensor logical_not(const Tensor& input) {
  const ops::Call call("logical_not", {{"input", input}});
  return input.dtype() == kBool ? eq(input, false) : eq(input, 0);
}

Tensor logical_and(const Tensor& input, const Tensor& other) {
  const ops::Call call("logical_and", {{"input", input}, {"other", other}});
  return bitwise_and(as_bool(input), as_bool(other));
}

Tensor logical_or(const Tensor& input, const Tensor& other) {
  const ops::Call call("logical_or", {{"input", input}, {"other", other}});
  return bitwise_or(as_bool(input), as_bool(other));
}

Tensor logical_xor(const Tensor& input, const Tensor& other) {
  const ops::Call call("logical_xor", {{"input", input}, {"other", other}});
  return ne(as_bool(input), as_bool(other));
}

Tensor isclose(Tensor input, Tensor other, double rtol, double atol, bool equal_nan) {
  const ops::Call call("isclose", CastPolicy::kWidest, {{"input", &input}, {"other", &other}});
  TANDEM_CHECK(ValueError, rtol >= 0 && atol >= 0, "isclose: rtol is ", rtol, " and atol ", atol,
               ", expected at least 0");
  const NoGradGuard no_grad;
  const Tensor is_equal =
      equal_nan ? bitwise_or(eq(input, other), bitwise_and(isnan(input), isnan(other))) : eq(input, other);
  const auto number = [](const Tensor& x) { return is_floating_point(x.dtype()) ? x : to(x, kFloat64); };
  const Tensor expected = number(other), error = abs(sub(number(input), expected));
  const Tensor is_near = bitwise_and(isfinite(error), le(error, add(mul(abs(expected), rtol), atol)));
  return bitwise_or(is_equal, is_near);
}

bool allclose(const Tensor& input, const Tensor& other, double rtol, double atol, bool equal_nan) {
  const ops::Call call("allclose", {{"input", input}, {"other", other}});
  return sum(logical_not(isclose(input, other, rtol, atol, equal_nan))).item<int64_t>() == 0;
}

bool equal(const Tensor& input, const Tensor& other) {
  const ops::Call call("equal", {{"input", input}, {"other", other}});
  return input.shape() == other.shape() && sum(ne(input, other)).item<int64_t>() == 0;
}

}}  // namespace tandem::v0

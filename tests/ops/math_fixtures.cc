#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(math) {
  fixtures.unary("sqrt", sqrt);
  fixtures.unary("rsqrt", rsqrt);
  fixtures.unary("reciprocal", reciprocal);
  fixtures.unary("square", square);
  fixtures.unary("abs", abs);
  fixtures.unary("sign", sign);
  fixtures.unary("floor", floor);
  fixtures.unary("ceil", ceil);
  fixtures.unary("trunc", trunc);
  fixtures.unary("round", round);
  for (const char* key : {"round.decimals_0", "round.decimals_3", "round.decimals_neg_3"}) {
    fixtures.op(key, [](const Arguments& a) { return round(a.tensor("input"), a.integer("decimals")); });
  }
  fixtures.unary("frac", frac);
  fixtures.unary("exp2", exp2);
  fixtures.unary("expm1", expm1);
  fixtures.unary("log2", log2);
  fixtures.unary("log10", log10);
  fixtures.unary("log1p", log1p);
  fixtures.unary("sin", sin);
  fixtures.unary("cos", cos);
  fixtures.unary("tan", tan);
  fixtures.unary("asin", asin);
  fixtures.unary("acos", acos);
  fixtures.unary("atan", atan);
  fixtures.unary("sinh", sinh);
  fixtures.unary("cosh", cosh);
  fixtures.unary("erf", erf);
  fixtures.unary("erfc", erfc);
  fixtures.unary("erfinv", erfinv);
  fixtures.of_tensors("atan2", atan2);
  fixtures.of_tensors("logaddexp", logaddexp);
  fixtures.of_tensors("xlogy", xlogy);
  fixtures.op("nan_to_num", [](const Arguments& a) {
    const auto bound = [&](const char* name) { return a.has(name) ? std::optional(a.real(name, 0)) : std::nullopt; };
    return nan_to_num(a.tensor("input"), a.real("nan", 0), bound("posinf"), bound("neginf"));
  });
  fixtures.of_tensors("__rpow__", [](const Tensor& a, const Tensor& b) { return pow(b, a); });
  fixtures.binary(
      "pow", [](const Tensor& a, const auto& b) { return pow(a, b); }, "input", "exponent");
  fixtures.op("clamp_min", [](const Arguments& a) { return clamp_min(a.tensor("input"), a.number("min", 0)); });
  fixtures.op("clamp_max", [](const Arguments& a) { return clamp_max(a.tensor("input"), a.number("max", 0)); });
  fixtures.op("clamp", [](const Arguments& a) {
    if (a.is_tensor("min") || a.is_tensor("max")) return clamp(a.tensor("input"), a.tensor("min"), a.tensor("max"));
    return clamp(a.tensor("input"), a.optional_number("min"), a.optional_number("max"));
  });
}

}  // namespace tandem::testing

#include <tandem/ops/math.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(math) {
  fixtures.unary("sqrt", sqrt);
  fixtures.unary("rsqrt", rsqrt);
  fixtures.unary("sin", sin);
  fixtures.binary(
      "pow", [](const Tensor& a, const auto& b) { return pow(a, b); }, "input", "exponent");
  fixtures.op("clamp", [](const Arguments& a) {
    return clamp(a.tensor("input"), a.optional_number("min"), a.optional_number("max"));
  });
}

}  // namespace tandem::testing

#include <tandem/ops/elementwise.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(elementwise) {
  fixtures.op("add", [](const Arguments& a) {
    if (!a.is_tensor("other")) return add(a.tensor("input"), a.number("other"));
    return add(a.tensor("input"), a.tensor("other"), a.number("alpha", 1));
  });
  fixtures.op("sub", [](const Arguments& a) {
    if (!a.is_tensor("other")) return sub(a.tensor("input"), a.number("other"));
    return sub(a.tensor("input"), a.tensor("other"), a.number("alpha", 1));
  });
  const auto div_both = [](const Tensor& a, const auto& b) { return div(a, b); };
  fixtures.binary("mul", [](const Tensor& a, const auto& b) { return mul(a, b); });
  fixtures.binary("div.no_rounding_mode", div_both);
  fixtures.binary("true_divide", div_both);
  fixtures.binary("__radd__", [](const Tensor& a, const auto& b) { return add(b, a); });
  fixtures.binary("__rmul__", [](const Tensor& a, const auto& b) { return mul(b, a); });
  fixtures.binary("__rsub__", [](const Tensor& a, const auto& b) { return sub(b, a); });
  fixtures.binary("__rdiv__", [](const Tensor& a, const auto& b) { return div(b, a); });
  fixtures.unary("neg", neg);
  fixtures.unary("exp", exp);
  fixtures.unary("log", log);
  fixtures.unary("nn.functional.relu", relu);
  fixtures.op("clone", [](const Arguments& a) { return clone(a.tensor("input")); });
  fixtures.op("contiguous", [](const Arguments& a) { return contiguous(a.tensor("input")); });
}

}  // namespace tandem::testing

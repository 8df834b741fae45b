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
  fixtures.binary("div.floor_rounding", [](const Tensor& a, const auto& b) { return div(a, b, RoundingMode::kFloor); });
  fixtures.binary("div.trunc_rounding", [](const Tensor& a, const auto& b) { return div(a, b, RoundingMode::kTrunc); });
  fixtures.binary("floor_divide", [](const Tensor& a, const auto& b) { return floor_divide(a, b); });
  fixtures.binary("fmod", [](const Tensor& a, const auto& b) { return fmod(a, b); });
  fixtures.binary("remainder", [](const Tensor& a, const auto& b) { return remainder(a, b); });
  fixtures.of_tensors("__rmod__", [](const Tensor& a, const Tensor& b) { return remainder(b, a); });
  fixtures.of_tensors("maximum", maximum);
  fixtures.of_tensors("minimum", minimum);
  fixtures.binary("bitwise_and", [](const Tensor& a, const auto& b) { return bitwise_and(a, b); });
  fixtures.binary("bitwise_or", [](const Tensor& a, const auto& b) { return bitwise_or(a, b); });
  for (const char* key : {"bitwise_xor", "__rxor__"}) {
    fixtures.binary(key, [](const Tensor& a, const auto& b) { return bitwise_xor(a, b); });
  }
  fixtures.binary("__rand__", [](const Tensor& a, const auto& b) { return b & a; });
  fixtures.binary("__ror__", [](const Tensor& a, const auto& b) { return b | a; });
  fixtures.unary("bitwise_not", bitwise_not);
  fixtures.op("lerp", [](const Arguments& a) {
    const Tensor input = a.tensor("input"), end = a.tensor("end");
    return a.is_tensor("weight") ? lerp(input, end, a.tensor("weight")) : lerp(input, end, a.number("weight"));
  });
  fixtures.op("addcmul", 16, [](const Arguments& a) {
    return addcmul(a.tensor("input"), a.tensor("tensor1"), a.tensor("tensor2"), a.number("value", 1));
  });
  fixtures.op("addcdiv", 16, [](const Arguments& a) {
    return addcdiv(a.tensor("input"), a.tensor("tensor1"), a.tensor("tensor2"), a.number("value", 1));
  });
  fixtures.op("clone", [](const Arguments& a) { return clone(a.tensor("input")); });
  fixtures.op("contiguous", [](const Arguments& a) { return contiguous(a.tensor("input")); });
}

}  // namespace tandem::testing

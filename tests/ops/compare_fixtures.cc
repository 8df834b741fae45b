#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(compare) {
  fixtures.binary("eq", [](const Tensor& a, const auto& b) { return eq(a, b); });
  fixtures.binary("ne", [](const Tensor& a, const auto& b) { return ne(a, b); });
  fixtures.binary("lt", [](const Tensor& a, const auto& b) { return lt(a, b); });
  fixtures.binary("le", [](const Tensor& a, const auto& b) { return le(a, b); });
  fixtures.binary("gt", [](const Tensor& a, const auto& b) { return gt(a, b); });
  fixtures.binary("ge", [](const Tensor& a, const auto& b) { return ge(a, b); });
  fixtures.unary("isnan", isnan);
  fixtures.unary("isinf", isinf);
  fixtures.unary("isfinite", isfinite);
  fixtures.unary("logical_not", logical_not);
  fixtures.of_tensors("logical_and", logical_and);
  fixtures.of_tensors("logical_or", logical_or);
  fixtures.of_tensors("logical_xor", logical_xor);
  fixtures.op("isclose", [](const Arguments& a) {
    return isclose(a.tensor("input"), a.tensor("other"), a.real("rtol", 1e-5), a.real("atol", 1e-8),
                   a.flag("equal_nan"));
  });
  fixtures.op("allclose", [](const Arguments& a) {
    return scalar_tensor(
        allclose(a.tensor("input"), a.tensor("other"), a.real("rtol", 1e-5), a.real("atol", 1e-8), a.flag("equal_nan")),
        {kBool});
  });
  fixtures.of_tensors("equal", [](const Tensor& a, const Tensor& b) { return scalar_tensor(equal(a, b), {kBool}); });
  fixtures.op("where",
              [](const Arguments& a) { return where(a.tensor("condition"), a.tensor("input"), a.tensor("other")); });
}

}  // namespace tandem::testing

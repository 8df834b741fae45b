#include <tandem/ops/compare.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(compare) {
  fixtures.binary("eq", [](const Tensor& a, const auto& b) { return eq(a, b); });
  fixtures.binary("ne", [](const Tensor& a, const auto& b) { return ne(a, b); });
  fixtures.binary("lt", [](const Tensor& a, const auto& b) { return lt(a, b); });
  fixtures.binary("le", [](const Tensor& a, const auto& b) { return le(a, b); });
  fixtures.binary("gt", [](const Tensor& a, const auto& b) { return gt(a, b); });
  fixtures.binary("ge", [](const Tensor& a, const auto& b) { return ge(a, b); });
  fixtures.op("where",
              [](const Arguments& a) { return where(a.tensor("condition"), a.tensor("input"), a.tensor("other")); });
}

}  // namespace tandem::testing

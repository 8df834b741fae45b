#include <tandem/ops/reduce.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(reduce) {
  fixtures.op("sum", [](const Arguments& a) {
    if (!a.has("dim")) return sum(a.tensor("input"));
    return sum(a.tensor("input"), a.shape("dim"), a.flag("keepdim"));
  });
  fixtures.op("mean", [](const Arguments& a) {
    if (!a.has("dim")) return mean(a.tensor("input"));
    return mean(a.tensor("input"), a.shape("dim"), a.flag("keepdim"));
  });
  fixtures.op("var", [](const Arguments& a) {
    return var(a.tensor("input"), a.shape("dim"), a.integer("correction", 1), a.flag("keepdim"));
  });
  fixtures.op("max.reduction_no_dim", [](const Arguments& a) { return max(a.tensor("input")); });
  fixtures.op("argmax",
              [](const Arguments& a) { return argmax(a.tensor("input"), a.integer("dim"), a.flag("keepdim")); });
}

}  // namespace tandem::testing

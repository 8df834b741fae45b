#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(random) {
  fixtures.op("nn.functional.dropout", [](const Arguments& a) {
    return dropout(a.tensor("input"), a.real("p", 0.5), a.flag("training", true));
  });
  fixtures.op("nn.functional.dropout2d", [](const Arguments& a) {
    return dropout2d(a.tensor("input"), a.real("p", 0.5), a.flag("training", true));
  });
}

}  // namespace tandem::testing

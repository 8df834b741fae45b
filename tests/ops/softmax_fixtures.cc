#include <tandem/ops/softmax.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(softmax) {
  fixtures.op("softmax", [](const Arguments& a) { return softmax(a.tensor("input"), a.integer("dim")); });
  fixtures.op("log_softmax", [](const Arguments& a) { return log_softmax(a.tensor("input"), a.integer("dim")); });
}

}  // namespace tandem::testing

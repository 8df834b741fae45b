#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(in_place) {
  fixtures.op("fill", [](const Arguments& a) { return a.tensor("input").clone().fill_(a.number("value")); });
  fixtures.op("zero_", [](const Arguments& a) { return a.tensor("input").clone().zero_(); });
}

}  // namespace tandem::testing

#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(scan) {
  fixtures.op("cumsum", [](const Arguments& a) { return cumsum(a.tensor("input"), a.integer("dim")); });
  fixtures.op("cumprod", 16, [](const Arguments& a) { return cumprod(a.tensor("input"), a.integer("dim")); });
  fixtures.op("logcumsumexp", 8192,
              [](const Arguments& a) { return logcumsumexp(a.tensor("input"), a.integer("dim")); });
  fixtures.op("cummax", [](const Arguments& a) { return both(cummax(a.tensor("input"), a.integer("dim"))); });
  fixtures.op("cummin", [](const Arguments& a) { return both(cummin(a.tensor("input"), a.integer("dim"))); });
}

}  // namespace tandem::testing

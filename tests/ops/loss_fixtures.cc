#include <tandem/ops/loss.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(loss) {
  fixtures.op("nn.functional.cross_entropy",
              [](const Arguments& a) { return cross_entropy(a.tensor("input"), a.tensor("target")); });
  fixtures.op("nn.functional.nll_loss",
              [](const Arguments& a) { return nll_loss(a.tensor("input"), a.tensor("target")); });
  fixtures.op("nn.functional.mse_loss",
              [](const Arguments& a) { return mse_loss(a.tensor("input"), a.tensor("target")); });
}

}  // namespace tandem::testing

#include <tandem/ops/activation.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(activation) {
  fixtures.op(
      "nn.functional.gelu",
      [](const Arguments& a) {
        const bool is_tanh = a.text("approximate", "none") == "tanh";
        return gelu(a.tensor("input"), is_tanh ? GeluApproximation::kTanh : GeluApproximation::kNone);
      },
      8);
  fixtures.unary("nn.functional.silu", silu);
  fixtures.unary("sigmoid", sigmoid);
  fixtures.unary("tanh", tanh);
}

}  // namespace tandem::testing

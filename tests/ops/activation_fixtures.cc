#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(activation) {
  fixtures.op("nn.functional.gelu", 8, [](const Arguments& a) {
    const bool is_tanh = a.text("approximate", "none") == "tanh";
    return gelu(a.tensor("input"), is_tanh ? GeluApproximation::kTanh : GeluApproximation::kNone);
  });
  fixtures.unary("nn.functional.silu", silu);
  fixtures.unary("sigmoid", sigmoid);
  fixtures.unary("tanh", tanh);
  fixtures.unary("nn.functional.selu", selu);
  fixtures.unary("nn.functional.logsigmoid", logsigmoid);
  fixtures.unary("nn.functional.mish", mish);
  fixtures.unary("nn.functional.hardswish", hardswish);
  fixtures.unary("nn.functional.hardsigmoid", hardsigmoid);
  fixtures.unary("nn.functional.softsign", softsign);
  fixtures.unary("nn.functional.relu6", relu6);
  fixtures.op("nn.functional.leaky_relu",
              [](const Arguments& a) { return leaky_relu(a.tensor("input"), a.real("negative_slope", 0.01)); });
  fixtures.op("nn.functional.prelu", [](const Arguments& a) { return prelu(a.tensor("input"), a.tensor("weight")); });
  fixtures.op("nn.functional.celu", [](const Arguments& a) { return celu(a.tensor("input"), a.real("alpha", 1)); });
  fixtures.op("nn.functional.elu", [](const Arguments& a) { return elu(a.tensor("input"), a.real("alpha", 1)); });
  fixtures.op("nn.functional.softplus", [](const Arguments& a) {
    return softplus(a.tensor("input"), a.real("beta", 1), a.real("threshold", 20));
  });
  fixtures.op("nn.functional.hardtanh", [](const Arguments& a) {
    return hardtanh(a.tensor("input"), a.real("min_val", -1), a.real("max_val", 1));
  });
  fixtures.op("nn.functional.glu", [](const Arguments& a) { return glu(a.tensor("input"), a.integer("dim", -1)); });
}

}  // namespace tandem::testing

#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

// A transformer's hidden layer: 16 sequences of 128 positions.
TensorList hidden() { return {randn({16, 128, 512})}; }

}  // namespace

TANDEM_BENCHMARK_ROWS(activation) {
  rows.add("gelu", hidden, [](const TensorList& in) { return gelu(in[0]); });
  rows.add("gelu tanh", hidden, [](const TensorList& in) { return gelu(in[0], GeluApproximation::kTanh); });
  rows.add("silu", hidden, [](const TensorList& in) { return silu(in[0]); });
  rows.add("tanh", hidden, [](const TensorList& in) { return tanh(in[0]); });
  rows.add("sigmoid", hidden, [](const TensorList& in) { return sigmoid(in[0]); });
}

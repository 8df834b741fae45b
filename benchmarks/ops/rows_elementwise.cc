#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

// A hidden layer's activations in a training step: past the second-level cache, forward and backward together.
TensorList one() { return {rand({128, 32, 24, 24}) + 0.5}; }
TensorList two() { return {rand({128, 32, 24, 24}) + 0.5, rand({128, 32, 24, 24}) + 0.5}; }
TensorList broadcast() { return {randn({2048, 1024}), randn({1024})}; }

}  // namespace

TANDEM_BENCHMARK_ROWS(elementwise) {
  rows.add("add", two, [](const TensorList& in) { return add(in[0], in[1]); });
  rows.add("add", broadcast, [](const TensorList& in) { return add(in[0], in[1]); });
  rows.add("sub", two, [](const TensorList& in) { return sub(in[0], in[1]); });
  rows.add("mul", two, [](const TensorList& in) { return mul(in[0], in[1]); });
  rows.add("mul", broadcast, [](const TensorList& in) { return mul(in[0], in[1]); });
  rows.add("mul number", one, [](const TensorList& in) { return mul(in[0], 3); });
  rows.add("div", two, [](const TensorList& in) { return div(in[0], in[1]); });
  rows.add("neg", one, [](const TensorList& in) { return neg(in[0]); });
  rows.add("exp", one, [](const TensorList& in) { return exp(in[0]); });
  rows.add("log", one, [](const TensorList& in) { return log(in[0]); });
  rows.add("relu", one, [](const TensorList& in) { return relu(in[0]); });
  rows.add("where", two, [condition = bernoulli(full({128, 32, 24, 24}, 0.5)).to(kBool)](const TensorList& in) {
    return where(condition, in[0], in[1]);
  });
  rows.add("to bfloat16", one, [](const TensorList& in) { return to(in[0], kBFloat16); });
  rows.add("clone", one, [](const TensorList& in) { return clone(in[0]); });
}

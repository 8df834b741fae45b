#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

TensorList scores() { return {randn({2048, 65})}; }
TensorList wide_scores() { return {randn({256, 8192})}; }

}  // namespace

TANDEM_BENCHMARK_ROWS(loss) {
  for (const auto& input : {scores, wide_scores}) {
    rows.add("softmax", input, [](const TensorList& in) { return softmax(in[0], 1); });
    rows.add("log_softmax", input, [](const TensorList& in) { return log_softmax(in[0], 1); });
  }
  const auto with_labels = [](const TensorList& in) { return cross_entropy(in[0], in[1]); };
  rows.add(
      "cross_entropy",
      [] {
        return TensorList{randn({2048, 65}), randint(0, 65, {2048})};
      },
      with_labels);
  rows.add(
      "cross_entropy",
      [] {
        return TensorList{randn({256, 8192}), randint(0, 8192, {256})};
      },
      with_labels);
  rows.add(
      "nll_loss",
      [] {
        return TensorList{randn({2048, 65}), randint(0, 65, {2048})};
      },
      [](const TensorList& in) { return nll_loss(in[0], in[1]); });
  rows.add(
      "mse_loss",
      [] {
        return TensorList{randn({2048, 1024}), randn({2048, 1024})};
      },
      [](const TensorList& in) { return mse_loss(in[0], in[1]); });
}

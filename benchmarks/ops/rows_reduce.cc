#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

TensorList matrix() { return {randn({2048, 1024})}; }

}  // namespace

TANDEM_BENCHMARK_ROWS(reduce) {
  rows.add("sum", matrix, [](const TensorList& in) { return sum(in[0]); });
  rows.add("sum rows", matrix, [](const TensorList& in) { return sum(in[0], {1}); });
  rows.add("sum columns", matrix, [](const TensorList& in) { return sum(in[0], {0}); });
  rows.add("mean", matrix, [](const TensorList& in) { return mean(in[0]); });
  rows.add("var", matrix, [](const TensorList& in) { return var(in[0]); });
  rows.add("var columns", matrix, [](const TensorList& in) { return var(in[0], {0}); });
  rows.add("max", matrix, [](const TensorList& in) { return max(in[0]); }, {.backward = false});
  rows.add("argmax", matrix, [](const TensorList& in) { return argmax(in[0], 1); }, {.backward = false});
}

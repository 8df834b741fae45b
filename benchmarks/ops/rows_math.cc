#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

TANDEM_BENCHMARK_ROWS(math) {
  const auto positive = [] { return TensorList{rand({128, 32, 24, 24}) + 0.5}; };
  rows.add("sqrt", positive, [](const TensorList& in) { return sqrt(in[0]); });
  rows.add("rsqrt", positive, [](const TensorList& in) { return rsqrt(in[0]); });
  rows.add("pow square", positive, [](const TensorList& in) { return pow(in[0], 2); });
  rows.add("pow number", positive, [](const TensorList& in) { return pow(in[0], 1.7); });
  rows.add(
      "pow tensor",
      [] {
        return TensorList{rand({2048, 1024}) + 0.5, randn({1024})};
      },
      [](const TensorList& in) { return pow(in[0], in[1]); });
  rows.add("clamp", positive, [](const TensorList& in) { return clamp(in[0], 0.75, 1.25); });
}

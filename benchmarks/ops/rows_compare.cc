#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

TANDEM_BENCHMARK_ROWS(compare) {
  using Comparison = Tensor (*)(Tensor, Tensor);
  const std::pair<const char*, Comparison> comparisons[] = {{"eq", eq}, {"ne", ne}, {"lt", lt},
                                                            {"le", le}, {"gt", gt}, {"ge", ge}};
  for (const auto& [name, compare] : comparisons) {
    rows.add(
        name,
        [] {
          return TensorList{rand({128, 32, 24, 24}), rand({128, 32, 24, 24})};
        },
        [compare](const TensorList& in) { return compare(in[0], in[1]); }, {.backward = false});
  }
}

#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

TensorList scores() { return {randn({512, 1000})}; }

}  // namespace

TANDEM_BENCHMARK_ROWS(index) {
  rows.add("gather", scores,
           [index = randint(0, 1000, {512, 1000})](const TensorList& in) { return gather(in[0], 1, index); });
  rows.add("index_select rows", scores,
           [index = randint(0, 512, {512})](const TensorList& in) { return index_select(in[0], 0, index); });
  rows.add("index_select columns", scores,
           [index = randint(0, 1000, {1000})](const TensorList& in) { return index_select(in[0], 1, index); });
  rows.add(
      "one_hot", [] { return TensorList{randint(0, 1000, {512})}; },
      [](const TensorList& in) { return one_hot(in[0], 1000); }, {.backward = false});
  rows.add("topk", scores, [](const TensorList& in) { return topk(in[0], 10).values; });
  rows.add("masked_fill", scores, [mask = bernoulli(full({1000}, 0.5)).to(kBool)](const TensorList& in) {
    return masked_fill(in[0], mask, -1e9);
  });
  rows.add(
      "tril",
      [] {
        return TensorList{randn({64, 128, 128})};
      },
      [](const TensorList& in) { return tril(in[0], 1); });
}

#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

TANDEM_BENCHMARK_ROWS(random) {
  const auto input = [] { return TensorList{randn({2048, 1024})}; };
  const auto like = [](Tensor (*make)(const Shape&, TensorOptions, Generator*)) {
    return [make](const TensorList& in) { return make(in[0].shape(), {}, nullptr); };
  };
  rows.add("rand", input, like(rand), {.bytes = 2048 * 1024 * 4, .backward = false});
  rows.add("randn", input, like(randn), {.bytes = 2048 * 1024 * 4, .backward = false});
  rows.add("randint", input, [](const TensorList& in) { return randint(-9, 1000, in[0].shape()); },
           {.bytes = 2048 * 1024 * 8, .backward = false});
  rows.add("randperm", input, [](const TensorList& in) { return randperm(in[0].num_elements()); },
           {.bytes = 2048 * 1024 * 8, .backward = false});
  rows.add(
      "bernoulli",
      [] {
        return TensorList{rand({2048, 1024})};
      },
      [](const TensorList& in) { return bernoulli(in[0]); }, {.backward = false});
  rows.add("dropout", input, [](const TensorList& in) { return dropout(in[0], 0.1); });
  rows.add(
      "multinomial",
      [] {
        return TensorList{rand({512, 1000})};
      },
      [](const TensorList& in) { return multinomial(in[0], 1); }, {.backward = false});
}

#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

TANDEM_BENCHMARK_ROWS(view) {
  rows.add(
      "contiguous transposed",
      [] {
        return TensorList{randn({2048, 1024})};
      },
      [](const TensorList& in) { return contiguous(transpose(in[0], 0, 1)); });
  rows.add(
      "contiguous permuted",
      [] {
        return TensorList{randn({16, 128, 4, 32})};
      },
      [](const TensorList& in) {
        return contiguous(permute(in[0], {0, 2, 1, 3}));
      });
  rows.add(
      "cat",
      [] {
        return TensorList{randn({64, 256, 64}), randn({64, 128, 64})};
      },
      [](const TensorList& in) {
        return cat({in[0], in[1]}, 1);
      });
  rows.add(
      "stack",
      [] {
        return TensorList{randn({256, 784}), randn({256, 784}), randn({256, 784})};
      },
      [](const TensorList& in) {
        return stack({in[0], in[1], in[2]});
      });
}

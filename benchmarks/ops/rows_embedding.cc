#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

TANDEM_BENCHMARK_ROWS(embedding) {
  rows.add(
      "embedding",
      [] {
        return TensorList{randn({65, 128})};
      },
      [indices = randint(0, 65, {16, 128})](const TensorList& in) { return embedding(indices, in[0]); },
      {.bytes = 2048 * 128 * 4});
  rows.add(
      "embedding of 50000",
      [] {
        return TensorList{randn({50000, 384})};
      },
      [indices = randint(0, 50000, {4, 256})](const TensorList& in) { return embedding(indices, in[0]); },
      {.bytes = 2 * 1024 * 384 * 4});
}

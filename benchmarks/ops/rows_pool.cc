#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

/// A channels-last image, as convolutions make it.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2}); }

}  // namespace

TANDEM_BENCHMARK_ROWS(pool) {
  rows.add(
      "max_pool2d 2",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return max_pool2d(in[0], 2); });
  rows.add(
      "max_pool2d 2 small",
      [] {
        return TensorList{image({64, 64, 8, 8})};
      },
      [](const TensorList& in) { return max_pool2d(in[0], 2); });
  rows.add(
      "max_pool2d 2 row-major",
      [] {
        return TensorList{randn({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return max_pool2d(in[0], 2); });
  rows.add(
      "max_pool2d 3 by 2",
      [] {
        return TensorList{image({16, 64, 56, 56})};
      },
      [](const TensorList& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1}); });
  rows.add(
      "avg_pool2d 2",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return avg_pool2d(in[0], 2); });
  rows.add(
      "adaptive_avg_pool2d",
      [] {
        return TensorList{image({32, 512, 4, 4})};
      },
      [](const TensorList& in) { return adaptive_avg_pool2d(in[0], 1); });
}

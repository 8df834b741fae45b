#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

/// Images as convolutions make them: [N, H, W, C] in memory, so that neither the input's gradient nor the output's is copied.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}); }
Tensor nchw(const Tensor& image) { return image.permute({0, 3, 1, 2}); }
Tensor nhwc(const Tensor& image) { return image.permute({0, 2, 3, 1}); }

}  // namespace

TANDEM_BENCHMARK_ROWS(pool) {
  rows.add(
      "max_pool2d 2",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 2)); });
  rows.add(
      "max_pool2d 2 small",
      [] {
        return TensorList{image({64, 64, 8, 8})};
      },
      [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 2)); });
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
      [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 3, {.stride = 2, .padding = 1})); });
  rows.add(
      "avg_pool2d 2",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return nhwc(avg_pool2d(nchw(in[0]), 2)); });
  rows.add(
      "adaptive_avg_pool2d",
      [] {
        return TensorList{image({32, 512, 4, 4})};
      },
      [](const TensorList& in) { return nhwc(adaptive_avg_pool2d(nchw(in[0]), 1)); });
}

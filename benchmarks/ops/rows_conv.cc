#include <string>

#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;
using namespace tandem::benchmarks;

namespace {

/// A channels-last image, as convolutions make it.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2}); }

struct Case {
  const char* name;
  Shape input, weight;
  Conv2dOptions options;
  bool input_gradient = true;
};

void add(Rows& rows, const Case& c) {
  const int64_t height = (c.input[2] + 2 * c.options.padding.height - c.weight[2]) / c.options.stride.height + 1;
  const int64_t width = (c.input[3] + 2 * c.options.padding.width - c.weight[3]) / c.options.stride.width + 1;
  const double flops = 2.0 * static_cast<double>(c.input[0] * height * width * num_elements(c.weight));
  if (c.input_gradient) {
    rows.add(
        c.name,
        [c] {
          return TensorList{image(c.input), randn(c.weight)};
        },
        [c](const TensorList& in) { return conv2d(in[0], in[1], {}, c.options); }, {.flops = flops});
  } else {
    const Tensor input = image(c.input);
    rows.add(
        c.name, [c] { return TensorList{randn(c.weight)}; },
        [c, input](const TensorList& in) { return conv2d(input, in[0], {}, c.options); }, {.flops = flops});
  }
}

}  // namespace

TANDEM_BENCHMARK_ROWS(conv) {
  // The convolutions of a ResNet-18 on 32 x 32 images.
  add(rows, {"conv2d 3x3 of an image", {32, 3, 32, 32}, {64, 3, 3, 3}, {.padding = 1}, false});
  add(rows, {"conv2d 3x3 64", {32, 64, 32, 32}, {64, 64, 3, 3}, {.padding = 1}});
  add(rows, {"conv2d 3x3 128", {32, 128, 16, 16}, {128, 128, 3, 3}, {.padding = 1}});
  add(rows, {"conv2d 3x3 256", {32, 256, 8, 8}, {256, 256, 3, 3}, {.padding = 1}});
  add(rows, {"conv2d 3x3 512", {32, 512, 4, 4}, {512, 512, 3, 3}, {.padding = 1}});
  add(rows, {"conv2d 3x3 64 by 2", {32, 64, 32, 32}, {128, 64, 3, 3}, {.stride = 2, .padding = 1}});
  add(rows, {"conv2d 3x3 128 by 2", {32, 128, 16, 16}, {256, 128, 3, 3}, {.stride = 2, .padding = 1}});
  add(rows, {"conv2d 3x3 256 by 2", {32, 256, 8, 8}, {512, 256, 3, 3}, {.stride = 2, .padding = 1}});
  add(rows, {"conv2d 1x1 64 by 2", {32, 64, 32, 32}, {128, 64, 1, 1}, {.stride = 2}});
  add(rows, {"conv2d 1x1 256", {32, 256, 16, 16}, {64, 256, 1, 1}, {}});
  // Groups.
  add(rows, {"conv2d 3x3 4 groups", {32, 128, 16, 16}, {128, 32, 3, 3}, {.padding = 1, .groups = 4}});
  add(rows, {"conv2d 3x3 depthwise", {32, 64, 32, 32}, {64, 1, 3, 3}, {.padding = 1, .groups = 64}});
  // LeNet's.
  const Tensor digits = randn({64, 1, 28, 28});
  rows.add(
      "conv2d_relu 5x5 of an image",
      [] {
        return TensorList{randn({32, 1, 5, 5}), randn({32})};
      },
      [digits](const TensorList& in) { return conv2d_relu(digits, in[0], in[1]); },
      {.flops = 2.0 * 64 * 24 * 24 * 32 * 25});
  rows.add(
      "conv2d_relu 5x5",
      [] {
        return TensorList{image({64, 32, 12, 12}), randn({64, 32, 5, 5}), randn({64})};
      },
      [](const TensorList& in) { return conv2d_relu(in[0], in[1], in[2]); },
      {.flops = 2.0 * 64 * 8 * 8 * 64 * 32 * 25});
}

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The number of windows, by counting.
int64_t windows(int64_t image, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t extent = dilation * (kernel - 1) + 1;
  int64_t n = 0;
  while (n * stride - padding + extent <= image + padding) ++n;
  // ceil_mode: one more window if it begins inside the image or the padding before it, and has elements left.
  if (ceil_mode && (n - 1) * stride - padding + extent < image + padding && n * stride - padding < image) ++n;
  return n;
}

/// f(the elements of a window inside the image, the number of its positions inside the padded image) for each window.
template <class F>
Dense pool(const Dense& in, Size2d kernel, Size2d stride, Size2d padding, Size2d dilation, bool ceil_mode, F f) {
  const Shape& s = in.shape;
  const int64_t rows = windows(s[2], kernel.height, stride.height, padding.height, dilation.height, ceil_mode);
  const int64_t columns = windows(s[3], kernel.width, stride.width, padding.width, dilation.width, ceil_mode);
  Dense out = dense_zeros({s[0], s[1], rows, columns});
  for (int64_t o = 0; o < out.num_elements(); ++o) {
    const int64_t column = o % columns, row = o / columns % rows, plane = o / columns / rows;
    std::vector<double> values;
    int64_t positions = 0;
    for (int64_t i = 0; i < kernel.height; ++i) {
      for (int64_t j = 0; j < kernel.width; ++j) {
        const int64_t y = row * stride.height - padding.height + i * dilation.height;
        const int64_t x = column * stride.width - padding.width + j * dilation.width;
        positions += y < s[2] + padding.height && x < s[3] + padding.width;
        if (y >= 0 && y < s[2] && x >= 0 && x < s[3]) values.push_back(in[(plane * s[2] + y) * s[3] + x]);
      }
    }
    out[o] = f(values, positions);
  }
  return out;
}

OpCase max_case(Shape shape, Size2d kernel, MaxPool2dOptions options) {
  OpCase op;
  op.name = "max_pool2d";
  op.inputs = {{"input", shape}};
  op.run = [=](const std::vector<Tensor>& in) { return max_pool2d(in[0], kernel, options); };
  op.reference = [=](const std::vector<Dense>& in) {
    return pool(in[0], kernel, options.stride.value_or(kernel), options.padding, options.dilation, options.ceil_mode,
                [](const std::vector<double>& v, int64_t) {
                  return v.empty() ? -kInf : *std::max_element(v.begin(), v.end());
                });
  };
  return op;
}

OpCase avg_case(Shape shape, Size2d kernel, AvgPool2dOptions options) {
  OpCase op;
  op.name = "avg_pool2d";
  op.inputs = {{"input", shape}};
  op.terms = static_cast<double>(kernel.height * kernel.width);
  op.run = [=](const std::vector<Tensor>& in) { return avg_pool2d(in[0], kernel, options); };
  op.reference = [=](const std::vector<Dense>& in) {
    return pool(in[0], kernel, options.stride.value_or(kernel), options.padding, 1, options.ceil_mode,
                [&](const std::vector<double>& v, int64_t positions) {
                  double sum = 0;
                  for (const double value : v) sum += value;
                  return sum /
                         static_cast<double>(options.count_include_pad ? positions : static_cast<int64_t>(v.size()));
                });
  };
  return op;
}

OpCase adaptive_case(Shape shape, Size2d size) {
  OpCase op;
  op.name = "adaptive_avg_pool2d";
  op.inputs = {{"input", shape}};
  op.terms = static_cast<double>(shape[2] * shape[3]);
  op.run = [=](const std::vector<Tensor>& in) { return adaptive_avg_pool2d(in[0], size); };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = dense_zeros({shape[0], shape[1], size.height, size.width});
    const auto begin = [](int64_t o, int64_t image, int64_t n) {
      return static_cast<int64_t>(std::floor(static_cast<double>(o * image) / static_cast<double>(n)));
    };
    const auto end = [](int64_t o, int64_t image, int64_t n) {
      return static_cast<int64_t>(std::ceil(static_cast<double>((o + 1) * image) / static_cast<double>(n)));
    };
    for (int64_t o = 0; o < out.num_elements(); ++o) {
      const int64_t column = o % size.width, row = o / size.width % size.height, plane = o / size.width / size.height;
      double sum = 0;
      int64_t count = 0;
      for (int64_t y = begin(row, shape[2], size.height); y < end(row, shape[2], size.height); ++y) {
        for (int64_t x = begin(column, shape[3], size.width); x < end(column, shape[3], size.width); ++x, ++count) {
          sum += in[0][(plane * shape[2] + y) * shape[3] + x];
        }
      }
      out[o] = sum / static_cast<double>(count);
    }
    return out;
  };
  return op;
}

/// The operation on a channels-last copy of the input, for which the kernels iterate over channels.
OpCase in_channels_last(OpCase op) {
  op.run = [run = op.run](const std::vector<Tensor>& in) {
    return run({in[0].permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2})});
  };
  op.names_operands = false;
  return op;
}

void add_both_orders(OpCases& cases, const OpCase& op) {
  cases.add(op);
  cases.add(in_channels_last(op), kValues | kGradients | kThreads);
}

/// Images with [N, H, W, C] in memory, as returned by convolutions, so that gradients are not copied.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}); }
Tensor nchw(const Tensor& image) { return image.permute({0, 3, 1, 2}); }
Tensor nhwc(const Tensor& image) { return image.permute({0, 2, 3, 1}); }

}  // namespace

TANDEM_OP_CASES(pool) {
  const std::vector<Input> image_input = {{"input", {2, 16, 9, 9}}};
  cases.op("Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options = {})",
           std::nullopt, {{.inputs = image_input, .run = [](const Tensors& x) {
                             return max_pool2d(x[0], 3, {.stride = 2, .padding = 1});
                           }}});
  cases.op("Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options = {})",
           std::nullopt,
           {{.inputs = image_input, .run = [](const Tensors& x) { return avg_pool2d(x[0], 3, {.padding = 1}); }}});
  cases.op("Tensor adaptive_avg_pool2d(const Tensor& input, Size2d output_size)", std::nullopt,
           {{.inputs = image_input, .run = [](const Tensors& x) { return adaptive_avg_pool2d(x[0], 3); }}});

  add_both_orders(cases, max_case({2, 3, 6, 6}, 2, {}));
  add_both_orders(cases, max_case({1, 3, 5, 7}, 2, {}));
  add_both_orders(cases, max_case({2, 3, 5, 7}, {3, 2}, {.stride = Size2d{2, 1}, .padding = {1, 0}}));
  add_both_orders(cases, max_case({1, 2, 7, 8}, 3, {.stride = 2, .padding = 1, .ceil_mode = true}));
  add_both_orders(cases, max_case({1, 1, 9, 7}, {2, 3}, {.stride = 3, .padding = 1, .dilation = {3, 2}}));
  add_both_orders(cases, max_case({1, 2, 1, 1}, 1, {}));
  add_both_orders(cases, max_case({2, 1, 3, 7}, {1, 3}, {.stride = 1, .padding = {0, 1}}));

  for (const Shape& shape : {Shape{1, 131, 4, 5}, Shape{1, 2, 6, 300}}) {
    for (const OpCase& op : {max_case(shape, 2, {}), max_case(shape, 3, {.stride = 1, .padding = 1})}) {
      cases.add(op, kValues);
      cases.add(in_channels_last(op), kValues);
    }
  }
  for (const OpCase& op :
       {max_case({3, 32, 24, 24}, 2, {}), max_case({3, 33, 25, 23}, 3, {.stride = 2, .padding = 1})}) {
    cases.add(op, kThreads);
    cases.add(in_channels_last(op), kThreads);
  }

  add_both_orders(cases, avg_case({2, 3, 4, 6}, 2, {}));
  add_both_orders(cases, avg_case({1, 2, 5, 7}, {3, 2}, {.stride = Size2d{2, 1}, .padding = {1, 0}}));
  add_both_orders(cases,
                  avg_case({1, 2, 5, 7}, {3, 2}, {.stride = Size2d{2, 3}, .padding = 1, .count_include_pad = false}));
  add_both_orders(cases, avg_case({1, 2, 7, 8}, 3, {.stride = 2, .padding = 1, .ceil_mode = true}));
  add_both_orders(
      cases, avg_case({1, 1, 6, 7}, 2, {.stride = 3, .padding = 1, .ceil_mode = true, .count_include_pad = false}));

  {
    for (const Shape& shape : {Shape{1, 131, 4, 5}, Shape{1, 2, 3, 77}}) {
      const OpCase op = avg_case(shape, {3, 4}, {.stride = 1, .padding = {1, 2}});
      cases.add(op, kValues);
      cases.add(in_channels_last(op), kValues);
    }
    const OpCase op = avg_case({3, 33, 25, 23}, 3, {.stride = 2, .padding = 1});
    cases.add(op, kThreads);
    cases.add(in_channels_last(op), kThreads);
  }

  add_both_orders(cases, adaptive_case({2, 3, 4, 4}, 1));
  add_both_orders(cases, adaptive_case({1, 2, 7, 5}, {3, 4}));
  add_both_orders(cases, adaptive_case({1, 3, 3, 2}, {5, 3}));
  add_both_orders(cases, adaptive_case({1, 1, 1, 33}, {1, 1}));

  {
    for (const OpCase& op : {adaptive_case({1, 131, 4, 3}, 1), adaptive_case({2, 3, 5, 70}, {2, 1})}) {
      cases.add(op, kValues);
      cases.add(in_channels_last(op), kValues);
    }
    // Windows with fewer, as many, and more elements than a warp of a GPU.
    for (const int64_t side : {7, 8, 9, 33}) cases.add(adaptive_case({1, 3, side, side}, 1), kValues);
    cases.add(adaptive_case({1, 2, 40, 1025}, {2, 1}), kValues);
    const OpCase op = adaptive_case({3, 33, 25, 23}, 7);
    cases.add(op, kThreads);
    cases.add(in_channels_last(op), kThreads);
  }

  cases.benchmark(
      "max_pool2d 2",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 2)); });
  cases.benchmark(
      "max_pool2d 2 small",
      [] {
        return TensorList{image({64, 64, 8, 8})};
      },
      [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 2)); });
  cases.benchmark(
      "max_pool2d 2 row-major",
      [] {
        return TensorList{randn({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return max_pool2d(in[0], 2); });
  cases.benchmark(
      "max_pool2d 3 by 2",
      [] {
        return TensorList{image({16, 64, 56, 56})};
      },
      [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 3, {.stride = 2, .padding = 1})); });
  cases.benchmark(
      "avg_pool2d 2",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) { return nhwc(avg_pool2d(nchw(in[0]), 2)); });
  cases.benchmark(
      "adaptive_avg_pool2d",
      [] {
        return TensorList{image({32, 512, 4, 4})};
      },
      [](const TensorList& in) { return nhwc(adaptive_avg_pool2d(nchw(in[0]), 1)); });
}

}  // namespace tandem::testing

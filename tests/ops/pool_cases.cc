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

/// f(the elements of a window inside the image, the number of its positions inside the padded image) for each window;
/// signals have one row.
template <class F>
Dense pool(const Dense& in, bool is_signal, Size2d kernel, Size2d stride, Size2d padding, Size2d dilation,
           bool ceil_mode, F f) {
  Shape shape = in.shape;
  const int64_t width = shape.back(), height = is_signal ? 1 : shape[shape.size() - 2];
  const int64_t rows = windows(height, kernel.height, stride.height, padding.height, dilation.height, ceil_mode);
  const int64_t columns = windows(width, kernel.width, stride.width, padding.width, dilation.width, ceil_mode);
  shape.back() = columns;
  if (!is_signal) shape[shape.size() - 2] = rows;
  Dense out = dense_zeros(shape);
  for (int64_t o = 0; o < out.numel(); ++o) {
    const int64_t column = o % columns, row = o / columns % rows, plane = o / columns / rows;
    std::vector<double> values;
    int64_t positions = 0;
    for (int64_t i = 0; i < kernel.height; ++i) {
      for (int64_t j = 0; j < kernel.width; ++j) {
        const int64_t y = row * stride.height - padding.height + i * dilation.height;
        const int64_t x = column * stride.width - padding.width + j * dilation.width;
        positions += y < height + padding.height && x < width + padding.width;
        if (y >= 0 && y < height && x >= 0 && x < width) values.push_back(in[(plane * height + y) * width + x]);
      }
    }
    out[o] = f(values, positions);
  }
  return out;
}

double largest(const std::vector<double>& v, int64_t = 0) {
  return v.empty() ? -kInf : *std::max_element(v.begin(), v.end());
}

double sum_of(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

OpCase max_case(Shape shape, Size2d kernel, MaxPool2dOptions options) {
  OpCase op;
  op.name = "max_pool2d";
  op.inputs = {{"input", shape}};
  op.run = [=](const std::vector<Tensor>& in) { return max_pool2d(in[0], kernel, options); };
  op.reference = [=](const std::vector<Dense>& in) {
    return pool(in[0], false, kernel, options.stride.value_or(kernel), options.padding, options.dilation,
                options.ceil_mode, largest);
  };
  return op;
}

OpCase max1d_case(Shape shape, int64_t kernel, MaxPool1dOptions options) {
  OpCase op;
  op.name = "max_pool1d";
  op.inputs = {{"input", shape}};
  op.run = [=](const std::vector<Tensor>& in) { return max_pool1d(in[0], kernel, options); };
  op.reference = [=](const std::vector<Dense>& in) {
    return pool(in[0], true, {1, kernel}, {1, options.stride.value_or(kernel)}, {0, options.padding},
                {1, options.dilation}, options.ceil_mode, largest);
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
    return pool(in[0], false, kernel, options.stride.value_or(kernel), options.padding, 1, options.ceil_mode,
                [&](const std::vector<double>& v, int64_t positions) {
                  const int64_t counted = options.count_include_pad ? positions : static_cast<int64_t>(v.size());
                  return sum_of(v) / static_cast<double>(options.divisor_override.value_or(counted));
                });
  };
  return op;
}

OpCase avg1d_case(Shape shape, int64_t kernel, AvgPool1dOptions options) {
  OpCase op;
  op.name = "avg_pool1d";
  op.inputs = {{"input", shape}};
  op.terms = static_cast<double>(kernel);
  op.run = [=](const std::vector<Tensor>& in) { return avg_pool1d(in[0], kernel, options); };
  op.reference = [=](const std::vector<Dense>& in) {
    return pool(in[0], true, {1, kernel}, {1, options.stride.value_or(kernel)}, {0, options.padding}, 1,
                options.ceil_mode, [&](const std::vector<double>& v, int64_t positions) {
                  const int64_t counted = options.count_include_pad ? positions : static_cast<int64_t>(v.size());
                  return sum_of(v) / static_cast<double>(counted);
                });
  };
  return op;
}

/// f(the elements of a window) for each of size.height x size.width windows that cover the image.
template <class F>
Dense adaptive_pool(const Dense& in, bool is_signal, Size2d size, F f) {
  Shape shape = in.shape;
  const int64_t width = shape.back(), height = is_signal ? 1 : shape[shape.size() - 2];
  shape.back() = size.width;
  if (!is_signal) shape[shape.size() - 2] = size.height;
  Dense out = dense_zeros(shape);
  const auto begin = [](int64_t o, int64_t image, int64_t n) {
    return static_cast<int64_t>(std::floor(static_cast<double>(o * image) / static_cast<double>(n)));
  };
  const auto end = [](int64_t o, int64_t image, int64_t n) {
    return static_cast<int64_t>(std::ceil(static_cast<double>((o + 1) * image) / static_cast<double>(n)));
  };
  for (int64_t o = 0; o < out.numel(); ++o) {
    const int64_t column = o % size.width, row = o / size.width % size.height, plane = o / size.width / size.height;
    std::vector<double> values;
    for (int64_t y = begin(row, height, size.height); y < end(row, height, size.height); ++y) {
      for (int64_t x = begin(column, width, size.width); x < end(column, width, size.width); ++x) {
        values.push_back(in[(plane * height + y) * width + x]);
      }
    }
    out[o] = f(values);
  }
  return out;
}

/// A case of an adaptive operation; for signals size.height is 1.
OpCase adaptive_case(const char* name, Shape shape, Size2d size, std::function<Tensor(const Tensor&, Size2d)> run) {
  const std::string text = name;
  const bool is_signal = text.ends_with("1d"), is_max = text.starts_with("adaptive_max");
  OpCase op;
  op.name = name;
  op.inputs = {{"input", shape}};
  op.terms = is_max ? 1 : static_cast<double>(shape.back() * (is_signal ? 1 : shape[shape.size() - 2]));
  op.run = [=](const std::vector<Tensor>& in) { return run(in[0], size); };
  op.reference = [=](const std::vector<Dense>& in) {
    return adaptive_pool(in[0], is_signal, size, [&](const std::vector<double>& v) {
      return is_max ? largest(v) : sum_of(v) / static_cast<double>(v.size());
    });
  };
  return op;
}
OpCase adaptive_case(Shape shape, Size2d size) {
  return adaptive_case("adaptive_avg_pool2d", shape, size,
                       [](const Tensor& x, Size2d s) { return adaptive_avg_pool2d(x, s); });
}
OpCase adaptive_max_case(Shape shape, Size2d size) {
  return adaptive_case("adaptive_max_pool2d", shape, size,
                       [](const Tensor& x, Size2d s) { return adaptive_max_pool2d(x, s); });
}

/// The same case under another name, by the function that also returns indices.
OpCase with_indices(OpCase op, std::function<ValuesIndices(const Tensor&)> run) {
  op.name += "_with_indices";
  op.run = [=](const std::vector<Tensor>& in) -> Results {
    const ValuesIndices result = run(in[0]);
    return Tensors{result.values, result.indices};
  };
  return op;
}

/// Indices for images of `count` elements: 0, 2, 4, ..., and 1, 3, 5, ... in every second image.
std::vector<int64_t> spread_indices(int64_t planes, int64_t count) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < planes * count; ++i) places.push_back(2 * (i % count) + i / count % 2);
  return places;
}

/// Unpooling of images of `count` elements with spread_indices.
OpCase unpool_case(const char* name, Shape shape, Shape result, int64_t count,
                   std::function<Tensor(const Tensor&, const Tensor&)> run) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", shape}};
  const int64_t planes = num_elements(shape) / count;
  op.run = [=](const std::vector<Tensor>& in) {
    return run(in[0], from_vector<int64_t>(spread_indices(planes, count), shape, {kInt64, in[0].device()}));
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = dense_zeros(result);
    const std::vector<int64_t> places = spread_indices(planes, count);
    for (int64_t i = 0; i < in[0].numel(); ++i) {
      out[i / count * (out.numel() / planes) + places[static_cast<size_t>(i)]] = in[0][i];
    }
    return out;
  };
  op.names_operands = false;
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

/// The declarations.
void add_operations(OpCases& cases) {
  const std::vector<Input> image_input = {{"input", {2, 16, 9, 9}}}, signal_input = {{"input", {2, 3, 17}}};
  const std::vector<Input> unpool_inputs = {{"input", {2, 3, 5}}, integers("indices", {2, 3, 5}, 10)};
  const std::vector<Input> unpool2d_inputs = {{"input", {2, 3, 2, 5}}, integers("indices", {2, 3, 2, 5}, 40)};
  cases.op("Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options = {})",
           std::nullopt, {{.inputs = image_input, .run = [](const Tensors& x) {
                             return max_pool2d(x[0], 3, {.stride = 2, .padding = 1});
                           }}});
  cases.op("Tensor max_pool1d(const Tensor& input, int64_t kernel_size, const MaxPool1dOptions& options = {})",
           std::nullopt, {{.inputs = signal_input, .run = [](const Tensors& x) {
                             return max_pool1d(x[0], 3, {.stride = 2, .padding = 1});
                           }}});
  cases.op(
      "ValuesIndices max_pool2d_with_indices(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options "
      "= {})",
      std::nullopt, {{.inputs = image_input, .run = [](const Tensors& x) -> Results {
                        const ValuesIndices result = max_pool2d_with_indices(x[0], 3, {.stride = 2, .padding = 1});
                        return Tensors{result.values, result.indices};
                      }}});
  cases.op(
      "ValuesIndices max_pool1d_with_indices(const Tensor& input, int64_t kernel_size, const MaxPool1dOptions& options "
      "= {})",
      std::nullopt, {{.inputs = signal_input, .run = [](const Tensors& x) -> Results {
                        const ValuesIndices result = max_pool1d_with_indices(x[0], 3, {.stride = 2, .padding = 1});
                        return Tensors{result.values, result.indices};
                      }}});
  cases.op("Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options = {})",
           std::nullopt,
           {{.inputs = image_input, .run = [](const Tensors& x) { return avg_pool2d(x[0], 3, {.padding = 1}); }}});
  cases.op("Tensor avg_pool1d(const Tensor& input, int64_t kernel_size, const AvgPool1dOptions& options = {})",
           std::nullopt,
           {{.inputs = signal_input, .run = [](const Tensors& x) { return avg_pool1d(x[0], 3, {.padding = 1}); }}});
  cases.op("Tensor adaptive_avg_pool2d(const Tensor& input, OutputSize2d output_size)", std::nullopt,
           {{.inputs = image_input, .run = [](const Tensors& x) { return adaptive_avg_pool2d(x[0], 3); }}});
  cases.op("Tensor adaptive_avg_pool1d(const Tensor& input, int64_t output_size)", std::nullopt,
           {{.inputs = signal_input, .run = [](const Tensors& x) { return adaptive_avg_pool1d(x[0], 3); }}});
  cases.op("Tensor adaptive_max_pool2d(const Tensor& input, OutputSize2d output_size)", std::nullopt,
           {{.inputs = image_input, .run = [](const Tensors& x) {
               return adaptive_max_pool2d(x[0], {4, 3});
             }}});
  cases.op("Tensor adaptive_max_pool1d(const Tensor& input, int64_t output_size)", std::nullopt,
           {{.inputs = signal_input, .run = [](const Tensors& x) { return adaptive_max_pool1d(x[0], 3); }}});
  cases.op("ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& input, OutputSize2d output_size)",
           std::nullopt, {{.inputs = image_input, .run = [](const Tensors& x) -> Results {
                             const ValuesIndices result = adaptive_max_pool2d_with_indices(x[0], {4, 3});
                             return Tensors{result.values, result.indices};
                           }}});
  cases.op("ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& input, int64_t output_size)", std::nullopt,
           {{.inputs = signal_input, .run = [](const Tensors& x) -> Results {
               const ValuesIndices result = adaptive_max_pool1d_with_indices(x[0], 3);
               return Tensors{result.values, result.indices};
             }}});
  cases.op(
      "Tensor max_unpool2d(const Tensor& input, const Tensor& indices, Size2d kernel_size, const MaxUnpool2dOptions& "
      "options = {})",
      std::nullopt, {{.inputs = unpool2d_inputs, .run = [](const Tensors& x) { return max_unpool2d(x[0], x[1], 2); }}});
  cases.op(
      "Tensor max_unpool1d(const Tensor& input, const Tensor& indices, int64_t kernel_size, const MaxUnpool1dOptions& "
      "options = {})",
      std::nullopt, {{.inputs = unpool_inputs, .run = [](const Tensors& x) { return max_unpool1d(x[0], x[1], 2); }}});
}

void add_benchmarks(OpCases& cases);

/// 1-d pooling, indices, inputs without N, adaptive maxima and unpooling.
void add_forms(OpCases& cases) {
  add_both_orders(cases, max_case({1, 2, 1, 7}, {1, 2}, {}));
  cases.add(max_case({3, 5, 7}, {3, 2}, {.stride = Size2d{2, 1}, .padding = {1, 0}}));
  cases.add(avg_case({2, 5, 7}, {3, 2}, {.stride = Size2d{2, 3}, .padding = 1, .ceil_mode = true}));
  cases.add(avg_case({2, 2, 5, 4}, {3, 2}, {.padding = 1, .divisor_override = -5}));
  cases.add(adaptive_case({3, 7, 5}, {3, 4}));

  cases.add(max1d_case({2, 3, 9}, 3, {.stride = 2, .padding = 1, .dilation = 2}));
  cases.add(max1d_case({3, 8}, 3, {.ceil_mode = true}));
  cases.add(max1d_case({2, 1, 5}, 2, {.stride = 1}));
  cases.add(max1d_case({5, 33, 257}, 3, {.stride = 2}), kThreads);
  cases.add(avg1d_case({2, 3, 9}, 3, {.stride = 2, .padding = 1}));
  cases.add(avg1d_case({3, 8}, 3, {.padding = 1, .ceil_mode = true, .count_include_pad = false}));
  cases.add(avg1d_case({5, 33, 257}, 3, {.stride = 2}), kThreads);
  const auto adaptive1d_case = [](Shape shape, int64_t size) {
    return adaptive_case("adaptive_avg_pool1d", shape, {1, size},
                         [](const Tensor& x, Size2d s) { return adaptive_avg_pool1d(x, s.width); });
  };
  cases.add(adaptive1d_case({2, 3, 9}, 4));
  cases.add(adaptive1d_case({3, 5}, 7));
  cases.add(adaptive1d_case({5, 33, 257}, 100), kThreads);

  const auto pool2d = [](Size2d kernel, MaxPool2dOptions options) {
    return [=](const Tensor& x) { return max_pool2d_with_indices(x, kernel, options); };
  };
  const MaxPool2dOptions overlapping = {.stride = Size2d{2, 1}, .padding = {1, 0}};
  add_both_orders(cases, with_indices(max_case({2, 3, 5, 7}, {3, 2}, overlapping), pool2d({3, 2}, overlapping)));
  cases.add(with_indices(max_case({2, 5, 7}, 2, {}), pool2d(2, {})));
  const auto pool1d = [](const Tensor& x) { return max_pool1d_with_indices(x, 3, {.padding = 1}); };
  cases.add(with_indices(max1d_case({2, 3, 9}, 3, {.padding = 1}), pool1d));
  cases.add(with_indices(max1d_case({3, 8}, 3, {.padding = 1}), pool1d));

  const auto adaptive1d_max_case = [](Shape shape, int64_t size) {
    return adaptive_case("adaptive_max_pool1d", shape, {1, size},
                         [](const Tensor& x, Size2d s) { return adaptive_max_pool1d(x, s.width); });
  };
  const auto adaptive2d = [](Size2d size) {
    return [=](const Tensor& x) { return adaptive_max_pool2d_with_indices(x, size); };
  };
  for (const Size2d size : {Size2d{1, 1}, Size2d{3, 2}, Size2d{4, 5}, Size2d{7, 3}}) {
    add_both_orders(cases, adaptive_max_case({2, 3, 6, 4}, size));
    cases.add(with_indices(adaptive_max_case({2, 5, 7}, size), adaptive2d(size)));
  }
  cases.add(adaptive_max_case({3, 33, 25, 23}, {7, 5}), kThreads);
  for (const int64_t size : {1, 3, 4, 11}) {
    cases.add(adaptive1d_max_case({2, 3, 9}, size));
    cases.add(with_indices(adaptive1d_max_case({3, 8}, size),
                           [size](const Tensor& x) { return adaptive_max_pool1d_with_indices(x, size); }));
  }

  const unsigned checks = kValues | kGradients | kThreads;
  cases.add(unpool_case("max_unpool2d", {2, 3, 2, 4}, {2, 3, 4, 4}, 8,
                        [](const Tensor& x, const Tensor& indices) {
                          return max_unpool2d(x, indices, {2, 1});
                        }),
            checks);
  const MaxUnpool2dOptions options2d = {.stride = 2, .padding = {1, 0}, .output_size = Size2d{3, 7}};
  cases.add(unpool_case("max_unpool2d", {3, 2, 3}, {3, 3, 7}, 6,
                        [=](const Tensor& x, const Tensor& indices) {
                          return max_unpool2d(x, indices, {2, 3}, options2d);
                        }),
            checks);
  cases.add(unpool_case("max_unpool1d", {2, 3, 5}, {2, 3, 10}, 5,
                        [](const Tensor& x, const Tensor& indices) { return max_unpool1d(x, indices, 2); }),
            checks);
  const MaxUnpool1dOptions options1d = {.stride = 2, .padding = 1, .output_size = 8};
  cases.add(unpool_case("max_unpool1d", {3, 4}, {3, 8}, 4,
                        [=](const Tensor& x, const Tensor& indices) { return max_unpool1d(x, indices, 3, options1d); }),
            checks);
  for (const char* name : {"max_unpool1d", "max_unpool2d"}) {
    for (const Operation& operation : cases.operations) {
      if (operation.name() != name) continue;
      OpCase op = operation.cases[0];
      op.name = name;
      cases.add(op, kErrors);
    }
  }
}

}  // namespace

TANDEM_OP_CASES(pool) {
  add_operations(cases);
  add_forms(cases);
  add_benchmarks(cases);

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

  // Channels that GPUs process in packs.
  add_both_orders(cases, max_case({2, 16, 5, 7}, {2, 3}, {.stride = 2, .padding = 1, .dilation = 2}));
  add_both_orders(cases, avg_case({2, 16, 5, 7}, 3, {.stride = 2, .padding = 1, .count_include_pad = false}));
  add_both_orders(cases, adaptive_case({2, 16, 4, 5}, {3, 2}));

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
}

namespace {

void add_benchmarks(OpCases& cases) {
  const auto images = [](const Shape& shape) { return [=] { return TensorList{image(shape)}; }; };
  cases.benchmark("max_pool2d 2", images({64, 32, 24, 24}),
                  [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 2)); });
  cases.benchmark("max_pool2d 2 small", images({64, 64, 8, 8}),
                  [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 2)); });
  cases.benchmark("max_pool2d 2 row-major", {{64, 32, 24, 24}},
                  [](const TensorList& in) { return max_pool2d(in[0], 2); });
  cases.benchmark("max_pool2d 3 by 2", images({16, 64, 56, 56}),
                  [](const TensorList& in) { return nhwc(max_pool2d(nchw(in[0]), 3, {.stride = 2, .padding = 1})); });
  cases.benchmark("avg_pool2d 2", images({64, 32, 24, 24}),
                  [](const TensorList& in) { return nhwc(avg_pool2d(nchw(in[0]), 2)); });
  cases.benchmark("adaptive_avg_pool2d", images({32, 512, 4, 4}),
                  [](const TensorList& in) { return nhwc(adaptive_avg_pool2d(nchw(in[0]), 1)); });
  const auto signal = [] { return TensorList{randn({64, 32, 576})}; };
  cases.benchmark("max_pool1d", signal, [](const TensorList& in) { return max_pool1d(in[0], 2); });
  cases.benchmark("max_pool1d_with_indices", signal,
                  [](const TensorList& in) { return max_pool1d_with_indices(in[0], 2).values; });
  cases.benchmark("max_pool2d_with_indices", images({64, 32, 24, 24}),
                  [](const TensorList& in) { return nhwc(max_pool2d_with_indices(nchw(in[0]), 2).values); });
  cases.benchmark("avg_pool1d", signal, [](const TensorList& in) { return avg_pool1d(in[0], 2); });
  cases.benchmark("adaptive_avg_pool1d", signal, [](const TensorList& in) { return adaptive_avg_pool1d(in[0], 9); });
  cases.benchmark("adaptive_max_pool1d", signal, [](const TensorList& in) { return adaptive_max_pool1d(in[0], 9); });
  cases.benchmark("adaptive_max_pool1d_with_indices", signal,
                  [](const TensorList& in) { return adaptive_max_pool1d_with_indices(in[0], 7).values; });
  cases.benchmark("adaptive_max_pool2d", images({64, 32, 24, 24}),
                  [](const TensorList& in) { return adaptive_max_pool2d(nchw(in[0]), 6); });
  cases.benchmark("adaptive_max_pool2d_with_indices", images({64, 32, 24, 24}),
                  [](const TensorList& in) { return adaptive_max_pool2d_with_indices(nchw(in[0]), 7).values; });
  cases.benchmark("max_unpool1d", {{64, 32, 288}}, [](const TensorList& in) {
    return max_unpool1d(in[0], mul(arange(0, 288, 1, in[0].device()), 2).expand({64, 32, 288}), 2);
  });
  cases.benchmark("max_unpool2d", {{64, 32, 12, 12}}, [](const TensorList& in) {
    return max_unpool2d(in[0], mul(arange(0, 144, 1, in[0].device()), 4).view({12, 12}).expand({64, 32, 12, 12}), 2);
  });
}

}  // namespace

}  // namespace tandem::testing

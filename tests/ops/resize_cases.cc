#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

/// The operation on a channels-last copy of the input.
OpCase in_channels_last(OpCase op) {
  op.run = [run = op.run](const Tensors& in) {
    return run({in[0].permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2})});
  };
  op.names_operands = false;
  return op;
}

/// An image with [N, H, W, C] in memory, as returned by convolutions.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}); }
Tensor nchw(const Tensor& image) { return image.permute({0, 3, 1, 2}); }
Tensor nhwc(const Tensor& image) { return image.permute({0, 2, 3, 1}); }

OpCase pad_case(const Shape& shape, const Shape& padding, PadMode mode, double value = 0) {
  OpCase op;
  op.name = "pad";
  op.inputs = {{"input", shape}};
  op.run = [=](const Tensors& in) { return pad(in[0], padding, mode, value); };
  op.reference = in_float64(op);
  op.terms = mode == PadMode::kConstant ? 1 : 9;  // an element of the input may repeat in the result
  return op;
}

const FoldOptions kFoldOptions = {.dilation = {2, 1}, .padding = {1, 2}, .stride = {1, 3}};

/// unfold of images [2, 2, 5, 6] by windows of 2 x 3, or fold of the results, with kFoldOptions.
OpCase fold_case(bool is_fold) {
  OpCase op;
  op.name = is_fold ? "fold" : "unfold";
  op.inputs = {{"input", is_fold ? Shape{2, 12, 15} : Shape{2, 2, 5, 6}}};
  op.run = [=](const Tensors& x) {
    return is_fold ? fold(x[0], {5, 6}, {2, 3}, kFoldOptions) : unfold(x[0], {2, 3}, kFoldOptions);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = dense_zeros(is_fold ? Shape{2, 2, 5, 6} : Shape{2, 12, 15});
    for (int64_t i = 0; i < 2 * 12 * 15; ++i) {
      const int64_t window = i % 15, tap = i / 15 % 6, image = i / (15 * 6);
      const int64_t row = window / 3 + tap / 3 * 2 - 1, column = window % 3 * 3 + tap % 3 - 2;
      if (row < 0 || row >= 5 || column < 0 || column >= 6) continue;
      const int64_t pixel = (image * 5 + row) * 6 + column;
      is_fold ? out[pixel] += in[0][i] : out[i] = in[0][pixel];
    }
    return out;
  };
  op.terms = is_fold ? 6 : 1;
  return op;
}

void add_pad_cases(OpCases& cases) {
  cases.op("Tensor unfold(const Tensor& input, Size2d kernel_size, FoldOptions options = {})", std::nullopt,
           {fold_case(false), {.inputs = {{"input", {2, 5, 6}}}, .run = [](const Tensors& x) {
                                 return unfold(x[0], 2, {.stride = 2});
                               }}});
  cases.op("Tensor fold(const Tensor& input, Size2d output_size, Size2d kernel_size, FoldOptions options = {})",
           std::nullopt, {fold_case(true), {.inputs = {{"input", {8, 6}}}, .run = [](const Tensors& x) {
                                              return fold(x[0], {5, 6}, 2, {.stride = 2});
                                            }}});
  cases.benchmark(
      "unfold", {{16, 32, 32, 32}}, [](const TensorList& in) { return unfold(in[0], 3, {.padding = 1}); }, {},
      "torch.nn.functional.unfold(a, 3, padding=1)");
  cases.benchmark(
      "fold", {{16, 288, 1024}}, [](const TensorList& in) { return fold(in[0], 32, 3, {.padding = 1}); }, {},
      "torch.nn.functional.fold(a, 32, 3, padding=1)");
  cases.op("Tensor pad(const Tensor& input, const Shape& padding, PadMode mode = PadMode::kConstant, Scalar value = 0)",
           std::nullopt,
           {{.inputs = {{"input", {2, 3, 7}}},
             .run =
                 [](const Tensors& x) {
                   return pad(x[0], {1, 2});
                 }},
            {.inputs = {{"input", {2, 3, 7}}}, .run = [](const Tensors& x) {
               return pad(x[0], {1, 2}, PadMode::kReflect);
             }}});
  cases.add(pad_case({3, 7}, {1, 2}, PadMode::kConstant, 1.5));
  cases.add(pad_case({2, 3, 4}, {0, 1, 2, 0, 1, 1}, PadMode::kConstant));
  cases.add(pad_case({2, 3, 5}, {-1, 2, 1, -2}, PadMode::kConstant, -1));
  cases.add(pad_case({3, 7}, {-1, -2}, PadMode::kConstant));
  cases.add(pad_case({5}, {}, PadMode::kConstant));
  cases.add(pad_case({0, 3}, {1, 0, 1, 1}, PadMode::kConstant, 2));
  cases.add(pad_case({}, {}, PadMode::kConstant));
  for (const PadMode mode : {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
    cases.add(pad_case({2, 5}, {4, 1}, mode));
    cases.add(pad_case({2, 3, 4}, {1, 3}, mode));
    cases.add(pad_case({2, 4, 3}, {2, 1, 0, 3}, mode));
    cases.add(pad_case({1, 2, 3, 4}, {-1, 2, 1, -2}, mode));
    cases.add(pad_case({1, 2, 3, 4}, {0, 0, 0, 0}, mode));
    cases.add(pad_case({2, 2, 3, 2}, {1, 1, 2, 0, 1, 1}, mode));
    cases.add(pad_case({1, 1, 2, 2, 3}, {1, 2, 1, 0, 0, 1}, mode));
    cases.add(in_channels_last(pad_case({2, 3, 4, 3}, {1, 2, 3, 0}, mode)), kValues | kGradients);
    cases.add(in_channels_last(pad_case({1, 3, 2, 3}, {1, 2, 1, 0, 2, 1}, mode)), kValues | kGradients);
  }
  cases.add(pad_case({1, 2, 3, 2}, {5, 4, 3, 7}, PadMode::kReplicate));
  cases.add(in_channels_last(pad_case({2, 3, 4, 3}, {1, 2, 0, 1}, PadMode::kConstant, 3)), kValues | kGradients);
  cases.add(pad_case({3, 33, 25, 23}, {1, 2, 3, 4}, PadMode::kConstant), kThreads);
  cases.add(pad_case({3, 33, 25, 23}, {1, 2, 3, 4}, PadMode::kReflect), kThreads);

  cases.benchmark(
      "pad", {{64, 32, 24, 24}},
      [](const TensorList& in) {
        return pad(in[0], {1, 1, 1, 1});
      },
      {}, "torch.nn.functional.pad(a, (1, 1, 1, 1))");
  cases.benchmark(
      "pad channels-last",
      [] {
        return TensorList{image({64, 32, 24, 24})};
      },
      [](const TensorList& in) {
        return nhwc(pad(nchw(in[0]), {1, 1, 1, 1}));
      });
  cases.benchmark(
      "pad reflect", {{64, 32, 24, 24}},
      [](const TensorList& in) {
        return pad(in[0], {1, 1, 1, 1}, PadMode::kReflect);
      },
      {}, "torch.nn.functional.pad(a, (1, 1, 1, 1), 'reflect')");
}

struct Neighbour {
  int64_t index;
  double weight;
};

/// The neighbours of element i of an axis; scale is the ratio of coordinates.
std::vector<Neighbour> neighbours(int64_t i, int64_t in, double scale, const InterpolateOptions& options) {
  const double at = static_cast<double>(i), last = static_cast<double>(in - 1);
  const auto index = [&](double position) { return static_cast<int64_t>(std::clamp(std::floor(position), 0.0, last)); };
  const double position = options.align_corners ? at * scale : (at + 0.5) * scale - 0.5;
  switch (options.mode) {
    case InterpolateMode::kNearest: return {{index(at * scale), 1}};
    case InterpolateMode::kNearestExact: return {{index((at + 0.5) * scale), 1}};
    case InterpolateMode::kBicubic: {
      std::vector<Neighbour> result;
      for (int k = -1; k <= 2; ++k) {
        const double x = std::abs(position - std::floor(position) - k), a = -0.75;
        const double weight =
            x <= 1 ? (a + 2) * x * x * x - (a + 3) * x * x + 1 : a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a;
        result.push_back({index(std::floor(position) + k), weight});
      }
      return result;
    }
    default: {
      const double inside = std::clamp(position, 0.0, last), t = inside - std::floor(inside);
      return {{index(inside), 1 - t}, {index(inside + 1), t}};
    }
  }
}

OpCase interpolate_case(const Shape& shape, const InterpolateOptions& options) {
  OpCase op;
  op.name = "interpolate";
  op.inputs = {{"input", shape}};
  op.run = [=](const Tensors& in) { return interpolate(in[0], options); };
  op.reference = [=](const std::vector<Dense>& in) {
    Shape result = shape;
    std::vector<double> scales = {1, 1};  // of rows and columns; signals have one row
    const size_t axes = shape.size() - 2;
    for (size_t i = 0; i < axes; ++i) {
      const double size = static_cast<double>(shape[i + 2]);
      const bool has_size = !options.size.empty();
      const double factor = has_size ? 0 : options.scale_factor[options.scale_factor.size() == 1 ? 0 : i];
      result[i + 2] =
          has_size ? options.size[options.size.size() == 1 ? 0 : i] : static_cast<int64_t>(std::floor(size * factor));
      const double out = static_cast<double>(result[i + 2]);
      double& scale = scales[i + 2 - axes];
      scale = has_size || options.recompute_scale_factor ? size / out : 1 / factor;
      if (options.align_corners) scale = out > 1 ? (size - 1) / (out - 1) : 0;
    }
    const int64_t height = axes == 1 ? 1 : shape[2], width = shape.back();
    const int64_t rows = axes == 1 ? 1 : result[2], columns = result.back();
    Dense out = dense_zeros(result);
    for (int64_t o = 0; o < out.numel(); ++o) {
      const int64_t column = o % columns, row = o / columns % rows, plane = o / columns / rows;
      for (const Neighbour& y : neighbours(row, height, scales[0], options)) {
        for (const Neighbour& x : neighbours(column, width, scales[1], options)) {
          out[o] += y.weight * x.weight * in[0][(plane * height + y.index) * width + x.index];
        }
      }
    }
    return out;
  };
  op.tolerance = 8;  // weights have the rounding errors of coordinates, which are larger than 1
  op.terms = 16;
  return op;
}

/// The values of half types, whose results are rounded once.
OpCase in_half_types(OpCase op) {
  op.dtypes = {kFloat16, kBFloat16};
  op.tolerance = 1;
  op.terms = 1;
  return op;
}

void add_interpolate_cases(OpCases& cases) {
  cases.op("Tensor interpolate(const Tensor& input, const InterpolateOptions& options)", std::nullopt,
           {{.inputs = {{"input", {2, 3, 4, 5}}}, .run = [](const Tensors& x) {
               return interpolate(x[0], {.scale_factor = {2}, .mode = InterpolateMode::kBilinear});
             }}});
  using Mode = InterpolateMode;
  const auto both_orders = [&](const Shape& shape, const InterpolateOptions& options) {
    const OpCase op = interpolate_case(shape, options);
    cases.add(op);
    cases.add(in_half_types(op), kValues);
    cases.add(in_channels_last(op), kValues | kGradients);
    cases.add(in_channels_last(in_half_types(op)), kValues);
  };
  for (const Mode mode : {Mode::kNearest, Mode::kNearestExact, Mode::kLinear}) {
    for (const int64_t size : {1, 3, 5, 8}) cases.add(interpolate_case({2, 3, 5}, {.size = {size}, .mode = mode}));
    cases.add(interpolate_case({1, 2, 4}, {.scale_factor = {1.7}, .mode = mode}));
    cases.add(interpolate_case({1, 2, 4}, {.scale_factor = {0.6}, .mode = mode, .recompute_scale_factor = true}));
    cases.add(interpolate_case({1, 1, 1}, {.scale_factor = {3}, .mode = mode}));
  }
  for (const Mode mode : {Mode::kNearest, Mode::kNearestExact, Mode::kBilinear, Mode::kBicubic}) {
    both_orders({2, 3, 4, 3}, {.scale_factor = {2}, .mode = mode});
    both_orders({1, 2, 5, 7}, {.size = {3, 4}, .mode = mode});
    both_orders({1, 2, 3, 5}, {.size = {7, 2}, .mode = mode});
    both_orders({1, 2, 4, 5}, {.scale_factor = {1.7, 0.6}, .mode = mode});
    both_orders({2, 1, 1, 3}, {.size = {2, 1}, .mode = mode});
    cases.add(
        interpolate_case({1, 2, 4, 5}, {.scale_factor = {0.6, 1.7}, .mode = mode, .recompute_scale_factor = true}));
    // Several columns of tiles and rows of blocks of the CPU kernel, and vectors of channels.
    cases.add(interpolate_case({1, 1, 40, 300}, {.scale_factor = {2}, .mode = mode}), kValues);
    cases.add(interpolate_case({1, 1, 70, 800}, {.size = {28, 320}, .mode = mode}), kValues);
    cases.add(in_channels_last(interpolate_case({1, 35, 6, 5}, {.size = {4, 9}, .mode = mode})), kValues);
    for (const double factor : {2.0, 0.5}) {
      const OpCase large = interpolate_case({3, 33, 24, 22}, {.scale_factor = {factor}, .mode = mode});
      cases.add(large, kThreads);
      cases.add(in_channels_last(large), kThreads);
    }
  }
  for (const Mode mode : {Mode::kBilinear, Mode::kBicubic}) {
    both_orders({2, 2, 4, 3}, {.scale_factor = {2}, .mode = mode, .align_corners = true});
    both_orders({1, 2, 5, 7}, {.size = {3, 1}, .mode = mode, .align_corners = true});
  }
  cases.add(interpolate_case({2, 3, 5}, {.size = {9}, .mode = Mode::kLinear, .align_corners = true}));

  const auto row = [&](const char* name, bool channels_last, const InterpolateOptions& options, const char* torch) {
    cases.benchmark(
        name,
        [=] {
          return TensorList{channels_last ? image({4, 64, 64, 64}) : randn({4, 64, 64, 64})};
        },
        [=](const TensorList& in) {
          return channels_last ? nhwc(interpolate(nchw(in[0]), options)) : interpolate(in[0], options);
        },
        {}, torch);
  };
  const InterpolateOptions nearest = {.scale_factor = {2}};
  const InterpolateOptions bilinear = {.scale_factor = {2}, .mode = Mode::kBilinear};
  const InterpolateOptions bicubic = {.scale_factor = {2}, .mode = Mode::kBicubic};
  row("interpolate nearest", false, nearest, "torch.nn.functional.interpolate(a, scale_factor=2)");
  row("interpolate bilinear", false, bilinear, "torch.nn.functional.interpolate(a, scale_factor=2, mode='bilinear')");
  row("interpolate bicubic", false, bicubic, "torch.nn.functional.interpolate(a, scale_factor=2, mode='bicubic')");
  row("interpolate nearest channels-last", true, nearest, "");
  row("interpolate bilinear channels-last", true, bilinear, "");
}

void add_shuffle_cases(OpCases& cases) {
  const std::vector<Input> channels = {{"input", {2, 12, 3, 2}}}, pixels = {{"input", {2, 3, 4, 6}}};
  cases.op("Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor)", std::nullopt,
           {{.inputs = channels, .run = [](const Tensors& x) { return pixel_shuffle(x[0], 2); }}});
  cases.op("Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor)", std::nullopt,
           {{.inputs = pixels, .run = [](const Tensors& x) { return pixel_unshuffle(x[0], 2); }}});
  cases.op("Tensor channel_shuffle(const Tensor& input, int64_t groups)", std::nullopt,
           {{.inputs = channels, .run = [](const Tensors& x) { return channel_shuffle(x[0], 3); }}});

  const auto shuffle_case = [](const Shape& shape, int64_t r) {
    return recorded_case("pixel_shuffle", shape, [r](const Tensor& x) { return pixel_shuffle(x, r); });
  };
  const auto unshuffle_case = [](const Shape& shape, int64_t r) {
    return recorded_case("pixel_unshuffle", shape, [r](const Tensor& x) { return pixel_unshuffle(x, r); });
  };
  const auto channel_case = [](const Shape& shape, int64_t groups) {
    return recorded_case("channel_shuffle", shape, [groups](const Tensor& x) { return channel_shuffle(x, groups); });
  };
  for (const OpCase& op :
       {shuffle_case({2, 8, 3, 2}, 2), shuffle_case({1, 9, 2, 3}, 3), unshuffle_case({2, 2, 4, 6}, 2),
        unshuffle_case({1, 3, 3, 6}, 3), channel_case({2, 6, 3, 2}, 3), channel_case({1, 4, 2, 3}, 2)}) {
    cases.add(op);
    cases.add(in_channels_last(op), kValues | kGradients);
  }
  cases.add(shuffle_case({4, 3, 2}, 2));
  cases.add(shuffle_case({2, 1, 4, 1, 3}, 2));
  cases.add(unshuffle_case({1, 6, 3}, 3));
  cases.add(channel_case({2, 6, 5}, 2));

  cases.benchmark(
      "pixel_shuffle", {{16, 64, 32, 32}}, [](const TensorList& in) { return pixel_shuffle(in[0], 2); }, {},
      "torch.nn.functional.pixel_shuffle(a, 2)");
  cases.benchmark(
      "pixel_unshuffle", {{16, 16, 64, 64}}, [](const TensorList& in) { return pixel_unshuffle(in[0], 2); }, {},
      "torch.nn.functional.pixel_unshuffle(a, 2)");
  cases.benchmark(
      "channel_shuffle", {{16, 64, 32, 32}}, [](const TensorList& in) { return channel_shuffle(in[0], 4); }, {},
      "torch.channel_shuffle(a, 4)");
}

}  // namespace

TANDEM_OP_CASES(resize) {
  add_pad_cases(cases);
  add_interpolate_cases(cases);
  add_shuffle_cases(cases);
}

}  // namespace tandem::testing

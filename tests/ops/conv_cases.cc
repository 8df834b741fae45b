#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// conv2d in float64, element by element.
Dense reference(const Dense& input, const Dense& weight, const Dense* bias, const Conv2dOptions& o) {
  const int64_t n = input.shape[0], channels = input.shape[1], h = input.shape[2], w = input.shape[3];
  const int64_t filters = weight.shape[0], depth = weight.shape[1], kh = weight.shape[2], kw = weight.shape[3];
  const bool same = o.padding.is_same();
  const Size2d padding =
      same ? Size2d(o.dilation.height * (kh - 1) / 2, o.dilation.width * (kw - 1) / 2) : o.padding.size();
  const int64_t oh = same ? h : (h + 2 * padding.height - o.dilation.height * (kh - 1) - 1) / o.stride.height + 1;
  const int64_t ow = same ? w : (w + 2 * padding.width - o.dilation.width * (kw - 1) - 1) / o.stride.width + 1;
  Dense out = dense_zeros({n, filters, oh, ow});
  for (int64_t at = 0; at < out.numel(); ++at) {
    const int64_t x = at % ow, y = at / ow % oh, filter = at / (ow * oh) % filters, image = at / (ow * oh * filters);
    double sum = bias != nullptr ? (*bias)[filter] : 0.0;
    for (int64_t c = 0; c < depth; ++c) {
      const int64_t channel = filter / (filters / o.groups) * depth + c;
      for (int64_t i = 0; i < kh; ++i) {
        for (int64_t j = 0; j < kw; ++j) {
          const int64_t from_y = y * o.stride.height + i * o.dilation.height - padding.height;
          const int64_t from_x = x * o.stride.width + j * o.dilation.width - padding.width;
          if (from_y < 0 || from_y >= h || from_x < 0 || from_x >= w) continue;
          sum += input[((image * channels + channel) * h + from_y) * w + from_x] *
                 weight[((filter * depth + c) * kh + i) * kw + j];
        }
      }
    }
    out[at] = sum;
  }
  return out;
}

Dense relu_reference(const Dense& input, const Dense& weight, const Dense* bias, const Conv2dOptions& o) {
  Dense out = reference(input, weight, bias, o);
  for (double& value : out.values) value = std::max(value, 0.0);
  return out;
}

/// conv_transpose2d in float64: adds the products of each input to the results.
Dense transposed_reference(const Dense& input, const Dense& weight, const Dense* bias,
                           const ConvTranspose2dOptions& o) {
  const int64_t n = input.shape[0], channels = input.shape[1], h = input.shape[2], w = input.shape[3];
  const int64_t depth = weight.shape[1], kh = weight.shape[2], kw = weight.shape[3], results = depth * o.groups;
  const int64_t oh =
      (h - 1) * o.stride.height - 2 * o.padding.height + o.dilation.height * (kh - 1) + 1 + o.output_padding.height;
  const int64_t ow =
      (w - 1) * o.stride.width - 2 * o.padding.width + o.dilation.width * (kw - 1) + 1 + o.output_padding.width;
  Dense out = dense_zeros({n, results, oh, ow});
  for (int64_t at = 0; bias != nullptr && at < out.numel(); ++at) out[at] = (*bias)[at / (oh * ow) % results];
  for (int64_t at = 0; at < input.numel(); ++at) {
    const int64_t x = at % w, y = at / w % h, channel = at / (w * h) % channels, image = at / (w * h * channels);
    for (int64_t tap = 0; tap < depth * kh * kw; ++tap) {
      const int64_t result = channel / (channels / o.groups) * depth + tap / (kh * kw);
      const int64_t to_y = y * o.stride.height + tap / kw % kh * o.dilation.height - o.padding.height;
      const int64_t to_x = x * o.stride.width + tap % kw * o.dilation.width - o.padding.width;
      if (to_y < 0 || to_y >= oh || to_x < 0 || to_x >= ow) continue;
      out[((image * results + result) * oh + to_y) * ow + to_x] += input[at] * weight[channel * depth * kh * kw + tap];
    }
  }
  return out;
}

/// The options of the convolution of images of height 1.
Conv2dOptions of_images(const Conv1dOptions& o) {
  return {.stride = {1, o.stride},
          .padding = o.padding.is_same() ? ConvPadding(kSame) : ConvPadding(0, o.padding.size().width),
          .dilation = {1, o.dilation},
          .groups = o.groups};
}
ConvTranspose2dOptions of_images(const ConvTranspose1dOptions& o) {
  return {.stride = {1, o.stride},
          .padding = {0, o.padding},
          .output_padding = {0, o.output_padding},
          .groups = o.groups,
          .dilation = {1, o.dilation}};
}

/// `reference` of sequences, as images of height 1.
template <auto reference, class Options>
Dense of_sequences(const Dense& input, const Dense& weight, const Dense* bias, const Options& o) {
  const auto image = [](Dense sequence) {
    sequence.shape.insert(2, 1);
    return sequence;
  };
  Dense out = reference(image(input), image(weight), bias, of_images(o));
  out.shape.erase(2);
  return out;
}

/// A case of a public function and its reference.
template <class Options>
OpCase conv_case(const char* name, Tensor (*conv)(const Tensor&, const Tensor&, const Tensor&, Options),
                 Dense (*expected)(const Dense&, const Dense&, const Dense*, const Options&), Shape input, Shape weight,
                 Options options, bool with_bias = true) {
  constexpr bool kIsTransposed = requires { options.output_padding; };
  const int64_t results = kIsTransposed ? weight[1] * options.groups : weight[0];
  OpCase op;
  op.name = name;
  op.terms = static_cast<double>(num_elements(weight) / std::max<int64_t>(1, results) + 1);
  op.inputs = {{"input", input}, {"weight", weight}};
  if (with_bias) {
    op.inputs.push_back({"bias", {results}});
    op.inputs.back().optional = true;
  }
  op.run = [=](const std::vector<Tensor>& in) { return conv(in[0], in[1], with_bias ? in[2] : Tensor(), options); };
  op.reference = [=](const std::vector<Dense>& in) {
    // Sequences without a batch have two dimensions, images without a batch three.
    const bool has_batch = in[0].shape.size() == in[1].shape.size();
    Dense values = in[0];
    if (!has_batch) values.shape.insert(0, 1);
    Dense out = expected(values, in[1], with_bias ? &in[2] : nullptr, options);
    if (!has_batch) out.shape.erase(0);
    return out;
  };
  return op;
}

OpCase conv2d_case(Shape input, Shape weight, Conv2dOptions options, bool with_bias = true) {
  return conv_case("conv2d", conv2d, reference, input, weight, options, with_bias);
}
OpCase conv2d_relu_case(Shape input, Shape weight, Conv2dOptions options, bool with_bias = true) {
  return conv_case("conv2d_relu", conv2d_relu, relu_reference, input, weight, options, with_bias);
}
OpCase conv1d_case(Shape input, Shape weight, Conv1dOptions options, bool with_bias = true) {
  return conv_case("conv1d", conv1d, of_sequences<reference, Conv1dOptions>, input, weight, options, with_bias);
}
OpCase conv_transpose2d_case(Shape input, Shape weight, ConvTranspose2dOptions options, bool with_bias = true) {
  return conv_case("conv_transpose2d", conv_transpose2d, transposed_reference, input, weight, options, with_bias);
}
OpCase conv_transpose1d_case(Shape input, Shape weight, ConvTranspose1dOptions options, bool with_bias = true) {
  return conv_case("conv_transpose1d", conv_transpose1d, of_sequences<transposed_reference, ConvTranspose1dOptions>,
                   input, weight, options, with_bias);
}

/// A channels-last image, as returned by convolutions.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2}); }

struct Case {
  const char* name;
  Shape input, weight;
  Conv2dOptions options;
  bool input_gradient = true;
};

void add_convolution_benchmark(OpCases& cases, const Case& c) {
  const Size2d padding = c.options.padding.size();
  const int64_t height = (c.input[2] + 2 * padding.height - c.weight[2]) / c.options.stride.height + 1;
  const int64_t width = (c.input[3] + 2 * padding.width - c.weight[3]) / c.options.stride.width + 1;
  const double flops = 2.0 * static_cast<double>(c.input[0] * height * width * num_elements(c.weight));
  if (c.input_gradient) {
    cases.benchmark(
        c.name,
        [c] {
          return TensorList{image(c.input), randn(c.weight)};
        },
        [c](const TensorList& in) { return conv2d(in[0], in[1], {}, c.options); }, {.flops = flops},
        str("F.conv2d(a, b, stride=", c.options.stride, ", padding=", padding, ", groups=", c.options.groups, ")"));
  } else {
    const Tensor input = image(c.input);
    cases.benchmark(
        c.name, [c] { return TensorList{randn(c.weight)}; },
        [c, input](const TensorList& in) { return conv2d(input, in[0], {}, c.options); }, {.flops = flops});
  }
}

}  // namespace

TANDEM_OP_CASES(conv) {
  const auto conv = [](Conv2dOptions options) {
    return [=](const Tensors& x) { return conv2d(x[0], x[1], x[2], options); };
  };
  const Input image_input = {"input", {2, 16, 9, 9}}, filters = {"weight", {17, 16, 3, 3}},
              bias = optional({"bias", {17}});
  cases.op(
      "Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = {})",
      CastPolicy::kLowPrecision,
      {{.inputs = {image_input, filters, bias}, .run = conv({.padding = 1})},
       {.inputs = {image_input, filters, bias}, .run = conv({.stride = 2, .dilation = 2})},
       {.inputs = {image_input, {"weight", {16, 1, 3, 3}}, optional({"bias", {16}})},
        .run = conv({.padding = 1, .groups = 16})},
       {.inputs = {{"input", {16, 9, 9}}, filters, bias}, .run = conv({.padding = kSame})},
       {.inputs = {{"input", {2, 4, 5, 5}, 0.5, 2}, {"weight", {6, 2, 3, 3}, 0.5, 2}, {"bias", {6}, 0.5, 2}},
        .run = [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 2}); },
        .terms = 19}});
  cases.op(
      "Tensor conv2d_relu(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv2dOptions options = "
      "{})",
      CastPolicy::kLowPrecision,
      // All sums are positive, so that rounding cannot change the sign at the kink of relu.
      {{.inputs = {positive("input", image_input.shape), positive("weight", filters.shape),
                   optional(positive("bias", bias.shape))},
        .run = [](const Tensors& x) { return conv2d_relu(x[0], x[1], x[2], {.padding = 1}); }},
       {.inputs = {{"input", {2, 3, 5, 5}, 0.5, 2}, {"weight", {4, 3, 3, 3}, 0.5, 2}, {"bias", {4}, 0.5, 2}},
        .run = [](const Tensors& x) { return conv2d_relu(x[0], x[1], x[2], {.padding = 1}); },
        .terms = 28}});

  cases.op(
      "Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, Conv1dOptions options = {})",
      CastPolicy::kLowPrecision,
      {{.inputs = {{"input", {2, 8, 17}}, {"weight", {6, 4, 3}}, optional({"bias", {6}})},
        .run =
            [](const Tensors& x) {
              return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .dilation = 2, .groups = 2});
            }},
       {.inputs = {{"input", {8, 17}}, {"weight", {8, 1, 4}}, optional({"bias", {8}})},
        .run = [](const Tensors& x) { return conv1d(x[0], x[1], x[2], {.padding = kSame, .groups = 8}); }},
       {.inputs = {{"input", {2, 4, 7}, 0.5, 2}, {"weight", {3, 4, 3}, 0.5, 2}, {"bias", {3}, 0.5, 2}},
        .run = [](const Tensors& x) { return conv1d(x[0], x[1], x[2], {.padding = 1}); },
        .terms = 13}});
  cases.op(
      "Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, "
      "ConvTranspose2dOptions options = {})",
      CastPolicy::kLowPrecision,
      {{.inputs = {{"input", {2, 16, 5, 6}}, {"weight", {16, 17, 3, 3}}, bias},
        .run = [](const Tensors& x) { return conv_transpose2d(x[0], x[1], x[2], {.stride = 2, .output_padding = 1}); }},
       {.inputs = {{"input", {2, 16, 5, 6}}, {"weight", {16, 1, 4, 3}}, optional({"bias", {16}})},
        .run =
            [](const Tensors& x) {
              return conv_transpose2d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 16});
            }},
       {.inputs = {{"input", {2, 4, 3, 4}, 0.5, 2}, {"weight", {4, 3, 3, 2}, 0.5, 2}, {"bias", {6}, 0.5, 2}},
        .run =
            [](const Tensors& x) {
              return conv_transpose2d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 2, .dilation = {1, 2}});
            },
        .terms = 19}});
  cases.op(
      "Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, "
      "ConvTranspose1dOptions options = {})",
      CastPolicy::kLowPrecision,
      {{.inputs = {{"input", {2, 8, 9}}, {"weight", {8, 3, 4}}, optional({"bias", {6}})},
        .run =
            [](const Tensors& x) {
              return conv_transpose1d(x[0], x[1], x[2], {.stride = 3, .padding = 1, .output_padding = 2, .groups = 2});
            }},
       {.inputs = {{"input", {4, 5}, 0.5, 2}, {"weight", {4, 3, 3}, 0.5, 2}, {"bias", {3}, 0.5, 2}},
        .run = [](const Tensors& x) { return conv_transpose1d(x[0], x[1], x[2], {.stride = 2}); },
        .terms = 13}});

  cases.add(conv2d_case({2, 3, 5, 4}, {2, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}}));
  cases.add(conv2d_case({1, 1, 3, 3}, {1, 1, 1, 1}, {}, false));
  cases.add(
      conv2d_case({2, 2, 4, 5}, {4, 1, 2, 3}, {.stride = {1, 2}, .padding = {0, 1}, .dilation = {2, 1}, .groups = 2}));
  cases.add(conv2d_case({1, 3, 4, 3}, {3, 1, 2, 2}, {.padding = 1, .groups = 3}, false));
  cases.add(conv2d_case({3, 5, 4}, {2, 3, 3, 2}, {.padding = {0, 1}}));                        // no batch
  cases.add(conv2d_case({2, 2, 3, 5}, {2, 2, 2, 3}, {.padding = kSame, .dilation = {1, 2}}));  // one more row of zeros
  cases.add(conv2d_case({1, 2, 4, 3}, {2, 1, 4, 2}, {.padding = kSame, .groups = 2}, false));
  cases.add(conv1d_case({2, 3, 7}, {4, 3, 3}, {.stride = 2, .padding = 1, .dilation = 2}));
  cases.add(conv1d_case({4, 5}, {4, 2, 2}, {.padding = kSame, .groups = 2}));
  cases.add(conv_transpose2d_case({2, 3, 3, 2}, {3, 2, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}}));
  cases.add(conv_transpose2d_case({4, 2, 3}, {4, 1, 2, 3},
                                  {.stride = {3, 2}, .output_padding = {2, 1}, .groups = 2, .dilation = {2, 1}}));
  cases.add(conv_transpose2d_case({1, 3, 2, 3}, {3, 1, 2, 2}, {.stride = 2, .groups = 3}, false));
  // The output padding exceeds the stride: conv2d of the result would have further rows.
  cases.add(conv_transpose2d_case({1, 2, 2, 2}, {2, 2, 2, 1}, {.output_padding = {2, 0}, .dilation = {3, 1}}));
  cases.add(conv_transpose1d_case({2, 3, 4}, {3, 2, 3}, {.stride = 2, .padding = 1, .output_padding = 1}));
  cases.add(conv_transpose1d_case({4, 3}, {4, 2, 2}, {.groups = 2, .dilation = 2}));

  {
    const OpCase list[] = {
        conv2d_case({3, 7, 9, 8}, {33, 7, 3, 3}, {.stride = {1, 2}, .padding = {2, 1}}),
        conv2d_case({2, 8, 11, 7}, {32, 4, 3, 2}, {.stride = 2, .padding = 1, .dilation = {1, 2}, .groups = 2}),
        conv2d_case({1, 5, 11, 13}, {33, 5, 4, 2}, {.padding = kSame}),
        conv1d_case({2, 6, 101}, {40, 6, 4}, {.padding = kSame}),
        conv1d_case({2, 70, 65}, {70, 1, 5}, {.stride = 2, .padding = 3, .groups = 70}),
        conv_transpose2d_case({2, 4, 5, 6}, {4, 33, 3, 3}, {.stride = {1, 2}, .padding = {2, 1}}),
        conv_transpose2d_case({2, 8, 6, 7}, {8, 16, 4, 4}, {.stride = 2, .padding = 1, .groups = 2}),
        conv_transpose2d_case({2, 70, 6, 7}, {70, 1, 4, 4}, {.stride = 2, .padding = 1, .groups = 70}),
        conv_transpose1d_case({3, 8, 51}, {8, 36, 8}, {.stride = 4, .padding = 2}),
    };
    for (const OpCase& op : list) {
      cases.add(op, kValues | kThreads);
    }
  }

  {
    OpCase list[] = {
        conv2d_case({3, 17, 9, 8}, {33, 17, 3, 3}, {.padding = {2, 1}}),
        conv2d_case({2, 40, 6, 5}, {66, 40, 3, 3}, {.padding = 1}),  // fewer tiles than filters
        conv2d_case({5, 16, 9, 10}, {33, 16, 5, 5}, {}),
        conv_transpose2d_case({2, 17, 6, 5}, {17, 36, 3, 3}, {.padding = 1}),
        conv_transpose2d_case({5, 16, 5, 6}, {16, 33, 5, 5}, {}),  // tiles add to the result
    };
    for (OpCase& op : list) {
      op.tolerance = 100;  // of the transforms
      cases.add(op, kValues | kThreads);
    }
  }

  cases.add(conv2d_relu_case({2, 3, 5, 4}, {2, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}}));
  cases.add(conv2d_relu_case({1, 2, 4, 3}, {2, 1, 2, 2}, {.padding = 1, .groups = 2}, false));
  cases.add(conv2d_relu_case({3, 7, 9, 8}, {33, 7, 3, 3}, {.padding = {2, 1}}), kValues);
  cases.add(conv2d_relu_case({3, 7, 9, 8}, {33, 7, 3, 3}, {.padding = {2, 1}}), kThreads);

  // The convolutions of a ResNet-18 on 32 x 32 images.
  add_convolution_benchmark(cases, {"conv2d 3x3 of an image", {32, 3, 32, 32}, {64, 3, 3, 3}, {.padding = 1}, false});
  add_convolution_benchmark(cases, {"conv2d 3x3 64", {32, 64, 32, 32}, {64, 64, 3, 3}, {.padding = 1}});
  add_convolution_benchmark(cases, {"conv2d 3x3 128", {32, 128, 16, 16}, {128, 128, 3, 3}, {.padding = 1}});
  add_convolution_benchmark(cases, {"conv2d 3x3 256", {32, 256, 8, 8}, {256, 256, 3, 3}, {.padding = 1}});
  add_convolution_benchmark(cases, {"conv2d 3x3 512", {32, 512, 4, 4}, {512, 512, 3, 3}, {.padding = 1}});
  add_convolution_benchmark(cases,
                            {"conv2d 3x3 64 by 2", {32, 64, 32, 32}, {128, 64, 3, 3}, {.stride = 2, .padding = 1}});
  add_convolution_benchmark(cases,
                            {"conv2d 3x3 128 by 2", {32, 128, 16, 16}, {256, 128, 3, 3}, {.stride = 2, .padding = 1}});
  add_convolution_benchmark(cases,
                            {"conv2d 3x3 256 by 2", {32, 256, 8, 8}, {512, 256, 3, 3}, {.stride = 2, .padding = 1}});
  add_convolution_benchmark(cases, {"conv2d 1x1 64 by 2", {32, 64, 32, 32}, {128, 64, 1, 1}, {.stride = 2}});
  add_convolution_benchmark(cases, {"conv2d 1x1 256", {32, 256, 16, 16}, {64, 256, 1, 1}, {}});
  // Groups.
  add_convolution_benchmark(cases,
                            {"conv2d 3x3 4 groups", {32, 128, 16, 16}, {128, 32, 3, 3}, {.padding = 1, .groups = 4}});
  add_convolution_benchmark(cases,
                            {"conv2d 3x3 depthwise", {32, 64, 32, 32}, {64, 1, 3, 3}, {.padding = 1, .groups = 64}});
  add_convolution_benchmark(
      cases, {"conv2d 3x3 depthwise by 2", {32, 96, 32, 32}, {96, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 96}});
  add_convolution_benchmark(cases,
                            {"conv2d 5x5 depthwise", {8, 240, 14, 14}, {240, 1, 5, 5}, {.padding = 2, .groups = 240}});
  add_convolution_benchmark(cases,
                            {"conv2d 3x3 32 groups", {8, 128, 56, 56}, {128, 4, 3, 3}, {.padding = 1, .groups = 32}});
  // Sequences, and the upsampling layers of a U-Net and of a generator.
  cases.benchmark(
      "conv1d",
      [] {
        return TensorList{image({16, 128, 1, 512}).squeeze(2), randn({128, 128, 3}), randn({128})};
      },
      [](const TensorList& in) { return conv1d(in[0], in[1], in[2], {.padding = 1}); },
      {.flops = 2.0 * 16 * 512 * 128 * 128 * 3}, "F.conv1d(a, b, c, padding=1)");
  cases.benchmark(
      "conv_transpose1d",
      [] {
        return TensorList{image({16, 128, 1, 128}).squeeze(2), randn({128, 64, 8}), randn({64})};
      },
      [](const TensorList& in) { return conv_transpose1d(in[0], in[1], in[2], {.stride = 4, .padding = 2}); },
      {.flops = 2.0 * 16 * 128 * 128 * 64 * 8}, "F.conv_transpose1d(a, b, c, stride=4, padding=2)");
  cases.benchmark(
      "conv_transpose2d 2x2 by 2",
      [] {
        return TensorList{image({16, 128, 16, 16}), randn({128, 64, 2, 2}), randn({64})};
      },
      [](const TensorList& in) { return conv_transpose2d(in[0], in[1], in[2], {.stride = 2}); },
      {.flops = 2.0 * 16 * 16 * 16 * 128 * 64 * 4}, "F.conv_transpose2d(a, b, c, stride=2)");
  cases.benchmark(
      "conv_transpose2d 4x4 by 2",
      [] {
        return TensorList{image({16, 128, 16, 16}), randn({128, 64, 4, 4}), randn({64})};
      },
      [](const TensorList& in) { return conv_transpose2d(in[0], in[1], in[2], {.stride = 2, .padding = 1}); },
      {.flops = 2.0 * 16 * 16 * 16 * 128 * 64 * 16}, "F.conv_transpose2d(a, b, c, stride=2, padding=1)");
  // LeNet.
  const Tensor digits = randn({64, 1, 28, 28});
  cases.benchmark("conv2d_relu 5x5 of an image", {{32, 1, 5, 5}, {32}},
                  [digits](const TensorList& in) { return conv2d_relu(digits, in[0], in[1]); },
                  {.flops = 2.0 * 64 * 24 * 24 * 32 * 25});
  cases.benchmark(
      "conv2d_relu 5x5",
      [] {
        return TensorList{image({64, 32, 12, 12}), randn({64, 32, 5, 5}), randn({64})};
      },
      [](const TensorList& in) { return conv2d_relu(in[0], in[1], in[2]); },
      {.flops = 2.0 * 64 * 8 * 8 * 64 * 32 * 25});
}

}  // namespace tandem::testing

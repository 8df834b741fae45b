#include <algorithm>
#include <vector>

#include <tandem/ops/conv.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// conv2d in float64, element by element.
Dense reference(const Dense& input, const Dense& weight, const Dense* bias, const Conv2dOptions& o) {
  const int64_t n = input.shape[0], channels = input.shape[1], h = input.shape[2], w = input.shape[3];
  const int64_t filters = weight.shape[0], depth = weight.shape[1], kh = weight.shape[2], kw = weight.shape[3];
  const int64_t oh = (h + 2 * o.padding.height - o.dilation.height * (kh - 1) - 1) / o.stride.height + 1;
  const int64_t ow = (w + 2 * o.padding.width - o.dilation.width * (kw - 1) - 1) / o.stride.width + 1;
  Dense out = dense_zeros({n, filters, oh, ow});
  for (int64_t at = 0; at < out.num_elements(); ++at) {
    const int64_t x = at % ow, y = at / ow % oh, filter = at / (ow * oh) % filters, image = at / (ow * oh * filters);
    double sum = bias != nullptr ? (*bias)[filter] : 0.0;
    for (int64_t c = 0; c < depth; ++c) {
      const int64_t channel = filter / (filters / o.groups) * depth + c;
      for (int64_t i = 0; i < kh; ++i) {
        for (int64_t j = 0; j < kw; ++j) {
          const int64_t from_y = y * o.stride.height + i * o.dilation.height - o.padding.height;
          const int64_t from_x = x * o.stride.width + j * o.dilation.width - o.padding.width;
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

OpCase conv_case(Shape input, Shape weight, Conv2dOptions options, bool with_bias = true, bool with_relu = false) {
  OpCase op;
  op.name = with_relu ? "conv2d_relu" : "conv2d";
  op.terms = static_cast<double>(weight[1] * weight[2] * weight[3] + 1);
  op.inputs = {{"input", input}, {"weight", weight}};
  if (with_bias) {
    op.inputs.push_back({"bias", {weight[0]}});
    op.inputs.back().optional = true;
  }
  op.run = [=](const std::vector<Tensor>& in) {
    const Tensor bias = with_bias ? in[2] : Tensor();
    return with_relu ? conv2d_relu(in[0], in[1], bias, options) : conv2d(in[0], in[1], bias, options);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = reference(in[0], in[1], with_bias ? &in[2] : nullptr, options);
    if (with_relu) {
      for (double& value : out.values) value = std::max(value, 0.0);
    }
    return out;
  };
  return op;
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
  const int64_t height = (c.input[2] + 2 * c.options.padding.height - c.weight[2]) / c.options.stride.height + 1;
  const int64_t width = (c.input[3] + 2 * c.options.padding.width - c.weight[3]) / c.options.stride.width + 1;
  const double flops = 2.0 * static_cast<double>(c.input[0] * height * width * num_elements(c.weight));
  if (c.input_gradient) {
    cases.benchmark(
        c.name,
        [c] {
          return TensorList{image(c.input), randn(c.weight)};
        },
        [c](const TensorList& in) { return conv2d(in[0], in[1], {}, c.options); }, {.flops = flops});
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

  cases.add(conv_case({2, 3, 5, 4}, {2, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}}));
  cases.add(conv_case({1, 1, 3, 3}, {1, 1, 1, 1}, {}, false));
  cases.add(
      conv_case({2, 2, 4, 5}, {4, 1, 2, 3}, {.stride = {1, 2}, .padding = {0, 1}, .dilation = {2, 1}, .groups = 2}));
  cases.add(conv_case({1, 3, 4, 3}, {3, 1, 2, 2}, {.padding = 1, .groups = 3}, false));

  {
    const OpCase list[] = {
        conv_case({3, 7, 9, 8}, {33, 7, 3, 3}, {.stride = {1, 2}, .padding = {2, 1}}),
        conv_case({2, 8, 11, 7}, {32, 4, 3, 2}, {.stride = 2, .padding = 1, .dilation = {1, 2}, .groups = 2}),
    };
    for (const OpCase& op : list) {
      cases.add(op, kValues | kThreads);
    }
  }

  {
    OpCase list[] = {
        conv_case({3, 17, 9, 8}, {33, 17, 3, 3}, {.padding = {2, 1}}),
        conv_case({2, 40, 6, 5}, {66, 40, 3, 3}, {.padding = 1}),  // fewer tiles than filters
        conv_case({5, 16, 9, 10}, {33, 16, 5, 5}, {}),
    };
    for (OpCase& op : list) {
      op.tolerance = 100;  // of the transforms
      cases.add(op, kValues | kThreads);
    }
  }

  cases.add(conv_case({2, 3, 5, 4}, {2, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}}, true, true));
  cases.add(conv_case({1, 2, 4, 3}, {2, 1, 2, 2}, {.padding = 1, .groups = 2}, false, true));
  cases.add(conv_case({3, 7, 9, 8}, {33, 7, 3, 3}, {.padding = {2, 1}}, true, true), kValues);
  cases.add(conv_case({3, 7, 9, 8}, {33, 7, 3, 3}, {.padding = {2, 1}}, true, true), kThreads);

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
  // LeNet.
  const Tensor digits = randn({64, 1, 28, 28});
  cases.benchmark(
      "conv2d_relu 5x5 of an image",
      [] {
        return TensorList{randn({32, 1, 5, 5}), randn({32})};
      },
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

#include <tandem/nn/conv.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/nn/init.h>
#include <tandem/nn/size_text.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

bool at_least(int64_t size, int64_t min) { return size >= min; }
bool at_least(const Size2d& size, int64_t min) { return size.height >= min && size.width >= min; }

std::string text_of(int64_t size) { return str(size); }
std::string text_of(const Size2d& size) { return size_text(size); }
std::string text_of(const ConvPadding& padding) { return padding.is_same() ? "same" : size_text(padding.size()); }

/// Whether the convolution is transposed.
template <class Options>
constexpr bool kIsTransposed = requires(Options options) {
  options.output_padding;
};

/// Checks the arguments of a constructor and returns the shape of the weight. Size is int64_t or Size2d.
template <class Size, class Options>
Shape weight_shape(const char* layer, int64_t in_channels, int64_t out_channels, const Size& kernel_size,
                   const Options& options) {
  TANDEM_CHECK(ValueError, in_channels >= 1 && out_channels >= 1, layer, ": in_channels is ", in_channels,
               " and out_channels ", out_channels, ", expected at least 1 each");
  TANDEM_CHECK(ValueError, at_least(kernel_size, 1) && at_least(options.stride, 1) && at_least(options.dilation, 1),
               layer, ": kernel_size is ", kernel_size, ", stride ", options.stride, " and dilation ", options.dilation,
               ", expected at least 1 each");
  const Size padding = [&] {
    if constexpr (kIsTransposed<Options>) {
      return options.padding;
    } else if constexpr (std::is_same_v<Size, Size2d>) {
      return options.padding.size();
    } else {
      return options.padding.size().width;
    }
  }();
  TANDEM_CHECK(ValueError, at_least(padding, 0), layer, ": padding is ", padding, ", expected at least 0");
  TANDEM_CHECK(ValueError,
               options.groups >= 1 && in_channels % options.groups == 0 && out_channels % options.groups == 0, layer,
               ": groups is ", options.groups, ", expected a divisor of in_channels ", in_channels,
               " and out_channels ", out_channels);
  if constexpr (!kIsTransposed<Options>) {
    TANDEM_CHECK(ValueError, !options.padding.is_same() || options.stride == Size(1), layer, ": stride is ",
                 options.stride, ", expected 1 if padding is kSame");
  }
  Shape shape = kIsTransposed<Options> ? Shape{in_channels, out_channels / options.groups}
                                       : Shape{out_channels, in_channels / options.groups};
  if constexpr (std::is_same_v<Size, Size2d>) {
    shape.push_back(kernel_size.height);
    shape.push_back(kernel_size.width);
  } else {
    shape.push_back(kernel_size);
  }
  return shape;
}

/// The options of the operation.
template <class Size>
tandem::ConvOptions<Size> of_operation(const ConvOptions<Size>& o) {
  return {o.stride, o.padding, o.dilation, o.groups};
}
template <class Size>
tandem::ConvTransposeOptions<Size> of_operation(const ConvTransposeOptions<Size>& o) {
  return {o.stride, o.padding, o.output_padding, o.groups, o.dilation};
}

/// extra_repr.
template <class Options>
std::string conv_text(const ConvLayer& layer, const Options& options) {
  const Shape& shape = layer.weight.shape();
  const int64_t grouped = shape[1] * options.groups;
  std::string text = kIsTransposed<Options> ? str(shape[0], ", ", grouped) : str(grouped, ", ", shape[0]);
  text += str(", kernel ", shape[2]);
  if (shape.size() == 4) text += str("x", shape[3]);
  text += ", stride " + text_of(options.stride) + ", padding " + text_of(options.padding);
  if constexpr (kIsTransposed<Options>) {
    if (text_of(options.output_padding) != "0") {
      text += ", output padding " + text_of(options.output_padding);
    }
  }
  if (text_of(options.dilation) != "1") text += ", dilation " + text_of(options.dilation);
  if (options.groups != 1) text += str(", groups ", options.groups);
  if (!layer.bias.defined()) text += ", no bias";
  text += activation_text(options.activation);
  if constexpr (!kIsTransposed<Options>) {
    constexpr const char* kModes[] = {"", ", reflect", ", replicate", ", circular"};
    text += kModes[static_cast<int>(options.padding_mode)];
  }
  return text;
}

/// `input` with the padding that the convolution does not add itself, which is removed from its options.
template <class Options>
Tensor padded(const Tensor& input, const Tensor& weight, PadMode mode, Options& options) {
  if (mode == PadMode::kConstant) return input;
  const Size2d dilation = options.dilation, padding = options.padding.size();
  Shape sides;
  for (int64_t dim = weight.dim() - 1; dim >= 2; --dim) {
    const auto side = dim == weight.dim() - 1 ? &Size2d::width : &Size2d::height;
    const int64_t sum = options.padding.is_same() ? saturating_mul(dilation.*side, weight.size(dim) - 1)
                                                  : saturating_mul(2, padding.*side);
    sides.push_back(sum / 2);
    sides.push_back(sum - sum / 2);
  }
  options.padding = 0;
  return pad(input, sides, mode);
}

/// The output_padding of a transposed convolution for a result of `output` elements along one side.
int64_t output_padding_for(const char* layer, const char* side, int64_t output, int64_t input, int64_t kernel,
                           int64_t stride, int64_t padding, int64_t dilation) {
  using Wide = __int128;  // does not overflow
  const Wide least = Wide{input - 1} * stride - 2 * Wide{padding} + Wide{dilation} * (kernel - 1) + 1;
  const auto text = [](Wide size) { return static_cast<int64_t>(std::clamp<Wide>(size, INT64_MIN, INT64_MAX)); };
  TANDEM_CHECK(ValueError, output >= least && output < least + stride, layer, ": output_size has ", side, " ", output,
               ", expected ", text(least), " to ", text(least + stride - 1), " for an input of ", side, " ", input);
  return static_cast<int64_t>(output - least);
}

}  // namespace

ConvLayer::ConvLayer(const Shape& shape, int64_t out_channels, bool with_bias)
    : weight(add_parameter("weight", empty(shape))),
      bias(add_parameter("bias", with_bias ? empty({out_channels}) : Tensor())) {
  // As in PyTorch: slope sqrt(5) gives the bound 1 / sqrt(fan_in).
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0)));
  if (with_bias) init::uniform_(bias, -bound, bound);
}

Conv1d::Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv1dOptions options)
    : ConvLayer(weight_shape("Conv1d", in_channels, out_channels, kernel_size, options), out_channels, options.bias),
      options_(options) {}

Tensor Conv1d::forward(const Tensor& input) {
  auto options = of_operation(options_);
  const Tensor x = padded(input, weight, options_.padding_mode, options);
  return activate(conv1d(x, weight, bias, options), options_.activation);
}

std::string Conv1d::extra_repr() const { return conv_text(*this, options_); }

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, Conv2dOptions options)
    : ConvLayer(weight_shape("Conv2d", in_channels, out_channels, kernel_size, options), out_channels, options.bias),
      options_(options) {}

Tensor Conv2d::forward(const Tensor& input) {
  auto options = of_operation(options_);
  const Tensor x = padded(input, weight, options_.padding_mode, options);
  if (options_.activation == Activation::kRelu) return conv2d_relu(x, weight, bias, options);
  return activate(conv2d(x, weight, bias, options), options_.activation);
}

std::string Conv2d::extra_repr() const { return conv_text(*this, options_); }

ConvTranspose1d::ConvTranspose1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size,
                                 ConvTranspose1dOptions options)
    : ConvLayer(weight_shape("ConvTranspose1d", in_channels, out_channels, kernel_size, options), out_channels,
                options.bias),
      options_(options) {}

Tensor ConvTranspose1d::run(const Tensor& input, const tandem::ConvTranspose1dOptions& options) const {
  return activate(conv_transpose1d(input, weight, bias, options), options_.activation);
}

Tensor ConvTranspose1d::forward(const Tensor& input) { return run(input, of_operation(options_)); }

Tensor ConvTranspose1d::operator()(const Tensor& input, int64_t output_size) {
  return call(input, [&](const Tensor& x) {
    tandem::ConvTranspose1dOptions o = of_operation(options_);
    if (x.dim() == 2 || x.dim() == 3) {  // else the operation throws
      o.output_padding = output_padding_for("ConvTranspose1d", "length", output_size, x.size(-1), weight.size(2),
                                            o.stride, o.padding, o.dilation);
    }
    return run(x, o);
  });
}

std::string ConvTranspose1d::extra_repr() const { return conv_text(*this, options_); }

ConvTranspose2d::ConvTranspose2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size,
                                 ConvTranspose2dOptions options)
    : ConvLayer(weight_shape("ConvTranspose2d", in_channels, out_channels, kernel_size, options), out_channels,
                options.bias),
      options_(options) {}

Tensor ConvTranspose2d::run(const Tensor& input, const tandem::ConvTranspose2dOptions& options) const {
  return activate(conv_transpose2d(input, weight, bias, options), options_.activation);
}

Tensor ConvTranspose2d::forward(const Tensor& input) { return run(input, of_operation(options_)); }

Tensor ConvTranspose2d::operator()(const Tensor& input, Size2d output_size) {
  return call(input, [&](const Tensor& x) {
    tandem::ConvTranspose2dOptions o = of_operation(options_);
    if (x.dim() == 3 || x.dim() == 4) {  // else the operation throws
      o.output_padding = {output_padding_for("ConvTranspose2d", "height", output_size.height, x.size(-2),
                                             weight.size(2), o.stride.height, o.padding.height, o.dilation.height),
                          output_padding_for("ConvTranspose2d", "width", output_size.width, x.size(-1), weight.size(3),
                                             o.stride.width, o.padding.width, o.dilation.width)};
    }
    return run(x, o);
  });
}

std::string ConvTranspose2d::extra_repr() const { return conv_text(*this, options_); }

}}}  // namespace tandem::v0::nn

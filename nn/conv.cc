#include <tandem/nn/conv.h>

#include <cmath>

#include <tandem/nn/init.h>
#include <tandem/nn/size_text.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

bool at_least(const Size2d& size, int64_t min) { return size.height >= min && size.width >= min; }

/// Checks all arguments and returns the shape of the weight.
Shape weight_shape(int64_t in_channels, int64_t out_channels, const Size2d& kernel_size, const Conv2dOptions& options) {
  TANDEM_CHECK(ValueError, in_channels >= 1 && out_channels >= 1, "Conv2d: in_channels is ", in_channels,
               " and out_channels ", out_channels, ", expected at least 1 each");
  TANDEM_CHECK(ValueError, at_least(kernel_size, 1) && at_least(options.stride, 1) && at_least(options.dilation, 1),
               "Conv2d: kernel_size is ", kernel_size, ", stride ", options.stride, " and dilation ", options.dilation,
               ", expected at least 1 each");
  TANDEM_CHECK(ValueError, at_least(options.padding, 0), "Conv2d: padding is ", options.padding,
               ", expected at least 0");
  TANDEM_CHECK(ValueError,
               options.groups >= 1 && in_channels % options.groups == 0 && out_channels % options.groups == 0,
               "Conv2d: groups is ", options.groups, ", expected a divisor of in_channels ", in_channels,
               " and out_channels ", out_channels);
  return {out_channels, in_channels / options.groups, kernel_size.height, kernel_size.width};
}

}  // namespace

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, Conv2dOptions options,
               LinearOptions linear)
    : weight(add_parameter("weight", empty(weight_shape(in_channels, out_channels, kernel_size, options)))),
      bias(add_parameter("bias", linear.bias ? empty({out_channels}) : Tensor())),
      options_(options),
      relu_(linear.relu) {
  // As in PyTorch: slope sqrt(5) gives the bound 1 / sqrt(fan_in).
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(weight.num_elements() / out_channels));
  if (linear.bias) init::uniform_(bias, -bound, bound);
}

Tensor Conv2d::forward(const Tensor& input) {
  return relu_ ? conv2d_relu(input, weight, bias, options_) : conv2d(input, weight, bias, options_);
}

std::string Conv2d::extra_repr() const {
  std::string text = str(weight.size(1) * options_.groups, ", ", weight.size(0), ", kernel ",
                         kernel_text({weight.size(2), weight.size(3)}), ", stride ", size_text(options_.stride),
                         ", padding ", size_text(options_.padding));
  if (options_.dilation != Size2d(1)) text += ", dilation " + size_text(options_.dilation);
  if (options_.groups != 1) text += str(", groups ", options_.groups);
  if (!bias.defined()) text += ", no bias";
  if (relu_) text += ", relu";
  return text;
}

}}}  // namespace tandem::v0::nn

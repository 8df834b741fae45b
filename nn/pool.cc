#include <tandem/nn/pool.h>

#include <tandem/nn/size_text.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

/// Settings that max and average pooling share.
template <class Options>
std::string window_text(const Size2d& kernel_size, const Options& options) {
  std::string text = str("kernel ", kernel_text(kernel_size), ", stride ",
                         size_text(options.stride.value_or(kernel_size)), ", padding ", size_text(options.padding));
  if (options.ceil_mode) text += ", ceil mode";
  return text;
}

}  // namespace

Tensor MaxPool2d::forward(const Tensor& input) { return max_pool2d(input, kernel_size_, options_); }

std::string MaxPool2d::extra_repr() const {
  std::string text = window_text(kernel_size_, options_);
  if (options_.dilation != Size2d(1)) text += ", dilation " + size_text(options_.dilation);
  return text;
}

Tensor AvgPool2d::forward(const Tensor& input) { return avg_pool2d(input, kernel_size_, options_); }

std::string AvgPool2d::extra_repr() const {
  return window_text(kernel_size_, options_) + (options_.count_include_pad ? "" : ", padding not counted");
}

Tensor AdaptiveAvgPool2d::forward(const Tensor& input) { return adaptive_avg_pool2d(input, output_size_); }

std::string AdaptiveAvgPool2d::extra_repr() const { return "output " + kernel_text(output_size_); }

}}}  // namespace tandem::v0::nn

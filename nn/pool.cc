#include <tandem/nn/pool.h>

#include <tandem/nn/size_text.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

/// Settings of a window.
template <class Size, class Options>
std::string window_text(const Size& kernel_size, const Options& options) {
  return str("kernel ", kernel_text(kernel_size), ", stride ", size_text(options.stride.value_or(kernel_size)),
             ", padding ", size_text(options.padding));
}

template <class Size, class Options>
std::string max_text(const Size& kernel_size, const Options& options) {
  std::string text = window_text(kernel_size, options);
  if (options.ceil_mode) text += ", ceil mode";
  if (!(options.dilation == Size(1))) text += ", dilation " + size_text(options.dilation);
  return text;
}

template <class Size, class Options>
std::string avg_text(const Size& kernel_size, const Options& options) {
  std::string text = window_text(kernel_size, options);
  if (options.ceil_mode) text += ", ceil mode";
  if (!options.count_include_pad) text += ", padding not counted";
  return text;
}

}  // namespace

Tensor MaxPool1d::forward(const Tensor& input) { return max_pool1d(input, kernel_size_, options_); }

ValuesIndices MaxPool1d::with_indices(const Tensor& input) const {
  const ModuleScope scope(*this);
  return max_pool1d_with_indices(input, kernel_size_, options_);
}

std::string MaxPool1d::extra_repr() const { return max_text(kernel_size_, options_); }

Tensor MaxPool2d::forward(const Tensor& input) { return max_pool2d(input, kernel_size_, options_); }

ValuesIndices MaxPool2d::with_indices(const Tensor& input) const {
  const ModuleScope scope(*this);
  return max_pool2d_with_indices(input, kernel_size_, options_);
}

std::string MaxPool2d::extra_repr() const { return max_text(kernel_size_, options_); }

AvgPool1d::AvgPool1d(int64_t kernel_size, AvgPool1dOptions options)
    : FunctionLayer([=](const Tensor& x) { return avg_pool1d(x, kernel_size, options); },
                    avg_text(kernel_size, options)) {}

AvgPool2d::AvgPool2d(Size2d kernel_size, AvgPool2dOptions options)
    : FunctionLayer([=](const Tensor& x) { return avg_pool2d(x, kernel_size, options); },
                    avg_text(kernel_size, options) +
                        (options.divisor_override ? str(", divisor ", *options.divisor_override) : "")) {}

AdaptiveAvgPool1d::AdaptiveAvgPool1d(int64_t output_size)
    : FunctionLayer([=](const Tensor& x) { return adaptive_avg_pool1d(x, output_size); },
                    "output " + kernel_text(output_size)) {}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(OutputSize2d output_size)
    : FunctionLayer([=](const Tensor& x) { return adaptive_avg_pool2d(x, output_size); },
                    "output " + kernel_text(output_size)) {}

Tensor AdaptiveMaxPool1d::forward(const Tensor& input) { return adaptive_max_pool1d(input, output_size_); }

ValuesIndices AdaptiveMaxPool1d::with_indices(const Tensor& input) const {
  const ModuleScope scope(*this);
  return adaptive_max_pool1d_with_indices(input, output_size_);
}

std::string AdaptiveMaxPool1d::extra_repr() const { return "output " + kernel_text(output_size_); }

Tensor AdaptiveMaxPool2d::forward(const Tensor& input) { return adaptive_max_pool2d(input, output_size_); }

ValuesIndices AdaptiveMaxPool2d::with_indices(const Tensor& input) const {
  const ModuleScope scope(*this);
  return adaptive_max_pool2d_with_indices(input, output_size_);
}

std::string AdaptiveMaxPool2d::extra_repr() const { return "output " + kernel_text(output_size_); }

Tensor MaxUnpool1d::operator()(const Tensor& input, const Tensor& indices, std::optional<int64_t> output_size) const {
  const ModuleScope scope(*this);
  MaxUnpool1dOptions options = options_;
  if (output_size) options.output_size = output_size;
  return max_unpool1d(input, indices, kernel_size_, options);
}

std::string MaxUnpool1d::extra_repr() const { return window_text(kernel_size_, options_); }

Tensor MaxUnpool2d::operator()(const Tensor& input, const Tensor& indices, std::optional<Size2d> output_size) const {
  const ModuleScope scope(*this);
  MaxUnpool2dOptions options = options_;
  if (output_size) options.output_size = output_size;
  return max_unpool2d(input, indices, kernel_size_, options);
}

std::string MaxUnpool2d::extra_repr() const { return window_text(kernel_size_, options_); }

}}}  // namespace tandem::v0::nn

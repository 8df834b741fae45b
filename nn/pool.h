// Pooling layers.
#pragma once

#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/pool.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Maximum of each window: max_pool2d of x [N, C, H, W].
class TANDEM_API MaxPool2d : public Layer {
 public:
  /// Size of the window, and stride, padding and dilation.
  explicit MaxPool2d(Size2d kernel_size, MaxPool2dOptions options = {})
      : kernel_size_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  Size2d kernel_size_;
  MaxPool2dOptions options_;
};

/// Mean of each window: avg_pool2d of x [N, C, H, W].
class TANDEM_API AvgPool2d : public Layer {
 public:
  /// Size of the window, and stride and padding.
  explicit AvgPool2d(Size2d kernel_size, AvgPool2dOptions options = {})
      : kernel_size_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  Size2d kernel_size_;
  AvgPool2dOptions options_;
};

/// Means of output_size windows that cover the image: adaptive_avg_pool2d of x [N, C, H, W].
class TANDEM_API AdaptiveAvgPool2d : public Layer {
 public:
  /// Size of the result, {H', W'}.
  explicit AdaptiveAvgPool2d(Size2d output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  Size2d output_size_;
};

}}}  // namespace tandem::v0::nn

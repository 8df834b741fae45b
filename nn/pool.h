// Pooling layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/pool.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Maximum of each window: max_pool1d of x [N, C, L] or [C, L].
class TANDEM_API MaxPool1d : public Layer {
 public:
  using Options = MaxPool1dOptions;  ///< of the constructor
  /// Size of the window, and stride, padding and dilation.
  explicit MaxPool1d(int64_t kernel_size, MaxPool1dOptions options = {})
      : kernel_size_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& input) override;
  /// The result of forward() and the indices of the maxima, for MaxUnpool1d; without the layer's hooks.
  ValuesIndices with_indices(const Tensor& input) const;
  std::string extra_repr() const override;

 private:
  int64_t kernel_size_;
  MaxPool1dOptions options_;
};

/// Maximum of each window: max_pool2d of x [N, C, H, W] or [C, H, W].
class TANDEM_API MaxPool2d : public Layer {
 public:
  using Options = MaxPool2dOptions;  ///< of the constructor
  /// Size of the window, and stride, padding and dilation.
  explicit MaxPool2d(Size2d kernel_size, MaxPool2dOptions options = {})
      : kernel_size_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& input) override;
  /// The result of forward() and the indices of the maxima, for MaxUnpool2d; without the layer's hooks.
  ValuesIndices with_indices(const Tensor& input) const;
  std::string extra_repr() const override;

 private:
  Size2d kernel_size_;
  MaxPool2dOptions options_;
};

/// Mean of each window: avg_pool1d of x [N, C, L] or [C, L].
class TANDEM_API AvgPool1d : public FunctionLayer {
 public:
  using Options = AvgPool1dOptions;  ///< of the constructor
  /// Size of the window, and stride and padding.
  explicit AvgPool1d(int64_t kernel_size, AvgPool1dOptions options = {});
};

/// Mean of each window: avg_pool2d of x [N, C, H, W] or [C, H, W].
class TANDEM_API AvgPool2d : public FunctionLayer {
 public:
  using Options = AvgPool2dOptions;  ///< of the constructor
  /// Size of the window, and stride, padding and divisor.
  explicit AvgPool2d(Size2d kernel_size, AvgPool2dOptions options = {});
};

/// Means of output_size windows that cover the signal: adaptive_avg_pool1d of x [N, C, L] or [C, L].
class TANDEM_API AdaptiveAvgPool1d : public FunctionLayer {
 public:
  /// Size of the result, L'.
  explicit AdaptiveAvgPool1d(int64_t output_size);
};

/// Means of output_size windows that cover the image: adaptive_avg_pool2d of x [N, C, H, W] or [C, H, W].
class TANDEM_API AdaptiveAvgPool2d : public FunctionLayer {
 public:
  /// Size of the result, {H', W'}; std::nullopt keeps the size of the input.
  explicit AdaptiveAvgPool2d(OutputSize2d output_size);
};

/// Maxima of output_size windows that cover the signal: adaptive_max_pool1d of x [N, C, L] or [C, L].
class TANDEM_API AdaptiveMaxPool1d : public Layer {
 public:
  /// Size of the result, L'.
  explicit AdaptiveMaxPool1d(int64_t output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& input) override;
  /// The result of forward() and the indices of the maxima; without the layer's hooks.
  ValuesIndices with_indices(const Tensor& input) const;
  std::string extra_repr() const override;

 private:
  int64_t output_size_;
};

/// Maxima of output_size windows that cover the image: adaptive_max_pool2d of x [N, C, H, W] or [C, H, W].
class TANDEM_API AdaptiveMaxPool2d : public Layer {
 public:
  /// Size of the result, {H', W'}; std::nullopt keeps the size of the input.
  explicit AdaptiveMaxPool2d(OutputSize2d output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& input) override;
  /// The result of forward() and the indices of the maxima; without the layer's hooks.
  ValuesIndices with_indices(const Tensor& input) const;
  std::string extra_repr() const override;

 private:
  OutputSize2d output_size_;
};

/// Partial inverse of MaxPool1d: max_unpool1d, which sets elements that were not maxima to 0.
class TANDEM_API MaxUnpool1d : public Module {
 public:
  using Options = MaxUnpool1dOptions;  ///< of the constructor
  /// Size, stride and padding of the window.
  explicit MaxUnpool1d(int64_t kernel_size, MaxUnpool1dOptions options = {})
      : kernel_size_(kernel_size), options_(options) {}
  /// `input` and `indices` as returned by MaxPool1d::with_indices(); `output_size` overrides the option.
  Tensor operator()(const Tensor& input, const Tensor& indices, std::optional<int64_t> output_size = {}) const;
  std::string extra_repr() const override;

 private:
  int64_t kernel_size_;
  MaxUnpool1dOptions options_;
};

/// Partial inverse of MaxPool2d: max_unpool2d, which sets elements that were not maxima to 0.
class TANDEM_API MaxUnpool2d : public Module {
 public:
  using Options = MaxUnpool2dOptions;  ///< of the constructor
  /// Size, stride and padding of the window.
  explicit MaxUnpool2d(Size2d kernel_size, MaxUnpool2dOptions options = {})
      : kernel_size_(kernel_size), options_(options) {}
  /// `input` and `indices` as returned by MaxPool2d::with_indices(); `output_size` overrides the option.
  Tensor operator()(const Tensor& input, const Tensor& indices, std::optional<Size2d> output_size = {}) const;
  std::string extra_repr() const override;

 private:
  Size2d kernel_size_;
  MaxUnpool2dOptions options_;
};

}}}  // namespace tandem::v0::nn

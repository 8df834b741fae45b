// Convolutional layers.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/pad.h>

namespace tandem { inline namespace v0 { namespace nn {

using tandem::Conv1dOptions;           ///< options of the operation conv1d
using tandem::Conv2dOptions;           ///< options of the operation conv2d
using tandem::ConvTranspose1dOptions;  ///< options of the operation conv_transpose1d
using tandem::ConvTranspose2dOptions;  ///< options of the operation conv_transpose2d

/// Options of convolutional layers in addition to those of their operation.
struct ConvLayerOptions {
  bool bias = true;   ///< whether a bias is added
  bool relu = false;  ///< apply a ReLU to the result; fused in Conv2d
  /// Values of the padding: zeros (kConstant), or elements of the input (see pad). Modes other than kConstant copy the
  /// input. Transposed convolutions support only kConstant.
  PadMode padding_mode = PadMode::kConstant;
};

/// Parameters of convolutional layers, float32. Initial values are uniform in [-b, b], b = 1 / sqrt(number of weights /
/// size of the weight's first dimension), as in PyTorch, drawn in the order weight, bias.
class TANDEM_API ConvLayer : public Layer {
 public:
  Tensor& weight;  ///< the filters
  Tensor& bias;    ///< [out_channels]; undefined without bias

 protected:
  /// `shape`: shape of the weight.
  ConvLayer(const Shape& shape, int64_t out_channels, const ConvLayerOptions& options);
  /// `result`, or its ReLU.
  Tensor activated(const Tensor& result) const;

  ConvLayerOptions layer_options_;  ///< as given to the constructor
};

/// conv1d: x [N, in_channels, L] or [in_channels, L] -> [N, out_channels, L'] or [out_channels, L'].
///
/// `weight` [out_channels, in_channels / groups, kernel_size], `bias` [out_channels].
class TANDEM_API Conv1d : public ConvLayer {
 public:
  /// Throws ValueError for sizes below 1, a negative padding, kSame with a stride, or groups that do not divide the
  /// channels.
  Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv1dOptions options = {},
         ConvLayerOptions layer_options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  Conv1dOptions options_;
};

/// conv2d: x [N, in_channels, H, W] or [in_channels, H, W] -> [N, out_channels, H', W'] or [out_channels, H', W'] in
/// channels-last layout.
///
/// `weight` [out_channels, in_channels / groups, kh, kw], `bias` [out_channels].
class TANDEM_API Conv2d : public ConvLayer {
 public:
  /// Throws ValueError as Conv1d.
  Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, Conv2dOptions options = {},
         ConvLayerOptions layer_options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  Conv2dOptions options_;
};

/// conv_transpose1d: x [N, in_channels, L] or [in_channels, L] -> [N, out_channels, L'] or [out_channels, L'].
///
/// `weight` [in_channels, out_channels / groups, kernel_size], `bias` [out_channels].
class TANDEM_API ConvTranspose1d : public ConvLayer {
 public:
  /// Throws ValueError for sizes below 1, a negative padding, groups that do not divide the channels, or a padding_mode
  /// other than kConstant.
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, ConvTranspose1dOptions options = {},
                  ConvLayerOptions layer_options = {});
  Tensor forward(const Tensor& input) override;
  using Layer::operator();
  /// The result with length `output_size`. The output_padding is computed from it, and the option is ignored. Throws
  /// ValueError unless an output_padding below the stride gives this length.
  Tensor operator()(const Tensor& input, int64_t output_size);
  std::string extra_repr() const override;

 private:
  Tensor run(const Tensor& input, const ConvTranspose1dOptions& options) const;

  ConvTranspose1dOptions options_;
};

/// conv_transpose2d: x [N, in_channels, H, W] or [in_channels, H, W] -> [N, out_channels, H', W'] or [out_channels, H',
/// W'] in channels-last layout.
///
/// `weight` [in_channels, out_channels / groups, kh, kw], `bias` [out_channels].
class TANDEM_API ConvTranspose2d : public ConvLayer {
 public:
  /// Throws ValueError as ConvTranspose1d.
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, ConvTranspose2dOptions options = {},
                  ConvLayerOptions layer_options = {});
  Tensor forward(const Tensor& input) override;
  using Layer::operator();
  /// The result with height and width `output_size`. The output_padding is computed from it, and the option is ignored.
  /// Throws ValueError unless an output_padding below the stride gives this size.
  Tensor operator()(const Tensor& input, Size2d output_size);
  std::string extra_repr() const override;

 private:
  Tensor run(const Tensor& input, const ConvTranspose2dOptions& options) const;

  ConvTranspose2dOptions options_;
};

}}}  // namespace tandem::v0::nn

// Convolutional layers.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/module.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/pad.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of Conv1d (Size is int64_t) and Conv2d (Size is Size2d).
template <class Size>
struct ConvOptions {
  Size stride = 1;                            ///< as in tandem::ConvOptions
  ConvPadding padding = 0;                    ///< as in tandem::ConvOptions
  Size dilation = 1;                          ///< as in tandem::ConvOptions
  int64_t groups = 1;                         ///< as in tandem::ConvOptions
  bool bias = true;                           ///< whether a bias is added
  PadMode padding_mode = PadMode::kConstant;  ///< zeros, or elements of the input (see pad), which is then copied
  Activation activation = Activation::kNone;  ///< applied to the result
};
using Conv1dOptions = ConvOptions<int64_t>;  ///< of Conv1d
using Conv2dOptions = ConvOptions<Size2d>;   ///< of Conv2d

/// Options of ConvTranspose1d (Size is int64_t) and ConvTranspose2d (Size is Size2d).
template <class Size>
struct ConvTransposeOptions {
  Size stride = 1;                            ///< as in tandem::ConvTransposeOptions
  Size padding = 0;                           ///< as in tandem::ConvTransposeOptions
  Size output_padding = 0;                    ///< as in tandem::ConvTransposeOptions
  int64_t groups = 1;                         ///< as in tandem::ConvTransposeOptions
  bool bias = true;                           ///< whether a bias is added
  Size dilation = 1;                          ///< as in tandem::ConvTransposeOptions
  Activation activation = Activation::kNone;  ///< applied to the result
};
using ConvTranspose1dOptions = ConvTransposeOptions<int64_t>;  ///< of ConvTranspose1d
using ConvTranspose2dOptions = ConvTransposeOptions<Size2d>;   ///< of ConvTranspose2d

/// Parameters of convolutional layers, float32. Initial values are uniform in [-b, b], b = 1 / sqrt(number of weights /
/// size of the weight's first dimension), as in PyTorch, drawn in the order weight, bias.
class TANDEM_API ConvLayer : public Layer {
 public:
  Tensor& weight;  ///< the filters
  Tensor& bias;    ///< [out_channels]; undefined without bias

 protected:
  /// `shape`: shape of the weight.
  ConvLayer(const Shape& shape, int64_t out_channels, bool with_bias);
};

/// conv1d: x [N, in_channels, L] or [in_channels, L] -> [N, out_channels, L'] or [out_channels, L'].
///
/// `weight` [out_channels, in_channels / groups, kernel_size], `bias` [out_channels].
class TANDEM_API Conv1d : public ConvLayer {
 public:
  using Options = Conv1dOptions;  ///< of the constructor
  /// Throws ValueError for sizes below 1, a negative padding, kSame with a stride, or groups that do not divide the
  /// channels.
  Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv1dOptions options = {});
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
  using Options = Conv2dOptions;  ///< of the constructor
  /// Throws ValueError as Conv1d.
  Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, Conv2dOptions options = {});
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
  using Options = ConvTranspose1dOptions;  ///< of the constructor
  /// Throws ValueError for sizes below 1, a negative padding, or groups that do not divide the channels.
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, ConvTranspose1dOptions options = {});
  Tensor forward(const Tensor& input) override;
  using Layer::operator();
  /// The result with length `output_size`. The output_padding is computed from it, and the option is ignored. Throws
  /// ValueError unless an output_padding below the stride gives this length.
  Tensor operator()(const Tensor& input, int64_t output_size);
  std::string extra_repr() const override;

 private:
  Tensor run(const Tensor& input, const tandem::ConvTranspose1dOptions& options) const;

  ConvTranspose1dOptions options_;
};

/// conv_transpose2d: x [N, in_channels, H, W] or [in_channels, H, W] -> [N, out_channels, H', W'] or [out_channels, H',
/// W'] in channels-last layout.
///
/// `weight` [in_channels, out_channels / groups, kh, kw], `bias` [out_channels].
class TANDEM_API ConvTranspose2d : public ConvLayer {
 public:
  using Options = ConvTranspose2dOptions;  ///< of the constructor
  /// Throws ValueError as ConvTranspose1d.
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, ConvTranspose2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  using Layer::operator();
  /// The result with height and width `output_size`. The output_padding is computed from it, and the option is ignored.
  /// Throws ValueError unless an output_padding below the stride gives this size.
  Tensor operator()(const Tensor& input, Size2d output_size);
  std::string extra_repr() const override;

 private:
  Tensor run(const Tensor& input, const tandem::ConvTranspose2dOptions& options) const;

  ConvTranspose2dOptions options_;
};

}}}  // namespace tandem::v0::nn

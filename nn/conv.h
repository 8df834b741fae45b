// Convolutional layers.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>
#include <tandem/ops/conv.h>

namespace tandem { inline namespace v0 { namespace nn {

using tandem::Conv2dOptions;  ///< stride, padding, dilation and groups, as in the operation

/// conv2d: x [N, in_channels, H, W] -> [N, out_channels, H', W'] in channels-last layout.
///
/// `weight` [out_channels, in_channels / groups, kh, kw] and `bias` [out_channels] (undefined without bias) are
/// float32. Their initial values are uniform in [-b, b], b = 1 / sqrt(in_channels / groups kh kw), as in PyTorch, drawn
/// in this order.
class TANDEM_API Conv2d : public Layer {
 public:
  /// Throws ValueError for sizes below 1, a negative padding, or groups that do not divide the channels.
  Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel_size, Conv2dOptions options = {},
         LinearOptions linear = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [out_channels, in_channels / groups, kh, kw]
  Tensor& bias;    ///< [out_channels]; undefined without bias

 private:
  Conv2dOptions options_;
  bool relu_;
};

}}}  // namespace tandem::v0::nn

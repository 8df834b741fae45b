// Initial values of parameters.
//
// All functions change `tensor` (floating-point, any device) in place, without recording, and return it. Random values
// come from the default generator of the rank's device, whatever the tensor's device: a model that is created on the
// CPU and then moved starts with the same bits on every type of device. As in PyTorch, a weight [out, in, ...] has
// fan_in = in r and fan_out = out r, where r is the product of the other sizes. Functions that use fans throw
// ShapeError for tensors with fewer than two dimensions.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace nn::init {

/// Uniform in [low, high]. Throws ValueError unless low <= high.
TANDEM_API const Tensor& uniform_(const Tensor& tensor, double low = 0, double high = 1);
/// Normal; `deviation` is the standard deviation. Throws ValueError if it is negative.
TANDEM_API const Tensor& normal_(const Tensor& tensor, double mean = 0, double deviation = 1);
/// Zeros.
TANDEM_API const Tensor& zeros_(const Tensor& tensor);
/// Ones.
TANDEM_API const Tensor& ones_(const Tensor& tensor);

/// Which fan of a weight scales its initial values.
enum class Fan { kIn, kOut };

/// Uniform in [-b, b], b = sqrt(6 / ((1 + slope^2) fan)), which preserves the variance through layers followed by a
/// leaky ReLU with this slope (0: ReLU). K. He et al., "Delving deep into rectifiers", ICCV 2015.
TANDEM_API const Tensor& kaiming_uniform_(const Tensor& tensor, double slope = 0, Fan fan = Fan::kIn);
/// Uniform in [-b, b], b = gain sqrt(6 / (fan_in + fan_out)). X. Glorot, Y. Bengio, "Understanding the difficulty of
/// training deep feedforward neural networks", AISTATS 2010.
TANDEM_API const Tensor& xavier_uniform_(const Tensor& tensor, double gain = 1);

}}}  // namespace tandem::v0::nn::init

// Initial values of parameters.
//
// All change `tensor` (floating, any device) in place, unrecorded, and return it; random ones draw from the
// default generator of the rank's own device, wherever it is: a model that is made on the host and moved starts with the
// same bits on every kind of device.  The fans of a weight [out, in, ...] are fan_in = in r and fan_out = out r, where r is
// the product of the other sizes, as in PyTorch; a tensor of fewer than two dimensions has none: ShapeError.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace nn::init {

/// Uniform in [low, high].  Throws ValueError unless low <= high.
TANDEM_API const Tensor& uniform_(const Tensor& tensor, double low = 0, double high = 1);
/// Normal.  Throws ValueError for a negative deviation.
TANDEM_API const Tensor& normal_(const Tensor& tensor, double mean = 0, double deviation = 1);
/// Zeros.
TANDEM_API const Tensor& zeros_(const Tensor& tensor);
/// Ones.
TANDEM_API const Tensor& ones_(const Tensor& tensor);

/// Which fan of a weight scales its initial values.
enum class Fan { kIn, kOut };

/// Uniform in [-b, b], b = sqrt(6 / ((1 + slope^2) fan)): keeps the variance through layers followed by a leaky ReLU of
/// that slope (0: ReLU).  K. He et al., "Delving deep into rectifiers", ICCV 2015.
TANDEM_API const Tensor& kaiming_uniform_(const Tensor& tensor, double slope = 0, Fan fan = Fan::kIn);
/// Uniform in [-b, b], b = gain sqrt(6 / (fan_in + fan_out)).  X. Glorot, Y. Bengio, "Understanding the difficulty of
/// training deep feedforward neural networks", AISTATS 2010.
TANDEM_API const Tensor& xavier_uniform_(const Tensor& tensor, double gain = 1);

}}}  // namespace tandem::v0::nn::init

#include <tandem/nn/init.h>

#include <cmath>

#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace nn::init {

namespace {

struct Fans {
  double in;
  double out;
};

Fans fans_of(const char* op, const Tensor& tensor) {
  TANDEM_CHECK(ShapeError, tensor.dim() >= 2, op, ": tensor has the shape ", tensor.shape(),
               ", expected at least 2 dimensions");
  double field = 1;
  for (int64_t d = 2; d < tensor.dim(); ++d) field *= static_cast<double>(tensor.size(d));
  return {static_cast<double>(tensor.size(1)) * field, static_cast<double>(tensor.size(0)) * field};
}

/// The default generator of the rank's device, whatever the tensor's device: a model that is created on the CPU and
/// then moved starts with the same bits on every type of device.
Generator& rank_generator() { return default_generator(rank_device()); }

/// Uniform in [-bound, bound]. The bound of an empty tensor may be infinite and is ignored.
const Tensor& symmetric_(const Tensor& tensor, double bound) {
  return tensor.num_elements() == 0 ? tensor : uniform_(tensor, -bound, bound);
}

}  // namespace

const Tensor& uniform_(const Tensor& tensor, double low, double high) {
  TANDEM_CHECK(ValueError, low <= high, "uniform_: low is ", low, ", high is ", high, ", expected low <= high");
  const NoGradGuard no_grad;
  return tensor.copy_(rand(tensor.shape(), tensor.options(), &rank_generator()).mul_(high - low).add_(low));
}

const Tensor& normal_(const Tensor& tensor, double mean, double deviation) {
  TANDEM_CHECK(ValueError, deviation >= 0, "normal_: deviation is ", deviation, ", expected >= 0");
  const NoGradGuard no_grad;
  return tensor.copy_(randn(tensor.shape(), tensor.options(), &rank_generator()).mul_(deviation).add_(mean));
}

const Tensor& zeros_(const Tensor& tensor) {
  const NoGradGuard no_grad;
  return tensor.fill_(0);
}

const Tensor& ones_(const Tensor& tensor) {
  const NoGradGuard no_grad;
  return tensor.fill_(1);
}

const Tensor& kaiming_uniform_(const Tensor& tensor, double slope, Fan fan) {
  const Fans fans = fans_of("kaiming_uniform_", tensor);
  return symmetric_(tensor, std::sqrt(6 / ((1 + slope * slope) * (fan == Fan::kIn ? fans.in : fans.out))));
}

const Tensor& xavier_uniform_(const Tensor& tensor, double gain) {
  const Fans fans = fans_of("xavier_uniform_", tensor);
  return symmetric_(tensor, gain * std::sqrt(6 / (fans.in + fans.out)));
}

}}}  // namespace tandem::v0::nn::init

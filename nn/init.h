// Initial values of parameters: torch.nn.init.
//
// All functions change `tensor` (floating-point, any device) in place, without recording, and return it. Random values
// come from `generator`, by default the generator of the rank's device, independently of the tensor's device. So a
// model that is created on the CPU and then moved starts with the same bits on every type of device. Every rank draws
// the numbers of rank 0: after the same manual_seed, all ranks have equal initial values. As in PyTorch, a
// weight [out, in, ...] has fan_in = in r and fan_out = out r, where r is the product of the other sizes. Functions
// that use fans throw ShapeError for tensors with fewer than two dimensions.
#pragma once

#include <cstdint>
#include <optional>

#include <tandem/base/macros.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace nn::init {

/// While in scope, the random functions of this header do not change their tensors, if this thread calls them. Use it
/// to create modules whose weights are loaded next: creation is faster, and values are unspecified instead of random.
/// Arguments are still checked. PyTorch's torch.nn.utils.skip_init.
class TANDEM_API SkipGuard {
 public:
  SkipGuard() : context_(RankContext::current()), before_(context_.skip_init) { context_.skip_init = true; }
  ~SkipGuard() { context_.skip_init = before_; }
  SkipGuard(const SkipGuard&) = delete;
  SkipGuard& operator=(const SkipGuard&) = delete;

 private:
  RankContext& context_;
  bool before_;
};

/// Uniform in [a, b]. Throws ValueError unless a <= b.
TANDEM_API const Tensor& uniform_(const Tensor& tensor, double a = 0, double b = 1, Generator* generator = nullptr);
/// Normal with standard deviation `std`. Throws ValueError if it is negative.
TANDEM_API const Tensor& normal_(const Tensor& tensor, double mean = 0, double std = 1, Generator* generator = nullptr);
/// Normal, restricted to [a, b]. Throws ValueError unless std > 0 and a <= b. Computed in float64.
TANDEM_API const Tensor& trunc_normal_(const Tensor& tensor, double mean = 0, double std = 1, double a = -2,
                                       double b = 2, Generator* generator = nullptr);
/// `val` everywhere.
TANDEM_API const Tensor& constant_(const Tensor& tensor, Scalar val);
/// Zeros.
TANDEM_API const Tensor& zeros_(const Tensor& tensor);
/// Ones.
TANDEM_API const Tensor& ones_(const Tensor& tensor);
/// Ones on the diagonal, else zeros. Throws ShapeError unless `tensor` has 2 dimensions.
TANDEM_API const Tensor& eye_(const Tensor& tensor);
/// The weight [out, in / groups, ...] of a convolution with 1, 2 or 3 spatial dimensions whose result is its input, as
/// far as the numbers of channels allow: the middle tap of input channel c to output channel c of each group is 1.
/// Throws ShapeError for other numbers of dimensions, ValueError unless `groups` divides tensor.size(0).
TANDEM_API const Tensor& dirac_(const Tensor& tensor, int64_t groups = 1);

/// The fan of a weight that scales its initial values.
enum class Mode {
  kFanIn,   ///< keeps the variance in forward
  kFanOut,  ///< keeps the variance in backward
};

/// The function after a layer.
enum class Nonlinearity {
  kLinear,     ///< no nonlinearity
  kSigmoid,    ///< sigmoid
  kTanh,       ///< tanh
  kRelu,       ///< max(x, 0)
  kLeakyRelu,  ///< max(x, slope x)
  kSelu,       ///< selu
};

/// The factor of standard deviations for layers before a nonlinearity: 1 for linear functions and sigmoid, 5/3 for
/// tanh, sqrt(2) for ReLU, sqrt(2 / (1 + param^2)) for leaky ReLU, whose slope `param` is 0.01 by default, and 3/4 for
/// SELU.
TANDEM_API double calculate_gain(Nonlinearity nonlinearity, std::optional<double> param = {});

/// Uniform in [-b, b], b = gain sqrt(6 / (fan_in + fan_out)). X. Glorot, Y. Bengio, "Understanding the difficulty of
/// training deep feedforward neural networks", AISTATS 2010.
TANDEM_API const Tensor& xavier_uniform_(const Tensor& tensor, double gain = 1, Generator* generator = nullptr);
/// Normal with standard deviation gain sqrt(2 / (fan_in + fan_out)); as xavier_uniform_.
TANDEM_API const Tensor& xavier_normal_(const Tensor& tensor, double gain = 1, Generator* generator = nullptr);
/// Uniform in [-b, b], b = calculate_gain(nonlinearity, a) sqrt(3 / fan). K. He et al., "Delving deep into rectifiers",
/// ICCV 2015.
TANDEM_API const Tensor& kaiming_uniform_(const Tensor& tensor, double a = 0, Mode mode = Mode::kFanIn,
                                          Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu,
                                          Generator* generator = nullptr);
/// Normal with standard deviation calculate_gain(nonlinearity, a) / sqrt(fan); as kaiming_uniform_.
TANDEM_API const Tensor& kaiming_normal_(const Tensor& tensor, double a = 0, Mode mode = Mode::kFanIn,
                                         Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu,
                                         Generator* generator = nullptr);
/// gain times a uniformly distributed random matrix with orthonormal rows (orthonormal columns, if there are fewer
/// columns than rows); dimensions after the first count as columns. Computed on the CPU by QR. Throws ShapeError for
/// fewer than 2 dimensions. A. Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear
/// neural networks", 2013.
TANDEM_API const Tensor& orthogonal_(const Tensor& tensor, double gain = 1, Generator* generator = nullptr);
/// Normal with standard deviation `std`, with ceil(sparsity rows) random elements of each column set to 0. Throws
/// ShapeError unless `tensor` has 2 dimensions, ValueError unless 0 <= sparsity <= 1. J. Martens, "Deep learning via
/// Hessian-free optimization", ICML 2010.
TANDEM_API const Tensor& sparse_(const Tensor& tensor, double sparsity, double std = 0.01,
                                 Generator* generator = nullptr);

}}}  // namespace tandem::v0::nn::init

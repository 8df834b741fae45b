#include <tandem/nn/init.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <tandem/autograd/grad_mode.h>
#include <tandem/nn/deferred_init.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/linalg.h>
#include <tandem/ops/move.h>
#include <tandem/ops/random.h>
#include <tandem/ops/sort.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace nn::init {

namespace {

struct Fans {
  double in;
  double out;
};

void check_at_least_2d(const char* function, const Tensor& tensor) {
  TANDEM_CHECK(ShapeError, tensor.dim() >= 2, function, ": tensor has the shape ", tensor.shape(),
               ", expected at least 2 dimensions");
}

void check_2d(const char* function, const Tensor& tensor) {
  TANDEM_CHECK(ShapeError, tensor.dim() == 2, function, ": tensor has the shape ", tensor.shape(),
               ", expected 2 dimensions");
}

Fans fans_of(const char* function, const Tensor& tensor) {
  check_at_least_2d(function, tensor);
  double field = 1;
  for (int64_t d = 2; d < tensor.dim(); ++d) field *= static_cast<double>(tensor.size(d));
  return {static_cast<double>(tensor.size(1)) * field, static_cast<double>(tensor.size(0)) * field};
}

/// f(generator), with the generator `given`. Without one, draws the numbers of rank 0 at the position of this rank's
/// generator, so that initial values are equal on all ranks.
template <class F>
Tensor drawn(Generator* given, F f) {
  Generator& own = given != nullptr ? *given : default_generator(rank_device());
  if (given != nullptr || cuda::is_capturing()) return f(&own);  // a Graph keeps the generator
  Generator of_rank_0;
  of_rank_0.load_state_dict(own.state_dict());
  const Tensor values = f(&of_rank_0);
  own.load_state_dict(of_rank_0.state_dict());
  return values;
}

Tensor uniform_values(const Shape& shape, TensorOptions options, Generator* given) {
  return drawn(given, [&](Generator* generator) { return rand(shape, options, generator); });
}

Tensor normal_values(const Shape& shape, TensorOptions options, Generator* given) {
  return drawn(given, [&](Generator* generator) { return randn(shape, options, generator); });
}

/// Uniform with mean 0 and standard deviation `std`, which may be infinite for an empty tensor.
const Tensor& uniform_of_std_(const Tensor& tensor, double std, Generator* generator) {
  const double bound = std::sqrt(3.0) * std;
  return tensor.numel() == 0 ? tensor : uniform_(tensor, -bound, bound, generator);
}

double xavier_std(const char* function, const Tensor& tensor, double gain) {
  const Fans fans = fans_of(function, tensor);
  return gain * std::sqrt(2 / (fans.in + fans.out));
}

double kaiming_std(const char* function, const Tensor& tensor, double a, Mode mode, Nonlinearity nonlinearity) {
  const Fans fans = fans_of(function, tensor);
  return calculate_gain(nonlinearity, a) / std::sqrt(mode == Mode::kFanIn ? fans.in : fans.out);
}

bool is_skipped() { return RankContext::current().skip_init; }

double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

}  // namespace

const Tensor& uniform_(const Tensor& tensor, double a, double b, Generator* generator) {
  TANDEM_CHECK(ValueError, a <= b, "uniform_: a is ", a, ", b is ", b, ", expected a <= b");
  if (is_skipped() || defer_init(tensor, generator, [=](auto& t, auto* g) { uniform_(t, a, b, g); })) return tensor;
  const NoGradGuard no_grad;
  return tensor.copy_(uniform_values(tensor.shape(), tensor.options(), generator).mul_(b - a).add_(a));
}

const Tensor& normal_(const Tensor& tensor, double mean, double std, Generator* generator) {
  TANDEM_CHECK(ValueError, std >= 0, "normal_: std is ", std, ", expected >= 0");
  if (is_skipped() || defer_init(tensor, generator, [=](auto& t, auto* g) { normal_(t, mean, std, g); })) return tensor;
  const NoGradGuard no_grad;
  return tensor.copy_(normal_values(tensor.shape(), tensor.options(), generator).mul_(std).add_(mean));
}

const Tensor& trunc_normal_(const Tensor& tensor, double mean, double std, double a, double b, Generator* generator) {
  TANDEM_CHECK(ValueError, std > 0 && a <= b, "trunc_normal_: std is ", std, ", a is ", a, ", b is ", b,
               ", expected std > 0 and a <= b");
  const NoGradGuard no_grad;
  // The inverse of the distribution function at uniform values.
  const double low = 2 * normal_distribution((a - mean) / std) - 1;
  const double high = 2 * normal_distribution((b - mean) / std) - 1;
  TANDEM_CHECK(ValueError, high - low > 1e-9 || a == b, "trunc_normal_: the interval from a = ", a, " to b = ", b,
               " is too far from the mean ", mean, " for the standard deviation ", std);
  const auto again = [=](const Tensor& t, Generator* g) { trunc_normal_(t, mean, std, a, b, g); };
  if (is_skipped() || defer_init(tensor, generator, again)) return tensor;
  const Tensor values = uniform_values(tensor.shape(), {kFloat64, tensor.device()}, generator);
  values.mul_(high - low).add_(low);
  return tensor.copy_(values.erfinv().mul_(std * std::numbers::sqrt2).add_(mean).clamp_(a, b));
}

const Tensor& constant_(const Tensor& tensor, Scalar val) {
  if (defer_init(tensor, nullptr, [=](auto& t, auto*) { constant_(t, val); })) return tensor;
  const NoGradGuard no_grad;
  return tensor.fill_(val);
}

const Tensor& zeros_(const Tensor& tensor) { return constant_(tensor, 0); }

const Tensor& ones_(const Tensor& tensor) { return constant_(tensor, 1); }

const Tensor& eye_(const Tensor& tensor) {
  check_2d("eye_", tensor);
  if (defer_init(tensor, nullptr, [](auto& t, auto*) { eye_(t); })) return tensor;
  const NoGradGuard no_grad;
  return tensor.copy_(eye(tensor.size(0), tensor.size(1), tensor.options()));
}

const Tensor& dirac_(const Tensor& tensor, int64_t groups) {
  TANDEM_CHECK(ShapeError, tensor.dim() >= 3 && tensor.dim() <= 5, "dirac_: tensor has the shape ", tensor.shape(),
               ", expected 3, 4 or 5 dimensions");
  TANDEM_CHECK(ValueError, groups >= 1 && tensor.size(0) % groups == 0, "dirac_: groups is ", groups,
               ", expected a divisor of the ", tensor.size(0), " output channels");
  if (defer_init(tensor, nullptr, [=](auto& t, auto*) { dirac_(t, groups); })) return tensor;
  const NoGradGuard no_grad;
  tensor.zero_();
  const int64_t outputs = tensor.size(0) / groups;
  const int64_t ones = std::min(outputs, tensor.size(1));
  Tensor middle = tensor;
  for (int64_t d = tensor.dim() - 1; d >= 2; --d) middle = middle.select(d, tensor.size(d) / 2);
  for (int64_t group = 0; ones > 0 && group < groups; ++group)
    middle.narrow(0, group * outputs, ones).narrow(1, 0, ones).diagonal().fill_(1);
  return tensor;
}

double calculate_gain(Nonlinearity nonlinearity, std::optional<double> param) {
  switch (nonlinearity) {
    case Nonlinearity::kLinear:
    case Nonlinearity::kSigmoid: return 1;
    case Nonlinearity::kTanh: return 5.0 / 3;
    case Nonlinearity::kRelu: return std::numbers::sqrt2;
    case Nonlinearity::kLeakyRelu: {
      const double slope = param.value_or(0.01);
      return std::sqrt(2 / (1 + slope * slope));
    }
    case Nonlinearity::kSelu: return 0.75;
  }
  throw ValueError(str("calculate_gain: unknown nonlinearity ", static_cast<int>(nonlinearity)));
}

const Tensor& xavier_uniform_(const Tensor& tensor, double gain, Generator* generator) {
  return uniform_of_std_(tensor, xavier_std("xavier_uniform_", tensor, gain), generator);
}

const Tensor& xavier_normal_(const Tensor& tensor, double gain, Generator* generator) {
  return normal_(tensor, 0, xavier_std("xavier_normal_", tensor, gain), generator);
}

const Tensor& kaiming_uniform_(const Tensor& tensor, double a, Mode mode, Nonlinearity nonlinearity,
                               Generator* generator) {
  return uniform_of_std_(tensor, kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity), generator);
}

const Tensor& kaiming_normal_(const Tensor& tensor, double a, Mode mode, Nonlinearity nonlinearity,
                              Generator* generator) {
  return normal_(tensor, 0, kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity), generator);
}

const Tensor& orthogonal_(const Tensor& tensor, double gain, Generator* generator) {
  check_at_least_2d("orthogonal_", tensor);
  if (tensor.numel() == 0 || is_skipped()) return tensor;
  if (defer_init(tensor, generator, [=](auto& t, auto* g) { orthogonal_(t, gain, g); })) return tensor;
  const NoGradGuard no_grad;
  const int64_t rows = tensor.size(0), columns = tensor.numel() / rows;
  const DType dtype = tensor.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor normal = normal_values({rows, columns}, {dtype, Device()}, generator);
  const auto [Q, R] = linalg::qr(rows < columns ? normal.t() : normal);
  // The signs of R's diagonal make the distribution uniform.
  const Tensor orthogonal = Q * R.diagonal().sign() * gain;
  return tensor.copy_((rows < columns ? orthogonal.t() : orthogonal).reshape(tensor.shape()).to(tensor.device()));
}

const Tensor& sparse_(const Tensor& tensor, double sparsity, double std, Generator* generator) {
  check_2d("sparse_", tensor);
  TANDEM_CHECK(ValueError, sparsity >= 0 && sparsity <= 1, "sparse_: sparsity is ", sparsity,
               ", expected 0 <= sparsity <= 1");
  const auto again = [=](const Tensor& t, Generator* g) { sparse_(t, sparsity, std, g); };
  if (is_skipped() || defer_init(tensor, generator, again)) return tensor;
  normal_(tensor, 0, std, generator);
  const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(tensor.size(0))));
  const NoGradGuard no_grad;
  // The order of random numbers is a random permutation of the rows of each column.
  const Tensor order = uniform_values(tensor.shape(), {kFloat32, tensor.device()}, generator).argsort(0);
  return tensor.scatter_(0, order.narrow(0, 0, zeros), 0);
}

}}}  // namespace tandem::v0::nn::init

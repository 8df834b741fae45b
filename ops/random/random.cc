#include <tandem/ops/random.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/random/random_kernels.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

PhiloxState reserve(Generator* given, Device device, int64_t words) {
  return (given != nullptr ? *given : default_generator(device)).reserve(words, device);
}

Tensor finished(Tensor out, const TensorOptions& options) {
  if (options.requires_grad) out.requires_grad_();
  return out;
}

void check_result_dtype(const char* op, DType dtype) {
  TANDEM_CHECK(DTypeError, is_floating_point(dtype), op, ": dtype is ", dtype, ", expected a floating-point dtype");
}

/// The smallest and the largest integer of the range in which the dtype represents all integers.
std::pair<int64_t, int64_t> integer_range(DType dtype) {
  const auto up_to = [](int64_t largest) { return std::pair(-largest, largest); };
  switch (dtype) {
    case kBFloat16: return up_to(int64_t{1} << 8);
    case kFloat16: return up_to(int64_t{1} << 11);
    case kFloat32: return up_to(int64_t{1} << 24);
    case kFloat64: return up_to(int64_t{1} << 53);
    default:
      return visit_integral_dtype(dtype, []<class T>() -> std::pair<int64_t, int64_t> {
        return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
      });
  }
}

/// fill(), which writes all elements of `self`, as the in-place form `op`.
template <class Fill>
const Tensor& overwritten(const char* op, const Tensor& self, Fill fill) {
  const Call call(op, {{"self", self}});
  check_in_place(op, self, self.dtype());
  begin_in_place(op, self);
  record_overwrite(op, self);
  const NoGradGuard no_grad;
  fill();
  autograd::end_in_place(op, self);
  return self;
}

/// self = make(dtype), converted. `dtype` is the dtype of the computed numbers: at least float32.
template <class Make>
const Tensor& overwrite(const char* op, const Tensor& self, Make make) {
  return overwritten(op, self, [&] {
    primitives::copy(make(TensorOptions{promote(self.dtype(), kFloat32), self.device()}), self);
  });
}

/// self = draw(shape), by blocks, which draw the same numbers as at once in less memory; on GPUs each takes several
/// launches. `dtype` holds the numbers if `self` is not contiguous.
template <class Draw>
void fill_by_blocks(const Tensor& self, DType dtype, Draw draw) {
  const int64_t block = int64_t{1} << (self.device().is_cpu() ? 20 : 25);
  const int64_t n = self.numel();
  const Tensor out = self.is_contiguous() ? self.detach().view({n}) : empty({n}, {dtype, self.device()});
  for (int64_t i = 0; i < n; i += block) {
    const Tensor part = out.slice(0, i, i + block);
    primitives::copy(draw(part.shape()), part);
  }
  if (!self.is_contiguous()) primitives::copy(out.view(self.shape()), self);
}

void check_floating_self(const char* op, const Tensor& self) {
  TANDEM_CHECK(DTypeError, !self.defined() || is_floating_point(self.dtype()),
               operand_error(op, "self must be floating", {{"self", self}}));
}

/// The largest number of the dtype below `value`, rounded to the dtype.
double next_below(DType dtype, double value) {
  return visit_floating_dtype(dtype, [&]<class T>() -> double {
    const T rounded = static_cast<T>(value);
    if constexpr (kIsHalf<T>) {
      T below;
      const bool is_zero = (rounded.bits & 0x7fff) == 0;
      below.bits = static_cast<uint16_t>(is_zero                 ? 0x8001
                                         : rounded.bits & 0x8000 ? rounded.bits + 1
                                                                 : rounded.bits - 1);
      return below;
    } else {
      return std::nextafter(rounded, -std::numeric_limits<T>::infinity());
    }
  });
}

}  // namespace

Tensor rand(const Shape& shape, TensorOptions options, Generator* generator) {
  check_result_dtype("rand", options.dtype);
  const Tensor out = empty(shape, {options.dtype, options.device});
  const Call call("rand", {{"out", out}});
  const int64_t n = out.numel();
  TANDEM_KERNEL(call, uniform, options.dtype, reserve(generator, options.device, n * words_per_uniform(options.dtype)),
                n, out.data_ptr());
  return finished(out, options);
}

Tensor randn(const Shape& shape, TensorOptions options, Generator* generator) {
  check_result_dtype("randn", options.dtype);
  const Tensor out = empty(shape, {options.dtype, options.device});
  const Call call("randn", {{"out", out}});
  const int64_t n = out.numel(), pairs = (n + 1) / 2;
  TANDEM_KERNEL(call, normal, options.dtype,
                reserve(generator, options.device, 2 * pairs * words_per_uniform(options.dtype)), n, out.data_ptr());
  return finished(out, options);
}

Tensor rand_like(const Tensor& input, Generator* generator) {
  const Call call("rand_like", {{"input", input}});
  return rand(input.shape(), input.options(), generator);
}

Tensor randn_like(const Tensor& input, Generator* generator) {
  const Call call("randn_like", {{"input", input}});
  return randn(input.shape(), input.options(), generator);
}

Tensor normal(double mean, double std, const Shape& shape, TensorOptions options, Generator* generator) {
  check_result_dtype("normal", options.dtype);
  const Tensor out = empty(shape, {options.dtype, options.device});
  out.normal_(mean, std, generator);
  return finished(out, options);
}

Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator) {
  const Call call("normal", {{"mean", mean}, {"std", std}});
  const DType dtype = promote(mean.dtype(), std.dtype());
  check_floating("normal", {"mean", is_floating_point(dtype) ? to(mean, dtype) : mean});
  const TensorOptions options = {dtype, mean.device()};
  return randn(ops::broadcast_shape("normal", call.operands), options, generator)
      .mul_(std.detach())
      .add_(mean.detach());
}
Tensor normal(const Tensor& mean, double std, Generator* generator) {
  check_floating("normal", {"mean", mean});
  return randn(mean.shape(), mean.options(), generator).mul_(std).add_(mean.detach());
}
Tensor normal(double mean, const Tensor& std, Generator* generator) {
  check_floating("normal", {"std", std});
  return randn(std.shape(), std.options(), generator).mul_(std.detach()).add_(mean);
}

Tensor Tensor::multinomial(int64_t num_samples, bool replacement, Generator* generator) const {
  return tandem::multinomial(*this, num_samples, replacement, generator);
}
const Tensor& Tensor::normal_(double mean, double std, Generator* generator) const {
  check_floating_self("normal_", *this);
  TANDEM_CHECK(ValueError, std >= 0, "normal_: std is ", std, ", expected at least 0");
  return overwrite("normal_", *this,
                   [&](TensorOptions o) { return randn(shape(), o, generator).mul_(std).add_(mean); });
}

const Tensor& Tensor::uniform_(double from, double to, Generator* generator) const {
  check_floating_self("uniform_", *this);
  TANDEM_CHECK(ValueError, from <= to, "uniform_: from must not be above to, they are ", from, " and ", to);
  const double range = dtype() == kFloat64 ? to - from : static_cast<double>(static_cast<float>(to - from));
  TANDEM_CHECK(ValueError, std::isfinite(range), "uniform_: to - from is ", to - from, ", too large for ", dtype());
  const double largest = std::max(next_below(dtype(), to), from);  // a sum may round up to the excluded bound
  return overwritten("uniform_", *this, [&] {
    fill_by_blocks(*this, dtype(), [&](const Shape& shape) {
      const Tensor drawn = rand(shape, options(), generator);  // fewer bits for half types, so that 1 is not drawn
      return tandem::to(drawn, promote(dtype(), kFloat32)).mul_(to - from).add_(from).clamp_max_(largest);
    });
  });
}

const Tensor& Tensor::bernoulli_(double p, Generator* generator) const {
  TANDEM_CHECK(ValueError, p >= 0 && p <= 1, "bernoulli_: p is ", p, ", expected 0 <= p <= 1");
  return overwritten("bernoulli_", *this, [&] {
    fill_by_blocks(*this, kBool, [&](const Shape& shape) {
      return tandem::lt(rand(shape, {kFloat64, device()}, generator), p);
    });
  });
}

const Tensor& Tensor::exponential_(double lambd, Generator* generator) const {
  check_floating_self("exponential_", *this);
  TANDEM_CHECK(ValueError, lambd > 0, "exponential_: lambd is ", lambd, ", expected a positive number");
  return overwrite("exponential_", *this, [&](TensorOptions o) {  // 1 - u is exact
    const double half_step = o.dtype == kFloat64 ? 0x1p-54 : 0x1p-25, smallest = -next_below(dtype(), 0);
    const Tensor log = rand(shape(), o, generator).neg_().add_(1).log_().clamp_max_(-half_step);
    return log.div_(-lambd).clamp_min_(smallest);
  });
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options, Generator* generator) {
  TANDEM_CHECK(ValueError, low < high, "randint: low must be below high, they are ", low, " and ", high);
  TANDEM_CHECK(DTypeError, options.dtype != kBool, "randint: the dtype must not be bool");
  const auto [smallest, largest] = integer_range(options.dtype);
  TANDEM_CHECK(ValueError, low >= smallest && high - 1 <= largest, "randint: [", low, ", ", high, ") does not fit ",
               options.dtype);
  const Tensor out = empty(shape, {options.dtype, options.device});
  const Call call("randint", {{"out", out}});
  const int64_t n = out.numel();
  const bool is_floating = is_floating_point(options.dtype);
  const Tensor drawn = is_floating ? empty(shape, {kInt64, options.device}) : out;
  TANDEM_KERNEL(call, integers, drawn.dtype(), reserve(generator, options.device, 2 * n), low,
                static_cast<uint64_t>(high) - static_cast<uint64_t>(low), n, drawn.data_ptr());
  if (is_floating) primitives::copy(drawn, out);
  return finished(out, options);
}

Tensor randint(int64_t high, const Shape& shape, TensorOptions options, Generator* generator) {
  return randint(0, high, shape, options, generator);
}

Tensor randperm(int64_t n, Device device, Generator* generator) {
  TANDEM_CHECK(ValueError, n >= 0, "randperm: n is ", n, ", expected at least 0");
  const Tensor out = empty({n}, {kInt64, device});
  const Call call("randperm", {{"out", out}});
  const PhiloxState state = reserve(generator, device, 2 * n);
  if (device.is_cpu()) {
    cpu::permutation(call, state, n, out.data<int64_t>());
  } else {  // swaps depend on each other: on a GPU this would take longer than the copy
    const Tensor made = empty({n}, {kInt64});
    cpu::permutation(made.device(), state, n, made.data<int64_t>());
    primitives::copy(made, out);
  }
  return out;
}

Tensor bernoulli(const Tensor& p, Generator* generator) {
  const Call call("bernoulli", {{"p", p}}, DTypes::kFloating);
  const Tensor dense = row_major(p);
  const int64_t n = p.numel();
  TANDEM_KERNEL(call, check_probabilities, p.dtype(), n, dense.data_ptr());
  const Tensor out = empty(p.shape(), p.options());
  TANDEM_KERNEL(call, bernoulli, p.dtype(), reserve(generator, p.device(), 2 * n), n, dense.data_ptr(), out.data_ptr());
  return out;
}

Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement, Generator* generator) {
  const Call call("multinomial", {{"input", input}}, DTypes::kFloating);
  call.require(input.dim() == 1 || input.dim() == 2, "input must be [N, C] or [C]");
  call.require<ValueError>(num_samples >= 1, "num_samples is ", num_samples, ", must be at least 1");
  const int64_t classes = input.size(-1);
  const int64_t rows = input.dim() == 1 ? 1 : input.size(0);
  Tensor weights = row_major(input.detach());
  TANDEM_KERNEL(call, check_weights, weights.dtype(), rows, classes, replacement ? 1 : num_samples, weights.data_ptr());
  if (weights.dtype() == kFloat64 && weights.numel() > 0) {
    // Rows are scaled by powers of two, so that sums and keys neither overflow nor become subnormal. The number that is
    // added keeps positive weights positive; it changes only weights below 2^-900 of another weight of their row.
    const Tensor is_small = lt(amax(weights, {-1}, true), 0x1p100), up = full({}, 0x1p124, weights.options());
    weights = add(mul(weights, where(is_small, up, 0x1p-124)), mul(tandem::to(gt(weights, 0), kFloat64), 0x1p-1018));
  }

  Shape shape = input.shape();
  shape.back() = num_samples;
  const Tensor out = empty(shape, {kInt64, input.device()});
  const Tensor workspace = empty({rows, classes}, {kFloat64, input.device()});
  const PhiloxState state = reserve(generator, input.device(), 2 * rows * (replacement ? num_samples : classes));
  TANDEM_KERNEL(call, multinomial, weights.dtype(), state, rows, classes, num_samples, replacement, weights.data_ptr(),
                workspace.data<double>(), out.data<int64_t>());
  return out;
}

namespace {

/// x under the mask drawn from `state`, recorded; its backward is the same function.
Tensor masked(const Tensor& x, PhiloxState state, double p) {
  const Tensor dense = row_major(x);
  const Tensor out = empty(x.shape(), x.options());
  TANDEM_KERNEL(kernel_context(x.device()), dropout, x.dtype(), state, static_cast<uint64_t>(std::llround(p * 0x1p32)),
                p == 1 ? 0 : 1 / (1 - p), x.numel(), dense.data_ptr(), out.data_ptr());
  // step_block holds the memory of state.of_step.
  record_gradient("dropout", out, {&x}, [state, block = cuda::step_block(x.device()), p](const Tensor& grad) {
    return masked(grad, state, p);
  });
  return out;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
  const Call call("dropout", {{"x", x}}, DTypes::kFloating);
  TANDEM_CHECK(ValueError, p >= 0 && p <= 1, "dropout: p is ", p, ", expected 0 <= p <= 1");
  if (!training || p == 0) return x;
  return masked(x, reserve(generator, x.device(), x.numel()), p);
}

namespace {

/// Dropout of inputs with `dims` dimensions before those that share a value.
Tensor dropout_channels(const char* op, const char* shapes, bool fits, int64_t dims, const Tensor& input, double p,
                        bool training, Generator* generator) {
  const Call call(op, {{"input", input}}, DTypes::kFloating);
  call.require(fits, "input must be ", shapes);
  TANDEM_CHECK(ValueError, p >= 0 && p <= 1, op, ": p is ", p, ", expected 0 <= p <= 1");
  if (!training || p == 0) return input;
  Shape shape = input.shape();
  for (int64_t d = dims; d < shape.dim(); ++d) shape[static_cast<size_t>(d)] = 1;
  const Tensor factors = dropout(ones(shape, {promote(input.dtype(), kFloat32), input.device()}), p, true, generator);
  return to(mul(input, factors), input.dtype());
}

}  // namespace

Tensor dropout1d(const Tensor& input, double p, bool training, Generator* generator) {
  const int64_t dim = input.defined() ? input.dim() : 0;
  return dropout_channels("dropout1d", "[N, C, L] or [C, L]", dim == 2 || dim == 3, dim - 1, input, p, training,
                          generator);
}

Tensor dropout2d(const Tensor& input, double p, bool training, Generator* generator) {
  const int64_t dim = input.defined() ? input.dim() : 0;
  return dropout_channels("dropout2d", "[N, C, H, W] or [N, C, L]", dim == 3 || dim == 4, 2, input, p, training,
                          generator);
}

}}  // namespace tandem::v0

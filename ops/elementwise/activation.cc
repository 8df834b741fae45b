#include <tandem/ops/activation.h>

#include <cmath>

#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_op.h>
#include <tandem/ops/elementwise/math_functions.h>
#include <tandem/ops/math.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

TANDEM_ACTIVATION_FUNCTIONS(TANDEM_DEFINE_UNARY)

Tensor gelu(Tensor input, GeluApproximation approximation) {
  return ops::unary(functions::Gelu{{}, approximation}, std::move(input));
}

Tensor ops::gelu_backward(const Tensor& grad, const Tensor& input, GeluApproximation approximation) {
  return unary_backward(functions::Gelu{{}, approximation}, grad, input);
}

Tensor leaky_relu(Tensor input, double negative_slope) {
  return ops::unary(functions::LeakyRelu{{}, negative_slope}, std::move(input));
}

Tensor prelu(Tensor input, Tensor weight) {
  const ops::Call call("prelu", CastPolicy::kLowPrecision, {{"input", &input}, {"weight", &weight}},
                       ops::DTypes::kFloating);
  ops::check_same_dtype("prelu", call.operands);
  const int64_t channels = input.dim() > 1 ? input.size(1) : 1;
  call.require(weight.dim() <= 1 && (weight.numel() == 1 || weight.numel() == channels),
               "weight must have 1 element, or ", channels, " (channels)");
  Shape shape(input.shape().size(), 1);
  if (shape.size() > 1) shape[1] = weight.numel();
  return where(gt(input, 0), input, mul(input, reshape(weight, shape)));
}

Tensor elu(Tensor input, double alpha) { return ops::unary(functions::Elu{{}, alpha, 1}, std::move(input)); }

Tensor selu(Tensor input) {
  const ops::Call call("selu", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  return ops::unary(functions::Elu{{}, 1.6732632423543772848, 1.0507009873554804934}, std::move(input));
}

Tensor celu(Tensor input, double alpha) {
  const ops::Call call("celu", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  TANDEM_CHECK(ValueError, alpha != 0, "celu: alpha must not be 0");
  return ops::unary(functions::Elu{{}, alpha, 1, 1 / alpha}, std::move(input));
}

Tensor hardsigmoid(Tensor input) {
  const ops::Call call("hardsigmoid", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  return ops::in_float32(input, [](const Tensor& x) { return div(clamp(add(x, 3), 0, 6), 6); });
}

Tensor hardtanh(Tensor input, double min_val, double max_val) {
  const ops::Call call("hardtanh", CastPolicy::kWidest, {{"input", &input}});
  const auto bound = [&](double value) {
    return is_integral(input.dtype()) ? Scalar(static_cast<int64_t>(value)) : Scalar(value);
  };
  return ops::unary(functions::Clamp{{}, bound(min_val), bound(max_val), true}, input);
}

Tensor relu6(Tensor input) {
  const ops::Call call("relu6", CastPolicy::kWidest, {{"input", &input}});
  return ops::unary(functions::Clamp{{}, 0, 6, true}, input);
}

Tensor softplus(Tensor input, double beta, double threshold) {
  cast_for(CastPolicy::kFloat32, {&input});
  return ops::unary(functions::Softplus{{}, beta, threshold}, std::move(input));
}

Tensor logsigmoid(Tensor input) {
  const ops::Call call("logsigmoid", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  return ops::unary(functions::Softplus{{}, -1, INFINITY}, std::move(input));
}

Tensor mish(Tensor input) {
  const ops::Call call("mish", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  return ops::in_float32(input, [](const Tensor& x) { return mul(x, tanh(ops::unary(functions::Softplus{}, x))); });
}

Tensor softsign(Tensor input) {
  const ops::Call call("softsign", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  return ops::in_float32(input, [](const Tensor& x) { return div(x, add(abs(x), 1)); });
}

Tensor glu(Tensor input, int64_t dim) {
  const ops::Call call("glu", CastPolicy::kWidest, {{"input", &input}}, ops::DTypes::kFloating);
  dim = wrap_dim("glu", dim, input.dim());
  const int64_t half = input.size(dim) / 2;
  call.require<ValueError>(input.size(dim) == 2 * half, "the size of dimension ", dim, " must be even");
  return ops::in_float32(
      input, [&](const Tensor& x) { return mul(slice(x, dim, 0, half), sigmoid(slice(x, dim, half, 2 * half))); });
}

Tensor gumbel_softmax(Tensor logits, double tau, bool hard, int64_t dim, Generator* generator) {
  const ops::Call call("gumbel_softmax", CastPolicy::kFloat32, {{"logits", &logits}}, ops::DTypes::kFloating);
  TANDEM_CHECK(ValueError, tau > 0, "gumbel_softmax: tau is ", tau, ", expected a positive number");
  dim = wrap_dim("gumbel_softmax", dim, logits.dim());
  // Half a step instead of 0, whose noise would be infinite.
  const Tensor uniform = rand(logits.shape(), {kFloat32, logits.device()}, generator).clamp_min_(0x1p-25);
  const Tensor noise = neg(log(neg(log(uniform))));
  const Tensor soft =
      ops::in_float32(logits, [&](const Tensor& x) { return softmax(div(add(x, to(noise, x.dtype())), tau), dim); });
  if (!hard) return soft;
  Shape shape(logits.shape().size(), 1);
  if (logits.dim() > 0) shape[static_cast<size_t>(dim)] = logits.size(dim);
  const Tensor index = reshape(arange(0, logits.numel() == 0 ? 0 : num_elements(shape), 1, logits.device()), shape);
  const Tensor chosen = to(eq(index, argmax(soft.detach(), dim, true)), soft.dtype());
  return add(sub(chosen, soft.detach()), soft);
}

}}  // namespace tandem::v0

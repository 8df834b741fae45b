#include <tandem/nn/norm.h>

#include <algorithm>
#include <cmath>

#include <tandem/autograd/checkpoint.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/norm.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

void check_eps(const char* layer, double eps) {
  TANDEM_CHECK(ValueError, std::isfinite(eps) && eps > 0, layer, ": eps is ", eps, ", expected a finite number > 0");
}

void check_momentum(double momentum) {
  TANDEM_CHECK(ValueError, momentum >= 0 && momentum <= 1, "BatchNorm2d: momentum is ", momentum,
               ", expected 0 <= momentum <= 1");
}

/// Checks all arguments and returns [num_features].
Shape channels(int64_t num_features, const BatchNorm2dOptions& options) {
  TANDEM_CHECK(ValueError, num_features >= 1, "BatchNorm2d: num_features is ", num_features, ", expected at least 1");
  check_eps("BatchNorm2d", options.eps);
  check_momentum(options.momentum);
  return {num_features};
}

const Shape& checked(const Shape& shape, double eps) {
  TANDEM_CHECK(ValueError,
               shape.dim() >= 1 && std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n >= 1; }),
               "LayerNorm: normalized_shape is ", shape, ", expected at least one dimension and sizes of at least 1");
  check_eps("LayerNorm", eps);
  return shape;
}

}  // namespace

BatchNorm2d::BatchNorm2d(int64_t num_features, BatchNorm2dOptions options)
    : weight(add_parameter("weight", options.affine ? ones(channels(num_features, options)) : Tensor())),
      bias(add_parameter("bias", options.affine ? zeros({num_features}) : Tensor())),
      running_mean(add_buffer("running_mean", zeros(channels(num_features, options)))),
      running_var(add_buffer("running_var", ones({num_features}))),
      num_batches_tracked(add_buffer("num_batches_tracked", zeros({}, {kInt64}))),
      options_(options) {}

void BatchNorm2d::check(const Tensor& input) const {
  TANDEM_CHECK(ShapeError, input.dim() == 4, "BatchNorm2d: input is ", describe(input), ", expected [N, C, H, W]");
}

void BatchNorm2d::count() const {
  if (is_training() && !autograd::is_recomputing()) num_batches_tracked.add_(1);
}

Tensor BatchNorm2d::forward(const Tensor& input) {
  check(input);
  const auto norm = options_.relu ? &batch_norm_relu : &batch_norm;
  Tensor result = norm(input, running_mean, running_var, weight, bias, is_training(), options_.momentum, options_.eps);
  count();
  return result;
}

Tensor BatchNorm2d::add_relu(const Tensor& input, const Tensor& residual) {
  return call(input, [&](const Tensor& x) {
    check(x);
    Tensor result = batch_norm_add_relu(x, residual, running_mean, running_var, weight, bias, is_training(),
                                        options_.momentum, options_.eps);
    count();
    return result;
  });
}

void BatchNorm2d::set_momentum(double momentum) {
  check_momentum(momentum);
  options_.momentum = momentum;
}

std::string BatchNorm2d::extra_repr() const {
  std::string text = str(running_mean.size(0));
  if (options_.eps != BatchNorm2dOptions().eps) text += str(", eps ", options_.eps);
  if (options_.momentum != BatchNorm2dOptions().momentum) text += str(", momentum ", options_.momentum);
  if (!options_.affine) text += ", not affine";
  if (options_.relu) text += ", relu";
  return text;
}

LayerNorm::LayerNorm(const Shape& normalized_shape, LayerNormOptions options)
    : weight(add_parameter("weight", options.affine ? ones(checked(normalized_shape, options.eps)) : Tensor())),
      bias(add_parameter("bias", options.affine && options.bias ? zeros(normalized_shape) : Tensor())),
      normalized_shape_(checked(normalized_shape, options.eps)),
      options_(options) {}

Tensor LayerNorm::forward(const Tensor& input) {
  return layer_norm(input, normalized_shape_, weight, bias, options_.eps, options_.low_precision_result);
}

std::pair<Tensor, Tensor> LayerNorm::add_forward(const Tensor& input, const Tensor& other) {
  return add_layer_norm(input, other, normalized_shape_, weight, bias, options_.eps, options_.low_precision_result);
}

std::string LayerNorm::extra_repr() const {
  std::string text = normalized_shape_.dim() == 1 ? str(normalized_shape_[0]) : str(normalized_shape_);
  if (options_.eps != LayerNormOptions().eps) text += str(", eps ", options_.eps);
  if (options_.low_precision_result) text += ", low-precision result";
  if (!weight.defined()) text += ", not affine";
  if (weight.defined() && !bias.defined()) text += ", no bias";
  return text;
}

}}}  // namespace tandem::v0::nn

#include <tandem/nn/norm.h>

#include <algorithm>
#include <cmath>

#include <tandem/autograd/checkpoint.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

void check_eps(const char* layer, double eps) {
  TANDEM_CHECK(ValueError, std::isfinite(eps) && eps > 0, layer, ": eps is ", eps, ", expected a finite number > 0");
}

void check_momentum(const char* layer, std::optional<double> momentum) {
  TANDEM_CHECK(ValueError, !momentum || (*momentum >= 0 && *momentum <= 1), layer, ": momentum is ", *momentum,
               ", expected 0 <= momentum <= 1");
}

/// Checks all arguments and returns [num_features].
Shape channels(const char* layer, int64_t num_features, const BatchNormOptions& options) {
  TANDEM_CHECK(ValueError, num_features >= 1, layer, ": num_features is ", num_features, ", expected at least 1");
  check_eps(layer, options.eps);
  check_momentum(layer, options.momentum);
  return {num_features};
}

Shape channels_of_groups(int64_t num_groups, int64_t num_channels, const GroupNormOptions& options) {
  TANDEM_CHECK(ValueError, num_groups >= 1 && num_channels >= 1, "GroupNorm: num_groups is ", num_groups,
               " and num_channels ", num_channels, ", expected at least 1 each");
  TANDEM_CHECK(ValueError, num_channels % num_groups == 0, "GroupNorm: num_channels is ", num_channels,
               ", expected a multiple of num_groups, ", num_groups);
  check_eps("GroupNorm", options.eps);
  return {num_channels};
}

const Shape& checked(const char* layer, const Shape& shape, std::optional<double> eps) {
  TANDEM_CHECK(ValueError,
               shape.dim() >= 1 && std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n >= 1; }), layer,
               ": normalized_shape is ", shape, ", expected at least one dimension and sizes of at least 1");
  if (eps) check_eps(layer, *eps);
  return shape;
}

Tensor ones_if(bool exists, const Shape& shape) { return exists ? ones(shape) : Tensor(); }
Tensor zeros_if(bool exists, const Shape& shape, TensorOptions options = {}) {
  return exists ? zeros(shape, options) : Tensor();
}

/// "8" for one dimension.
std::string text_of(const Shape& shape) { return shape.dim() == 1 ? str(shape[0]) : str(shape); }

BatchNormOptions as_batch_norm(const InstanceNormOptions& options) {
  return {.eps = options.eps,
          .momentum = options.momentum,
          .affine = options.affine,
          .track_running_stats = options.track_running_stats};
}

}  // namespace

ChannelNorm::ChannelNorm(const char* type, InputShape input_shape, int64_t num_features,
                         const BatchNormOptions& options, const BatchNormOptions& defaults)
    : weight(add_parameter("weight", ones_if(options.affine, channels(type, num_features, options)))),
      bias(add_parameter("bias", zeros_if(options.affine, {num_features}))),
      running_mean(add_buffer("running_mean", zeros_if(options.track_running_stats, {num_features}))),
      running_var(add_buffer("running_var", ones_if(options.track_running_stats, {num_features}))),
      num_batches_tracked(add_buffer("num_batches_tracked", zeros_if(options.track_running_stats, {}, {kInt64}))),
      type_(type),
      input_shape_(input_shape),
      num_features_(num_features),
      options_(options),
      defaults_(defaults) {}

void ChannelNorm::check_input(const Tensor& input) const {
  TANDEM_CHECK(ShapeError, input.dim() >= input_shape_.min_dims && input.dim() <= input_shape_.max_dims, type_,
               ": input is ", describe(input), ", expected ", input_shape_.text);
}

void ChannelNorm::set_momentum(std::optional<double> momentum) {
  check_momentum(type_, momentum);
  options_.momentum = momentum;
}

std::string ChannelNorm::extra_repr() const {
  std::string text = str(num_features_);
  if (options_.eps != defaults_.eps) text += str(", eps ", options_.eps);
  if (!options_.momentum) text += ", cumulative average";
  if (options_.momentum && options_.momentum != defaults_.momentum) text += str(", momentum ", *options_.momentum);
  if (options_.affine != defaults_.affine) text += options_.affine ? ", affine" : ", not affine";
  if (options_.track_running_stats != defaults_.track_running_stats)
    text += options_.track_running_stats ? ", running statistics" : ", no running statistics";
  return text + activation_text(options_.activation);
}

double BatchNormBase::call_momentum() const {
  if (options().momentum) return *options().momentum;
  if (!is_training() || !num_batches_tracked.defined()) return 0;
  return 1 / (num_batches_tracked.item<double>() + 1);
}

void BatchNormBase::count() const {
  if (is_training() && num_batches_tracked.defined() && !autograd::is_recomputing()) num_batches_tracked.add_(1);
}

Tensor BatchNormBase::forward(const Tensor& input) {
  check_input(input);
  const Activation activation = options().activation;
  const auto norm = activation == Activation::kRelu6  ? &batch_norm_relu6
                    : activation == Activation::kRelu ? &batch_norm_relu
                                                      : &batch_norm;
  Tensor result =
      norm(input, running_mean, running_var, weight, bias, uses_batch_statistics(), call_momentum(), options().eps);
  count();
  return norm == &batch_norm ? activate(result, activation) : result;
}

Tensor BatchNormBase::add_relu(const Tensor& input, const Tensor& residual) {
  return call(input, [&](const Tensor& x) {
    check_input(x);
    Tensor result = batch_norm_add_relu(x, residual, running_mean, running_var, weight, bias, uses_batch_statistics(),
                                        call_momentum(), options().eps);
    count();
    return result;
  });
}

InstanceNormBase::InstanceNormBase(const char* type, InputShape input_shape, int64_t num_features,
                                   const InstanceNormOptions& options)
    : ChannelNorm(type, input_shape, num_features, as_batch_norm(options), as_batch_norm({})),
      sample_dims_(input_shape.min_dims) {}

Tensor InstanceNormBase::forward(const Tensor& input) {
  check_input(input);
  const bool is_sample = input.dim() == sample_dims_;
  const Tensor result = instance_norm(is_sample ? input.unsqueeze(0) : input, running_mean, running_var, weight, bias,
                                      is_training() || !running_mean.defined(), momentum().value_or(0), options().eps);
  return is_sample ? result.squeeze(0) : result;
}

GroupNorm::GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormOptions options)
    : weight(add_parameter("weight", ones_if(options.affine, channels_of_groups(num_groups, num_channels, options)))),
      bias(add_parameter("bias", zeros_if(options.affine, {num_channels}))),
      num_groups_(num_groups),
      num_channels_(num_channels),
      options_(options) {}

Tensor GroupNorm::forward(const Tensor& input) { return group_norm(input, num_groups_, weight, bias, options_.eps); }

std::string GroupNorm::extra_repr() const {
  std::string text = str(num_groups_, ", ", num_channels_);
  if (options_.eps != GroupNormOptions().eps) text += str(", eps ", options_.eps);
  if (!options_.affine) text += ", not affine";
  return text;
}

LayerNorm::LayerNorm(const Shape& normalized_shape, LayerNormOptions options)
    : weight(add_parameter("weight", ones_if(options.affine, checked("LayerNorm", normalized_shape, options.eps)))),
      bias(add_parameter("bias", zeros_if(options.affine && options.bias, normalized_shape))),
      normalized_shape_(normalized_shape),
      options_(options) {}

Tensor LayerNorm::forward(const Tensor& input) {
  return layer_norm(input, normalized_shape_, weight, bias, options_.eps, options_.low_precision_result);
}

std::pair<Tensor, Tensor> LayerNorm::add_forward(const Tensor& input, const Tensor& other) {
  return add_layer_norm(input, other, normalized_shape_, weight, bias, options_.eps, options_.low_precision_result);
}

std::string LayerNorm::extra_repr() const {
  std::string text = text_of(normalized_shape_);
  if (options_.eps != LayerNormOptions().eps) text += str(", eps ", options_.eps);
  if (options_.low_precision_result) text += ", low-precision result";
  if (!weight.defined()) text += ", not affine";
  if (weight.defined() && !bias.defined()) text += ", no bias";
  return text;
}

RMSNorm::RMSNorm(const Shape& normalized_shape, RMSNormOptions options)
    : weight(add_parameter("weight",
                           ones_if(options.elementwise_affine, checked("RMSNorm", normalized_shape, options.eps)))),
      normalized_shape_(normalized_shape),
      options_(options) {}

Tensor RMSNorm::forward(const Tensor& input) { return rms_norm(input, normalized_shape_, weight, options_.eps); }

std::string RMSNorm::extra_repr() const {
  std::string text = text_of(normalized_shape_);
  if (options_.eps) text += str(", eps ", *options_.eps);
  if (!options_.elementwise_affine) text += ", not affine";
  return text;
}

}}}  // namespace tandem::v0::nn

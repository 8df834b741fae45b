#include <tandem/nn/layers.h>

#include <cmath>

#include <tandem/nn/init.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

Shape weight_shape(int64_t in_features, int64_t out_features) {
  TANDEM_CHECK(ValueError, in_features >= 1 && out_features >= 1, "Linear: in_features is ", in_features,
               " and out_features ", out_features, ", expected at least 1 each");
  return {out_features, in_features};
}

Shape weight_shape(int64_t in1_features, int64_t in2_features, int64_t out_features) {
  TANDEM_CHECK(ValueError, in1_features >= 1 && in2_features >= 1 && out_features >= 1, "Bilinear: in1_features is ",
               in1_features, ", in2_features ", in2_features, " and out_features ", out_features,
               ", expected at least 1 each");
  return {out_features, in1_features, in2_features};
}

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, LinearOptions options)
    : weight(add_parameter("weight", empty(weight_shape(in_features, out_features)))),
      bias(add_parameter("bias", options.bias ? empty({out_features}) : Tensor())),
      activation_(options.activation) {
  // As in PyTorch: slope sqrt(5) gives the bound 1 / sqrt(in_features).
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  if (options.bias) init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& input) {
  if (activation_ == Activation::kRelu) return linear_relu(input, weight, bias);
  if (activation_ == Activation::kGelu) return linear_gelu(input, weight, bias);
  if (activation_ == Activation::kGeluTanh) return linear_gelu(input, weight, bias, GeluApproximation::kTanh);
  return activate(linear(input, weight, bias), activation_);
}

std::string Linear::extra_repr() const {
  return str(weight.size(1), ", ", weight.size(0), bias.defined() ? "" : ", no bias", activation_text(activation_));
}

Bilinear::Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, BilinearOptions options)
    : weight(add_parameter("weight", empty(weight_shape(in1_features, in2_features, out_features)))),
      bias(add_parameter("bias", options.bias ? empty({out_features}) : Tensor())) {
  const double bound = 1 / std::sqrt(static_cast<double>(in1_features));
  init::uniform_(weight, -bound, bound);
  if (options.bias) init::uniform_(bias, -bound, bound);
}

Tensor Bilinear::operator()(const Tensor& input1, const Tensor& input2) {
  const ModuleScope scope(*this);
  return bilinear(input1, input2, weight, bias);
}

std::string Bilinear::extra_repr() const {
  return str(weight.size(1), ", ", weight.size(2), ", ", weight.size(0), bias.defined() ? "" : ", no bias");
}

Flatten::Flatten(int64_t start_dim, int64_t end_dim)
    : FunctionLayer([=](const Tensor& x) { return flatten(x, start_dim, end_dim); }, str(start_dim, ", ", end_dim)) {}

Unflatten::Unflatten(int64_t dim, const Shape& unflattened_size)
    : FunctionLayer([=](const Tensor& x) { return unflatten(x, dim, unflattened_size); },
                    str(dim, ", ", unflattened_size)) {}

Tensor CosineSimilarity::operator()(const Tensor& x1, const Tensor& x2) {
  const ModuleScope scope(*this);
  return cosine_similarity(x1, x2, dim_, eps_);
}

Tensor PairwiseDistance::operator()(const Tensor& x1, const Tensor& x2) {
  const ModuleScope scope(*this);
  return pairwise_distance(x1, x2, p_, eps_, keepdim_);
}

Dropout::Dropout(double p) : p_(p) {
  TANDEM_CHECK(ValueError, p >= 0 && p <= 1, "Dropout: p is ", p, ", expected 0 <= p <= 1");
}

Tensor Dropout::forward(const Tensor& input) { return dropout(input, p_, is_training()); }

std::string Dropout::extra_repr() const { return str(p_); }

Tensor Dropout1d::forward(const Tensor& input) { return dropout1d(input, p_, is_training()); }

Tensor Dropout2d::forward(const Tensor& input) { return dropout2d(input, p_, is_training()); }

}}}  // namespace tandem::v0::nn

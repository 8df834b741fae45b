// Linear, bilinear and dropout layers, distances, and layers that change shapes.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/module.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of Linear.
struct LinearOptions {
  bool bias = true;                           ///< whether a bias is added
  Activation activation = Activation::kNone;  ///< applied to the result
};

/// y = x weight^T + bias: x [..., in_features] -> [..., out_features].
///
/// `weight` [out_features, in_features] and `bias` [out_features] (undefined without bias) are float32. Their initial
/// values are uniform in [-b, b], b = 1 / sqrt(in_features), as in PyTorch, drawn in this order.
class TANDEM_API Linear : public Layer {
 public:
  using Options = LinearOptions;  ///< of the constructor
  /// Throws ValueError unless both sizes are at least 1.
  Linear(int64_t in_features, int64_t out_features, LinearOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [out_features, in_features]
  Tensor& bias;    ///< [out_features]; undefined without bias

 private:
  Activation activation_;
};

/// Options of Bilinear.
struct BilinearOptions {
  bool bias = true;  ///< whether a bias is added
};

/// y[..., o] = x1[..., :] weight[o] x2[..., :] + bias[o]: x1 [..., in1_features], x2 [..., in2_features] -> [...,
/// out_features].
///
/// `weight` [out_features, in1_features, in2_features] and `bias` [out_features] (undefined without bias) are float32.
/// Their initial values are uniform in [-b, b], b = 1 / sqrt(in1_features), as in PyTorch, drawn in this order.
class TANDEM_API Bilinear : public Module {
 public:
  using Options = BilinearOptions;  ///< of the constructor
  /// Throws ValueError unless all sizes are at least 1.
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, BilinearOptions options = {});
  /// The layer's result.
  Tensor operator()(const Tensor& input1, const Tensor& input2);
  std::string extra_repr() const override;

  Tensor& weight;  ///< [out_features, in1_features, in2_features]
  Tensor& bias;    ///< [out_features]; undefined without bias
};

/// Returns its input. A placeholder for an optional layer.
class TANDEM_API Identity : public Layer {
 public:
  Tensor forward(const Tensor& input) override { return input; }
};

/// Flattens the dimensions start_dim .. end_dim into one; by default all except the first.
class TANDEM_API Flatten : public FunctionLayer {
 public:
  /// Both dimensions are included; negative ones count from the end.
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1);
};

/// Splits dimension `dim` into dimensions of the given sizes. One size may be -1; it is inferred.
class TANDEM_API Unflatten : public FunctionLayer {
 public:
  /// A negative dimension counts from the end.
  Unflatten(int64_t dim, const Shape& unflattened_size);
};

/// cosine_similarity of two tensors along a dimension.
class TANDEM_API CosineSimilarity : public Module {
 public:
  /// `eps` is a lower bound of the norms by which tensors are divided.
  explicit CosineSimilarity(int64_t dim = 1, double eps = 1e-8) : dim_(dim), eps_(eps) {}
  /// The layer's result.
  Tensor operator()(const Tensor& x1, const Tensor& x2);

 private:
  int64_t dim_;
  double eps_;
};

/// pairwise_distance of two tensors.
class TANDEM_API PairwiseDistance : public Module {
 public:
  /// The p-norm of the last dimension of the difference, plus eps.
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keepdim = false)
      : p_(p), eps_(eps), keepdim_(keepdim) {}
  /// The layer's result.
  Tensor operator()(const Tensor& x1, const Tensor& x2);

 private:
  double p_;
  double eps_;
  bool keepdim_;
};

/// In training mode, sets each element to 0 with probability p and divides the others by 1 - p. In evaluation mode,
/// returns its input. Ranks draw different values.
class TANDEM_API Dropout : public Layer {
 public:
  /// Throws ValueError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 protected:
  double p_;  ///< the probability
};

/// Dropout of whole channels of x [N, C, L] or [C, L].
class TANDEM_API Dropout1d : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& input) override;
};

/// Dropout of whole channels of x [N, C, H, W].
class TANDEM_API Dropout2d : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& input) override;
};

}}}  // namespace tandem::v0::nn

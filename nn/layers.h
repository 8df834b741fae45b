// Linear, Identity, Flatten and Dropout layers.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of Linear. Conv2d has them in addition to Conv2dOptions.
struct LinearOptions {
  bool bias = true;   ///< whether a bias is added
  bool relu = false;  ///< apply a fused ReLU to the result
};

/// y = x weight^T + bias: x [..., in_features] -> [..., out_features].
///
/// `weight` [out_features, in_features] and `bias` [out_features] (undefined without bias) are float32. Their initial
/// values are uniform in [-b, b], b = 1 / sqrt(in_features), as in PyTorch, drawn in this order.
class TANDEM_API Linear : public Layer {
 public:
  /// Throws ValueError unless both sizes are at least 1.
  Linear(int64_t in_features, int64_t out_features, LinearOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [out_features, in_features]
  Tensor& bias;    ///< [out_features]; undefined without bias

 private:
  bool relu_;
};

/// Returns its input. A placeholder for an optional layer.
class TANDEM_API Identity : public Layer {
 public:
  Tensor forward(const Tensor& input) override { return input; }
};

/// Flattens the dimensions start_dim .. end_dim into one; by default all except the first.
class TANDEM_API Flatten : public Layer {
 public:
  /// Both dimensions are included; negative ones count from the end.
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  int64_t start_dim_;
  int64_t end_dim_;
};

/// In training mode, sets each element to 0 with probability p and divides the others by 1 - p. In evaluation mode,
/// returns its input. Ranks draw different values.
class TANDEM_API Dropout : public Layer {
 public:
  /// Throws ValueError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double p_;
};

}}}  // namespace tandem::v0::nn

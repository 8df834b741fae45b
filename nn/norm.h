// Normalization layers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of BatchNorm2d.
struct BatchNorm2dOptions {
  double eps = 1e-5;      ///< added to the variance
  double momentum = 0.1;  ///< weight of a batch in the running statistics
  bool affine = true;     ///< with weight and bias
  bool relu = false;      ///< apply a fused ReLU to the result
};

/// Batch normalization of x [N, C, H, W] over each channel. Training mode uses the statistics of the batch, and updates
/// the running statistics with them; evaluation mode uses the running statistics.
///
/// Parameters, undefined unless `affine`: `weight` [C] (initially ones) and `bias` [C] (zeros). Buffers: `running_mean`
/// [C] (zeros), `running_var` [C] (ones) and `num_batches_tracked`, int64 [], the number of training batches. All other
/// tensors are float32.
class TANDEM_API BatchNorm2d : public Layer {
 public:
  /// Throws ValueError unless num_features is at least 1, eps positive and 0 <= momentum <= 1.
  explicit BatchNorm2d(int64_t num_features, BatchNorm2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  /// max(forward(input) + residual, 0) in one pass, for the end of a residual block; use it on a layer without the
  /// option `relu`. `residual` has the shape of `input`.
  virtual Tensor add_relu(const Tensor& input, const Tensor& residual);
  std::string extra_repr() const override;

  double momentum() const { return options_.momentum; }  ///< weight of a batch in the running statistics
  /// Sets the momentum. Throws ValueError unless 0 <= momentum <= 1.
  void set_momentum(double momentum);

  Tensor& weight;               ///< [C]; undefined unless affine
  Tensor& bias;                 ///< [C]; undefined unless affine
  Tensor& running_mean;         ///< [C], a buffer
  Tensor& running_var;          ///< [C], a buffer
  Tensor& num_batches_tracked;  ///< int64 [], a buffer

 protected:
  const BatchNorm2dOptions& options() const { return options_; }  ///< of the constructor, with the current momentum
  /// Throws ShapeError unless input is [N, C, H, W].
  void check(const Tensor& input) const;
  /// Increments num_batches_tracked in training mode.
  void count() const;

 private:
  BatchNorm2dOptions options_;
};

/// Options of LayerNorm.
struct LayerNormOptions {
  double eps = 1e-5;   ///< added to the variance
  bool affine = true;  ///< with weight and bias
  bool bias = true;    ///< with bias, if affine
  /// Argument of layer_norm: results have autocast's dtype. For layers whose results go only into products.
  bool low_precision_result = false;
};

/// Layer normalization over the last dimensions of x, whose sizes are normalized_shape.
///
/// `weight` (initially ones) and `bias` (zeros) have the shape normalized_shape and are float32; they are undefined if
/// the options disable them.
class TANDEM_API LayerNorm : public Layer {
 public:
  /// Normalizes over the last dimension. Throws ValueError unless sizes are at least 1 and eps is positive.
  explicit LayerNorm(int64_t size, LayerNormOptions options = {}) : LayerNorm(Shape{size}, options) {}
  explicit LayerNorm(const Shape& normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  /// {input + other, the layer's result for this sum}: a residual connection and the norm after it in one pass, see
  /// add_layer_norm. Runs no forward hooks.
  std::pair<Tensor, Tensor> add_forward(const Tensor& input, const Tensor& other);
  std::string extra_repr() const override;

  Tensor& weight;  ///< normalized_shape; undefined unless affine
  Tensor& bias;    ///< normalized_shape; undefined without bias

 private:
  Shape normalized_shape_;
  LayerNormOptions options_;
};

}}}  // namespace tandem::v0::nn

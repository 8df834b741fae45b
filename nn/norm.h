// Normalization layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of the batch norms.
struct BatchNormOptions {
  double eps = 1e-5;  ///< added to the variance
  /// Weight of a batch in the running statistics. Without a value the running statistics are means over all batches;
  /// then each call reads num_batches_tracked, which synchronizes with a GPU.
  std::optional<double> momentum = 0.1;
  bool affine = true;               ///< with weight and bias
  bool track_running_stats = true;  ///< with running statistics; else evaluation mode uses the batch's statistics
  Activation activation = Activation::kNone;  ///< applied to the result
};

/// Parameters and running statistics of batch and instance norms.
///
/// Parameters, undefined unless `affine`: `weight` [C] (initially ones) and `bias` [C] (zeros). Buffers, undefined
/// unless `track_running_stats`: `running_mean` [C] (zeros), `running_var` [C] (ones) and `num_batches_tracked`, int64
/// [], the number of training batches of a batch norm. All other tensors are float32.
class TANDEM_API ChannelNorm : public Layer {
 public:
  std::string extra_repr() const override;

  std::optional<double> momentum() const { return options_.momentum; }  ///< as in BatchNormOptions
  /// Sets the momentum. Throws ValueError unless 0 <= momentum <= 1.
  void set_momentum(std::optional<double> momentum);

  Tensor& weight;               ///< [C]; undefined unless affine
  Tensor& bias;                 ///< [C]; undefined unless affine
  Tensor& running_mean;         ///< [C], a buffer; undefined unless track_running_stats
  Tensor& running_var;          ///< [C], a buffer; undefined unless track_running_stats
  Tensor& num_batches_tracked;  ///< int64 [], a buffer; undefined unless track_running_stats

 protected:
  /// The input shapes of a layer.
  struct InputShape {
    int64_t min_dims;  ///< smallest number of dimensions
    int64_t max_dims;  ///< largest number of dimensions
    const char* text;  ///< for errors
  };
  /// `type` is the name of the layer's class. Options that differ from `defaults` are part of extra_repr().
  ChannelNorm(const char* type, InputShape input_shape, int64_t num_features, const BatchNormOptions& options,
              const BatchNormOptions& defaults);

  const BatchNormOptions& options() const { return options_; }  ///< of the constructor, with the current momentum
  /// Throws ShapeError if input has another number of dimensions.
  void check_input(const Tensor& input) const;

 private:
  const char* type_;
  InputShape input_shape_;
  int64_t num_features_;
  BatchNormOptions options_, defaults_;
};

/// Batch normalization over each channel. Training mode uses the statistics of the batch, and updates the running
/// statistics with them; evaluation mode uses the running statistics.
class TANDEM_API BatchNormBase : public ChannelNorm {
 public:
  using Options = BatchNormOptions;  ///< of the constructor
  Tensor forward(const Tensor& input) override;
  /// max(forward(input) + residual, 0) in one pass, for the end of a residual block; use it on a layer without an
  /// activation. `residual` has the shape of `input`.
  virtual Tensor add_relu(const Tensor& input, const Tensor& residual);

 protected:
  /// As in ChannelNorm.
  BatchNormBase(const char* type, InputShape input_shape, int64_t num_features, const BatchNormOptions& options)
      : ChannelNorm(type, input_shape, num_features, options, {}) {}

  /// The momentum of the next call. If momentum() has no value, the momentum with which the running statistics are
  /// means over all batches.
  double call_momentum() const;
  /// Increments num_batches_tracked in training mode.
  void count() const;

 private:
  bool uses_batch_statistics() const { return is_training() || !running_mean.defined(); }
};

/// Batch normalization of x [N, C] or [N, C, L].
class TANDEM_API BatchNorm1d : public BatchNormBase {
 public:
  /// Throws ValueError unless num_features is at least 1, eps positive and 0 <= momentum <= 1.
  explicit BatchNorm1d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNormBase("BatchNorm1d", {2, 3, "[N, C] or [N, C, L]"}, num_features, options) {}
};

/// Batch normalization of x [N, C, H, W].
class TANDEM_API BatchNorm2d : public BatchNormBase {
 public:
  /// Throws ValueError unless num_features is at least 1, eps positive and 0 <= momentum <= 1.
  explicit BatchNorm2d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNormBase("BatchNorm2d", {4, 4, "[N, C, H, W]"}, num_features, options) {}
};

/// Options of the instance norms.
struct InstanceNormOptions {
  double eps = 1e-5;                 ///< added to the variance
  double momentum = 0.1;             ///< weight of a batch in the running statistics
  bool affine = false;               ///< with weight and bias
  bool track_running_stats = false;  ///< with running statistics, which evaluation mode uses
};

/// Normalization over each channel of each sample. With running statistics, training mode updates them with the means
/// over the samples, and evaluation mode uses them; they do not count batches.
class TANDEM_API InstanceNormBase : public ChannelNorm {
 public:
  using Options = InstanceNormOptions;  ///< of the constructor
  Tensor forward(const Tensor& input) override;

 protected:
  /// Inputs with `min_dims` dimensions are single samples.
  InstanceNormBase(const char* type, InputShape input_shape, int64_t num_features, const InstanceNormOptions& options);

 private:
  int64_t sample_dims_;
};

/// Instance normalization of x [N, C, L] or [C, L].
class TANDEM_API InstanceNorm1d : public InstanceNormBase {
 public:
  /// Throws ValueError unless num_features is at least 1, eps positive and 0 <= momentum <= 1.
  explicit InstanceNorm1d(int64_t num_features, const InstanceNormOptions& options = {})
      : InstanceNormBase("InstanceNorm1d", {2, 3, "[N, C, L] or [C, L]"}, num_features, options) {}
};

/// Instance normalization of x [N, C, H, W] or [C, H, W].
class TANDEM_API InstanceNorm2d : public InstanceNormBase {
 public:
  /// Throws ValueError unless num_features is at least 1, eps positive and 0 <= momentum <= 1.
  explicit InstanceNorm2d(int64_t num_features, const InstanceNormOptions& options = {})
      : InstanceNormBase("InstanceNorm2d", {3, 4, "[N, C, H, W] or [C, H, W]"}, num_features, options) {}
};

/// Options of GroupNorm.
struct GroupNormOptions {
  double eps = 1e-5;   ///< added to the variance
  bool affine = true;  ///< with weight and bias
};

/// Normalization of x [N, C, ...] over each of num_groups groups of consecutive channels of each sample.
///
/// `weight` [C] (initially ones) and `bias` [C] (zeros) are float32; they are undefined unless `affine`.
class TANDEM_API GroupNorm : public Layer {
 public:
  using Options = GroupNormOptions;  ///< of the constructor
  /// Throws ValueError unless num_groups is at least 1 and divides num_channels, and eps is positive.
  GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< [C]; undefined unless affine
  Tensor& bias;    ///< [C]; undefined unless affine

 private:
  int64_t num_groups_, num_channels_;
  GroupNormOptions options_;
};

/// Options of LayerNorm.
struct LayerNormOptions {
  double eps = 1e-5;   ///< added to the variance
  bool affine = true;  ///< with weight and bias
  bool bias = true;    ///< with bias, if affine
  /// Argument of layer_norm: results have autocast's dtype. For layers whose results are used only by matrix products.
  bool low_precision_result = false;
};

/// Layer normalization over the last dimensions of x, whose sizes are normalized_shape.
///
/// `weight` (initially ones) and `bias` (zeros) have the shape normalized_shape and are float32; they are undefined if
/// the options disable them.
class TANDEM_API LayerNorm : public Layer {
 public:
  using Options = LayerNormOptions;  ///< of the constructor
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

/// Options of RMSNorm.
struct RMSNormOptions {
  std::optional<double> eps = {};  ///< added to the mean of squares; default: as in rms_norm
  bool elementwise_affine = true;  ///< with weight
};

/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions of x, whose sizes are normalized_shape.
///
/// `weight` (initially ones) has the shape normalized_shape and is float32; it is undefined unless elementwise_affine.
class TANDEM_API RMSNorm : public Layer {
 public:
  using Options = RMSNormOptions;  ///< of the constructor
  /// Normalizes over the last dimension. Throws ValueError unless sizes are at least 1 and eps is positive.
  explicit RMSNorm(int64_t size, RMSNormOptions options = {}) : RMSNorm(Shape{size}, options) {}
  explicit RMSNorm(const Shape& normalized_shape, RMSNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Tensor& weight;  ///< normalized_shape; undefined unless elementwise_affine

 private:
  Shape normalized_shape_;
  RMSNormOptions options_;
};

}}}  // namespace tandem::v0::nn

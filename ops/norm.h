// Batch, synchronized batch, group, instance, layer and root-mean-square normalization.
//
// Floating (DTypeError), any strides; [optional] arguments may be undefined. Statistics are computed so that inputs
// with mean 10^4 and deviation 1 are normalized to the precision of their dtype. Half types are computed in float32 and
// rounded once. Under autocast group_norm, layer_norm and rms_norm raise their operands to float32; batch norms and
// instance_norm take half inputs with float32 parameters. Results have the same bits for any number of threads.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// y = (x - mean_c) / sqrt(var_c + eps) * weight_c + bias_c for each channel c of input [N, C] or [N, C, ...].
///
/// In training, mean and (biased) variance are computed from the batch, which has at least two values per channel
/// (ShapeError); running_mean and running_var, [C] floating [optional], become (1 - momentum) * running + momentum *
/// batch statistic, in place (StateError if expanded), with the unbiased variance. Otherwise mean and variance are
/// running_mean and running_var, which must be defined (StateError). momentum is in [0, 1], eps is not negative
/// (ValueError). weight and bias: [C] of input's dtype, or for a half type of float32 [optional]. A channels-last input
/// gives a channels-last result and gradient, any other input row-major ones.
///
/// Saves the input, and mean and 1 / sqrt(var + eps) in float64. Differentiable. S. Ioffe, C. Szegedy, "Batch
/// normalization", 2015.
TANDEM_OP Tensor batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                            Tensor bias, bool training, double momentum = 0.1, double eps = 1e-5);

/// relu(batch_norm(...)) in one pass, with the same bits. Saves the same tensors as batch_norm.
TANDEM_OP Tensor batch_norm_relu(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                                 Tensor bias, bool training, double momentum = 0.1, double eps = 1e-5);

/// relu6(batch_norm(...)) in one pass, with the same bits except that the gradient of a half type is 0 only where the
/// result is at a bound before it is rounded. Saves the same tensors as batch_norm.
TANDEM_OP Tensor batch_norm_relu6(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                                  Tensor bias, bool training, double momentum = 0.1, double eps = 1e-5);

/// relu(batch_norm(input, ...) + residual) in one pass; half types are rounded once, after the sum. `residual` has
/// input's shape and dtype. Saves the tensors that batch_norm saves, and the result. On GPUs it may also save one bit
/// per result: whether the result is 0.
TANDEM_OP Tensor batch_norm_add_relu(Tensor input, Tensor residual, const Tensor& running_mean,
                                     const Tensor& running_var, Tensor weight, Tensor bias, bool training,
                                     double momentum = 0.1, double eps = 1e-5);

/// Exchange of statistics between ranks that normalize one batch together; used by sync_batch_norm, on the device of
/// its input.
class TANDEM_API BatchNormExchange {
 public:
  virtual ~BatchNormExchange() = default;
  /// Concatenates all ranks' `moments` (float64, one shape) in rank order: [ranks, ...]. Called once per forward; for
  /// GPU tensors a second time per forward, with one number on the CPU.
  virtual Tensor gather(const Tensor& moments) = 0;
  /// Replaces `sums` (float64) by the sum over all ranks. Called once per backward.
  virtual void sum(const Tensor& sums) = 0;
};

/// batch_norm in training over the batches of all ranks: mean and variance are computed from the joint batch, which has
/// at least two values per channel; the batch of a rank may be empty. The gradients of weight and bias are this rank's
/// contributions. Its backward cannot be recorded (StateError).
TANDEM_OP Tensor sync_batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                                 Tensor bias, std::shared_ptr<BatchNormExchange> exchange, double momentum = 0.1,
                                 double eps = 1e-5);

/// y = (x - mean) / sqrt(var + eps) * weight_c + bias_c, where mean and (biased) variance are computed from a group of
/// C / num_groups consecutive channels of one sample of input [N, C] or [N, C, ...].
///
/// weight, bias, eps and the memory order of results are as in batch_norm. Throws ValueError unless num_groups is at
/// least 1, ShapeError unless it divides C. An input without channels or without elements in them has an empty result
/// (PyTorch: an error). Saves the input, and mean and 1 / sqrt(var + eps) of each group in float64. Differentiable. Y.
/// Wu, K. He, "Group normalization", 2018.
TANDEM_OP Tensor group_norm(Tensor input, int64_t num_groups, Tensor weight = {}, Tensor bias = {}, double eps = 1e-5);

/// group_norm with one channel per group, so that each channel of each sample has its own statistics.
///
/// With use_input_stats a channel of a sample has at least two values (ShapeError), and running_mean and running_var
/// [optional] become (1 - momentum) * running + momentum * (mean over the samples of their means and unbiased
/// variances), in place. Without, the result is batch_norm's in evaluation: mean and variance are running_mean and
/// running_var, which must be defined (StateError). Arguments as in batch_norm. Differentiable.
/// D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance normalization: the missing ingredient for fast stylization", 2016.
TANDEM_OP Tensor instance_norm(Tensor input, const Tensor& running_mean = {}, const Tensor& running_var = {},
                               Tensor weight = {}, Tensor bias = {}, bool use_input_stats = true, double momentum = 0.1,
                               double eps = 1e-5);

/// y = (x - mean) / sqrt(var + eps) * weight + bias over each row: the last dimensions of input, of sizes
/// normalized_shape.
///
/// weight and bias: normalized_shape, of input's dtype [optional]. low_precision_result: under autocast the result has
/// autocast's dtype instead of float32. Products would convert it to this dtype: if the result goes only into products,
/// their results are the same, in less time and memory. The result is row-major. Throws ShapeError if normalized_shape
/// is empty or not the end of input's shape, ValueError for a negative eps. Saves the input, and mean and
/// 1 / sqrt(var + eps) of each row; the gradients of weight and bias are written into their slots. Differentiable.
/// J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", 2016.
TANDEM_OP Tensor layer_norm(Tensor input, const Shape& normalized_shape, Tensor weight, Tensor bias, double eps = 1e-5,
                            bool low_precision_result = false);

/// y = x / sqrt(mean(x^2) + eps) * weight over each row: the last dimensions of input, of sizes normalized_shape.
///
/// weight: normalized_shape, of input's dtype [optional]. Without a value eps is the distance from 1 to the next number
/// of the dtype in which the result is computed: 2^-23, or 2^-52 for float64. Results, errors, and what backward saves
/// are as in layer_norm. Differentiable.
/// B. Zhang, R. Sennrich, "Root mean square layer normalization", 2019.
TANDEM_OP Tensor rms_norm(Tensor input, const Shape& normalized_shape, Tensor weight = {},
                          std::optional<double> eps = {});

/// {input + other, layer_norm(input + other, ...)}: a residual connection and the norm after it, in one pass over
/// memory where `other` has the dtype of the normalized result, with the bits of the two operations.
///
/// other: floating, of input's shape (ShapeError); it is added in input's dtype. Saves what layer_norm of the sum
/// saves.
TANDEM_OP std::pair<Tensor, Tensor> add_layer_norm(Tensor input, const Tensor& other, const Shape& normalized_shape,
                                                   Tensor weight, Tensor bias, double eps = 1e-5,
                                                   bool low_precision_result = false);

/// input / (k + alpha * m)^beta, where m is the mean of the squares of `size` channels, from size / 2 before a channel
/// on; channels outside of input are 0. input [N, C, ...] (ShapeError). Saves each step. Throws ValueError
/// unless size >= 1. A. Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012.
TANDEM_OP Tensor local_response_norm(Tensor input, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1);

}}  // namespace tandem::v0

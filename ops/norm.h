// Normalisation over a batch, or over each row.
//
// Floating (DTypeError), of any strides; [optional] arguments may be undefined.  Statistics are formed so that values around
// 10^4 with deviation 1 are normalised to the accuracy of their dtype; half types are computed in float32 and rounded once, and
// under autocast raised to float32.  All results are the same bits on any number of threads.
#pragma once

#include <memory>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// y = (x - mean_c) / sqrt(var_c + eps) * weight_c + bias_c for each channel c of input [N, C] or [N, C, ...].
///
/// In training mean and (biased) variance are those of the batch, of at least two values per channel (ShapeError), and
/// running_mean and running_var, [C] floating [optional], move towards the mean and the unbiased variance by `momentum`, in
/// place (StateError where they are expanded).  Otherwise they are running_mean and running_var, which must then be defined
/// (StateError).  momentum lies in [0, 1], eps is not negative (ValueError).  weight and bias: [C] of
/// input's dtype [optional].  A channels-last input gives a channels-last result and gradient, any other a row-major one.
///
/// Saves the input, and mean and 1 / sqrt(var + eps) in float64.  Can be differentiated again.  Ioffe and Szegedy 2015.
TANDEM_OP Tensor batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                            Tensor bias, bool training, double momentum = 0.1, double eps = 1e-5);

/// relu(batch_norm(...)), the same bits, in one pass.  Saves what batch_norm saves.
TANDEM_OP Tensor batch_norm_relu(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                                 Tensor bias, bool training, double momentum = 0.1, double eps = 1e-5);

/// relu(batch_norm(input, ...) + residual) in one pass; in half types the sum is rounded once.  `residual` has input's shape and
/// dtype.  Saves what batch_norm saves, and the result.
TANDEM_OP Tensor batch_norm_add_relu(Tensor input, Tensor residual, const Tensor& running_mean,
                                     const Tensor& running_var, Tensor weight, Tensor bias, bool training,
                                     double momentum = 0.1, double eps = 1e-5);

/// Joins the statistics of ranks that normalise one batch together: what sync_batch_norm asks of its group, on the device of its
/// input.
class TANDEM_API BatchNormExchange {
 public:
  virtual ~BatchNormExchange() = default;
  /// All ranks' `moments` (float64, one shape) one after the other in the order of ranks: [ranks, ...].  Once in each forward, and
  /// where that is on a GPU once more for a number on the CPU.
  virtual Tensor gather(const Tensor& moments) = 0;
  /// `sums` (float64) becomes the sum over all ranks.  Once in each backward.
  virtual void sum(const Tensor& sums) = 0;
};

/// batch_norm in training over the batches of all ranks: mean and variance are those of the joined batch, of at least two values
/// per channel in all; a rank may have none.  The gradients of weight and bias are this rank's part.  Its backward cannot be
/// recorded (StateError).
TANDEM_OP Tensor sync_batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight,
                                 Tensor bias, std::shared_ptr<BatchNormExchange> exchange, double momentum = 0.1,
                                 double eps = 1e-5);

/// y = (x - mean) / sqrt(var + eps) * weight + bias over each row, the last dimensions of input, whose sizes are normalized_shape.
///
/// weight and bias: normalized_shape, of input's dtype [optional].  Row-major.  Throws ShapeError where input does not end in
/// normalized_shape, or that is empty, ValueError for a negative eps.  Saves the input, and mean and 1 / sqrt(var + eps) of
/// each row; the gradients of weight and bias are written into their slots.  Can be differentiated again.  Ba, Kiros, Hinton
/// 2016.
TANDEM_OP Tensor layer_norm(Tensor input, const Shape& normalized_shape, Tensor weight, Tensor bias, double eps = 1e-5);

}}  // namespace tandem::v0

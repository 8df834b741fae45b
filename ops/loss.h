// Losses, and the similarities and distances that they use.
//
// Common to all: tensors are on one device (DeviceError), of any strides, and floating (DTypeError) unless stated;
// dtypes promote. Half types are computed in float32 and rounded once; under autocast they are raised to float32.
// Undefined tensors throw StateError unless they are [optional]. All gradients are differentiable. Shapes that do not
// fit throw ShapeError; unlike in PyTorch, input and target of elementwise losses do not broadcast.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// How a loss combines the losses of its elements.
enum class Reduction : int8_t {
  kNone,       ///< returns all losses
  kMean,       ///< returns their mean, 0-dim; NaN if there are no losses
  kSum,        ///< returns their sum, 0-dim
  kBatchMean,  ///< kl_div only (else ValueError): returns their sum divided by the first size of input
};

/// Options of cross_entropy.
struct CrossEntropyOptions {
  Tensor weight = {};                      ///< [C] [optional]: factor of each class; has no gradient
  int64_t ignore_index = -100;             ///< a label whose loss is 0 and not counted; negative for probabilities
  Reduction reduction = Reduction::kMean;  ///< of the losses; the mean is divided by the sum of the labels' weights
  double label_smoothing = 0;              ///< in [0, 1]: share of the target that is spread over all classes
};

/// The cross entropy of softmax(input) and target.
///
/// input [N, C], [C] or [N, C, d1, ...]. target: labels, int64, of input's shape without C, with the losses -weight[y]
/// * log_softmax(input)[y]; or probabilities, floating, of input's shape, with the losses -sum_c weight[c] *
/// log_softmax(input)[c] * target[c], which are divided by their number for the mean. With label_smoothing s the target
/// is (1 - s) * target + s / C. The mean of losses of [N, C] without weight and smoothing is one kernel and summed in
/// float64.
///
/// The kernel saves input, target and, for each row, its maximum and log-sum-exp; d input = (softmax(input) -
/// one_hot(target)) * d out / count, in one pass. Other cases save log_softmax(input). Throws ValueError for a
/// smoothing outside [0, 1], or for probabilities with an ignore_index of at least 0; IndexError naming the first label
/// outside [0, C), other than ignore_index, and its position.
TANDEM_OP Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyOptions& options = {});

/// Options of nll_loss, as in cross_entropy.
struct NllLossOptions {
  Tensor weight = {};                      ///< [C] [optional]
  int64_t ignore_index = -100;             ///< a label whose loss is 0 and not counted
  Reduction reduction = Reduction::kMean;  ///< of the losses
};

/// The losses -weight[y] * input[y] of log-probabilities: nll_loss(log_softmax(x, 1), target) is cross_entropy(x,
/// target), within rounding. Shapes and errors as for cross_entropy with labels. Saves target.
TANDEM_OP Tensor nll_loss(const Tensor& input, const Tensor& target, const NllLossOptions& options = {});

/// (input - target)^2. Saves both.
TANDEM_OP Tensor mse_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean);

/// |input - target|; the gradient at 0 is 0. Saves the difference.
TANDEM_OP Tensor l1_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean);

/// d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, for d = input - target. Saves d. Throws ValueError unless
/// beta >= 0.
TANDEM_OP Tensor smooth_l1_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean, double beta = 1);

/// d^2 / 2 where |d| < delta, else delta * (|d| - delta / 2), for d = input - target. Saves d. Throws ValueError unless
/// delta > 0, which may be infinite. P. J. Huber, "Robust estimation of a location parameter", 1964.
TANDEM_OP Tensor huber_loss(Tensor input, Tensor target, Reduction reduction = Reduction::kMean, double delta = 1);

/// -weight * (target * log(input) + (1 - target) * log(1 - input)) with logarithms of at least -100. weight [optional]
/// broadcasts to input's shape. NaN for an input outside [0, 1] (PyTorch throws, which needs a synchronization on a
/// GPU). Saves input and target; d input = weight * (input - target) / max(input * (1 - input), 1e-12) * d out.
TANDEM_OP Tensor binary_cross_entropy(Tensor input, Tensor target, Tensor weight = {},
                                      Reduction reduction = Reduction::kMean);

/// binary_cross_entropy of sigmoid(input), without overflow and cancellation: weight * ((1 - target) * input + (1 +
/// (pos_weight - 1) * target) * log(1 + e^-input)). weight and pos_weight [optional] broadcast to input's shape. Saves
/// input and target.
TANDEM_OP Tensor binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor weight = {},
                                                  Reduction reduction = Reduction::kMean, Tensor pos_weight = {});

/// target * (log(target) - input) for log-probabilities `input`, 0 where target is 0; with log_target e^target *
/// (target - input). Saves both.
TANDEM_OP Tensor kl_div(Tensor input, Tensor target, Reduction reduction = Reduction::kMean, bool log_target = false);

/// (log(v) + (input - target)^2 / v + log(2 pi) [if full]) / 2 with v = max(var, eps), through which the gradient
/// passes. var has input's shape, with 1 as last size, or without the last dimension. Throws ValueError unless eps > 0.
/// D. A. Nix, A. S. Weigend, "Estimating the mean and variance of the target probability distribution", 1994.
TANDEM_OP Tensor gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full = false, double eps = 1e-6,
                                   Reduction reduction = Reduction::kMean);

/// input / max(norm, eps), where norm is the p-norm over dimension dim. Throws ValueError unless p is finite and
/// positive.
TANDEM_OP Tensor normalize(Tensor input, double p = 2, int64_t dim = 1, double eps = 1e-12);

/// The sum over dimension dim of the product of normalize(x1, 2, dim, eps) and normalize(x2, 2, dim, eps). x1 and x2
/// broadcast.
TANDEM_OP Tensor cosine_similarity(Tensor x1, Tensor x2, int64_t dim = 1, double eps = 1e-8);

/// The p-norm of x1 - x2 + eps over the last dimension. x1 and x2 broadcast. Throws ValueError unless p is finite and
/// positive.
TANDEM_OP Tensor pairwise_distance(Tensor x1, Tensor x2, double p = 2, double eps = 1e-6, bool keepdim = false);

/// The p-norms of the differences of each row of x1 [..., P, M] and each row of x2 [..., R, M]: [..., P, R]. The other
/// dimensions broadcast. All P * R differences are in memory at once. Throws ShapeError, and ValueError unless p is at
/// least 0 (0 counts the elements that differ).
TANDEM_OP Tensor cdist(Tensor x1, Tensor x2, double p = 2);

/// Options of triplet_margin_loss.
struct TripletMarginLossOptions {
  double margin = 1;                       ///< distance by which the negative should be further away
  double p = 2;                            ///< of the norm
  double eps = 1e-6;                       ///< added to differences
  bool swap = false;                       ///< use the smaller of the distances of negative to anchor and to positive
  Reduction reduction = Reduction::kMean;  ///< of the losses
};

/// max(d(anchor, positive) - d(anchor, negative) + margin, 0), where d is pairwise_distance. Tensors broadcast. Throws
/// ValueError unless margin > 0. V. Balntas et al., "Learning local feature descriptors with triplets and shallow
/// convolutional neural networks", 2016.
TANDEM_OP Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                                     const TripletMarginLossOptions& options = {});

/// 1 - s where target is 1, max(s - margin, 0) where it is -1, for the cosine similarity s of the last dimension, with
/// 1e-12 added to the squares of the norms. input1, input2 [N, D] and target [N], or [D] and []; target of any dtype.
TANDEM_OP Tensor cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, double margin = 0,
                                       Reduction reduction = Reduction::kMean);

}}  // namespace tandem::v0

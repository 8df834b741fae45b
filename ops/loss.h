// Losses.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The mean over i of -log(softmax(logits[i]))[labels[i]].
///
/// logits [N, C] floating, any strides; labels [N] int64; one device. Returns a 0-dim tensor of logits' dtype (float32
/// under autocast); NaN for N = 0. Half types are computed in float32; the mean is summed in float64.
///
/// Saves logits, labels and, for each row, its maximum and log-sum-exp; d logits = (softmax(logits) - one_hot(labels))
/// * d out / N, in one pass. Throws ShapeError, DTypeError, DeviceError; IndexError naming the first label outside [0,
/// C) and its position.
TANDEM_OP Tensor cross_entropy(const Tensor& logits, const Tensor& labels);

/// The mean over i of -log_probs[i, labels[i]]. nll_loss(log_softmax(x, 1), labels) is cross_entropy(x, labels), within
/// rounding.
///
/// log_probs [N, C] floating, any strides; labels [N] int64; one device. Returns a 0-dim tensor of log_probs' dtype
/// (float32 under autocast); NaN for N = 0. Half types are computed in float32. Saves labels. Throws ShapeError,
/// DTypeError, DeviceError; IndexError naming the first label outside [0, C) and its position.
TANDEM_OP Tensor nll_loss(const Tensor& log_probs, const Tensor& labels);

/// The mean of (input - target)^2.
///
/// Both floating, of one shape (ShapeError; they do not broadcast) and on one device; dtypes promote. Returns a 0-dim
/// tensor of the promoted dtype (float32 under autocast); NaN for empty tensors. Half types are computed in float32.
/// Saves both.
TANDEM_OP Tensor mse_loss(const Tensor& input, const Tensor& target);

}}  // namespace tandem::v0

// Losses.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// The mean over i of -log softmax(logits_i)[labels_i].
///
/// logits [N, C] floating, any strides; labels [N] int64; one device.  Returns a 0-dim tensor of logits' dtype (float32
/// under autocast); NaN for N = 0.  Half types are computed in float32; the mean is summed in float64.
///
/// Saves logits, labels and, for each row, the maximum and the logarithm of the sum of exponentials; d logits =
/// (softmax(logits) - one_hot(labels)) * d out / N, in one pass.
/// Throws ShapeError, DTypeError, DeviceError; IndexError naming the first label outside [0, C) and its position.
TANDEM_OP Tensor cross_entropy(const Tensor& logits, const Tensor& labels);

}  // namespace tandem::inline v0

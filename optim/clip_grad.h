// Gradient clipping.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

/// The norm of all values of several tensors together, for instance of all gradients:
///
///     norm = (sum |x|^norm_type)^(1 / norm_type) over all values of all tensors; the largest |x| for an infinite
///     norm_type
///
/// Sums are accumulated in float64 in an order that depends only on sizes. Tensors are row-major (else StateError) and
/// floating-point (else DTypeError). Returns a float64 [] on their device, without waiting for a GPU. If they are on
/// several devices, it waits for the devices' sums, and the result is on the CPU. Throws ValueError for a norm_type
/// that is not positive. With error_if_nonfinite, it waits for the norm, and throws StateError if the norm is not
/// finite.
TANDEM_API Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type = 2.0,
                                 bool error_if_nonfinite = false);

/// Scales the gradients of all parameters in place so that their total norm is at most max_norm. Returns the norm
/// before scaling, as get_total_norm does:
///
///     g = g min(1, max_norm / (norm + 1e-6))
///
/// As in PyTorch, a norm that is not finite makes gradients NaN or 0; with error_if_nonfinite it throws StateError and
/// changes nothing. Parameters without gradient are skipped. Gradients must be like the tensors of get_total_norm;
/// float16 and bfloat16 gradients are scaled in float32 and rounded once. With data-parallel training, call it on every
/// rank after backward: the gradients, and so the norms, are equal on all ranks. Of gradients that ranks divide
/// (distributed::Shard) it computes the norm over all ranks, and is collective; get_total_norm would be of this rank's
/// elements only. On one GPU it can be captured in a cuda::Graph. Throws ValueError for a negative max_norm. R. Pascanu
/// et al., "On the difficulty of training recurrent neural networks", 2013.
TANDEM_API Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                                  bool error_if_nonfinite = false);

/// Limits the values of the gradients of all parameters to [-clip_value, clip_value], in place; NaN stays NaN.
/// Parameters without gradient are skipped. Gradients must be as in clip_grad_norm_. Throws ValueError for a clip_value
/// that is negative or NaN.
TANDEM_API void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}}}  // namespace tandem::v0::optim

// Gradient clipping.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Scales the gradients of all parameters in place so that their total norm is at most max_norm. Returns the norm before:
///
///     norm = (sum |g|^norm_type)^(1 / norm_type) over all values of all gradients; the largest |g| for an infinite norm_type
///     g = g min(1, max_norm / (norm + 1e-6))
///
/// As in PyTorch, a norm that is not finite makes gradients NaN or 0; with error_if_nonfinite it throws StateError and changes
/// nothing. Sums are accumulated in float64 in an order that depends only on sizes. Parameters without gradient are skipped.
/// Gradients are row-major (else StateError) float32 or float64 (else DTypeError) and may be on several devices. With data-parallel
/// training, call it on every rank after backward: the gradients, and so the norms, are equal on all ranks. Throws ValueError for a
/// negative max_norm and a norm_type that is not positive. R. Pascanu et al., "On the difficulty of training recurrent neural
/// networks", 2013.
TANDEM_API double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                                  bool error_if_nonfinite = false);

}}}  // namespace tandem::v0::optim

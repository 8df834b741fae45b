// Limits on gradients.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Scales the gradients of all parameters together so that their norm is max_norm where it was larger, and returns the
/// norm they had: (sum |g|^norm_type)^(1 / norm_type) over all values of all gradients, or the largest |g| for an
/// infinite norm_type.  Gradients are multiplied by min(1, max_norm / (norm + 1e-6)), as in PyTorch: a norm that is not
/// finite makes them NaN or 0, unless error_if_nonfinite, which throws StateError, changing nothing.
///
/// Sums run in float64 in an order that sizes alone determine.  Parameters without gradient are skipped; gradients are
/// row-major float32 or float64 (else StateError, DTypeError).  They may be on several devices, each summed and scaled where it
/// is.  With data-parallel training, call it after backward on every rank: gradients are equal there, and so is the norm.  Throws
/// ValueError for a negative max_norm and for a norm_type that is not positive.  R. Pascanu et al., "On the difficulty of
/// training recurrent neural networks", 2013.
TANDEM_API double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                                  bool error_if_nonfinite = false);

}}}  // namespace tandem::v0::optim

// First-order linear recurrence, in which gradients of cumulative operations are written. Private to ops/.
#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// out[i] = input[i] + factors[i] * out[i - 1] along dimension `dim`, from out[0] = input[0] on. With `reverse` its
/// transpose: out[i] = input[i] + factors[i + 1] * out[i + 1], from the last element on. Both tensors have one shape
/// and one floating dtype; `dim` is not negative. Recorded.
Tensor linear_scan(const Tensor& factors, const Tensor& input, int64_t dim, bool reverse);

}}}  // namespace tandem::v0::ops

// PowerSGD's linear algebra.  Private to distributed/.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The rows of a floating tensor [rank, n], orthonormalised in ascending order by Gram-Schmidt, twice, in float64.  A row that depends
/// on those before it, so that only rounding would be left, is replaced by the same row of `replacements` [rank, n], or by 0
/// where that depends on them too or `replacements` is undefined.  The host does not wait for a GPU.
TANDEM_API Tensor orthonormalize(const Tensor& rows, const Tensor& replacements = {});

}}}  // namespace tandem::v0::distributed

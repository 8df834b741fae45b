// PowerSGD's linear algebra. Private to distributed/.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Orthonormalizes the rows of a floating tensor [rank, n] in ascending order, by two passes of Gram-Schmidt in
/// float64. A row that is linearly dependent on earlier rows is replaced by the same row of `replacements` [rank, n];
/// if that is dependent too, or `replacements` is undefined, by 0. Does not synchronize with a GPU.
TANDEM_API Tensor orthonormalize(const Tensor& rows, const Tensor& replacements = {});

}}}  // namespace tandem::v0::distributed

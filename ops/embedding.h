// Embedding tables.
#pragma once

#include <cstdint>
#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// result[..., :] = weight[indices[...], :], of shape [indices' shape, d].
///
/// `indices`: int64 of any shape (DTypeError); `weight`: [V, d] (ShapeError) of any floating dtype. The result is
/// row-major. Throws IndexError, naming the first index outside [0, V) and its position. Saves the indices. The
/// gradient of a row is the sum over its uses in index order, for any number of threads; half types are summed in
/// float32. Row padding_idx, which counts from the end if negative (IndexError outside [-V, V)), has the gradient 0.
/// Differentiable.
TANDEM_OP Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx = {});

}}  // namespace tandem::v0

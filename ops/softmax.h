// Softmax and its logarithm.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// y_i = exp(x_i) / sum_j exp(x_j) over dimension `dim`, computed from x - max(x): no overflow.
///
/// Floating; any shape and strides; row-major result of input's dtype (float32 under autocast). With `dtype`, input of
/// any dtype is converted to `dtype` first, and autocast does nothing. Half types are computed in float32. A row that
/// contains NaN, or only -inf, gives NaN. Saves the result; d x = y * (d y - sum(d y * y)). Throws DTypeError,
/// IndexError for dim.
TANDEM_OP Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});

/// y_i = x_i - log(sum_j exp(x_j)) over dimension `dim`; shapes, dtypes and errors as for softmax.
///
/// Saves the result; d x = d y - exp(y) * sum(d y).
TANDEM_OP Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});

}}  // namespace tandem::v0

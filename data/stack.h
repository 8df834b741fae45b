// Building a batch item by item.  Private to data/.
#pragma once

#include <cstdint>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Writes `item` into row `row` of `stacked` [num_rows, ...], which the first row makes.  Error texts begin with `what`
/// ("Dataset: the image").  Throws StateError for an undefined item, ShapeError or DTypeError for one that differs from
/// those before it.
void stack_into(Tensor& stacked, const Tensor& item, int64_t row, int64_t num_rows, const char* what);

}}}  // namespace tandem::v0::data

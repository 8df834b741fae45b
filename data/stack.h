// Stacks items to a batch. Private to data/.
#pragma once

#include <cstdint>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Writes `item` into row `row` of `stacked` [num_rows, ...], which row 0 allocates. Error texts begin with `what`
/// ("Dataset: the image"). Throws StateError for an undefined item, ShapeError or DTypeError for an item that differs
/// from row 0.
void stack_into(Tensor& stacked, const Tensor& item, int64_t row, int64_t num_rows, const char* what);

}}}  // namespace tandem::v0::data

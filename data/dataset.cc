#include <tandem/data/dataset.h>

#include <tandem/data/error_context.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

/// Writes `item` into row `row` of `stacked` [n, ...], made by the first row.
void stack_into(Tensor& stacked, const Tensor& item, int64_t row, int64_t num_rows, const char* what) {
  TANDEM_CHECK(StateError, item.defined(), "Dataset: the ", what, " is undefined");
  if (!stacked.defined()) {
    Shape shape = item.shape();
    shape.insert(0, num_rows);
    stacked = empty(shape, {item.dtype()});
  }
  const Shape row_shape(stacked.shape().begin() + 1, stacked.shape().end());
  TANDEM_CHECK(ShapeError, item.shape() == row_shape, "Dataset: the ", what, " has shape ", item.shape(),
               ", those before it in the batch ", row_shape);
  TANDEM_CHECK(DTypeError, item.dtype() == stacked.dtype(), "Dataset: the ", what, " is ", item.dtype(),
               ", those before it in the batch ", stacked.dtype());
  chores::copy(item, make_view(stacked.storage(), stacked.dtype(), row_shape, row_major_strides(row_shape),
                               row * item.num_elements()));
}

}  // namespace

Dataset::~Dataset() = default;

Batch Dataset::get_batch(std::span<const int64_t> indices) const {
  TANDEM_CHECK(ValueError, !indices.empty(), "Dataset: a batch needs at least one item");
  Batch batch;
  batch.size = static_cast<int64_t>(indices.size());
  for (int64_t row = 0; row < batch.size; ++row) {
    const int64_t index = indices[static_cast<size_t>(row)];
    try {
      const Example example = get(index);
      stack_into(batch.images, example.image, row, batch.size, "image");
      stack_into(batch.labels, example.label, row, batch.size, "label");
    } catch (...) {
      rethrow_with_context(str("in item ", index, " of the dataset"));
    }
  }
  return batch;
}

void check_item(const char* dataset, int64_t index, int64_t size) {
  TANDEM_CHECK(IndexError, index >= 0 && index < size, dataset, ": item ", index, " is outside the ", size, " items");
}

}  // namespace tandem::inline v0::data

#include <tandem/data/dataset.h>

#include <tandem/data/error_context.h>
#include <tandem/data/stack.h>

namespace tandem { inline namespace v0 { namespace data {

Dataset::~Dataset() = default;

Batch Dataset::get_batch(std::span<const int64_t> indices) const {
  TANDEM_CHECK(ValueError, !indices.empty(), "Dataset: empty batch, expected at least one index");
  Batch batch;
  batch.size = static_cast<int64_t>(indices.size());
  for (int64_t row = 0; row < batch.size; ++row) {
    const int64_t index = indices[static_cast<size_t>(row)];
    try {
      const Example example = get(index);
      stack_into(batch.images, example.image, row, batch.size, "Dataset: the image");
      stack_into(batch.labels, example.label, row, batch.size, "Dataset: the label");
    } catch (...) {
      rethrow_with_context(str("in item ", index, " of the dataset"));
    }
  }
  return batch;
}

void check_item(const char* dataset, int64_t index, int64_t size) {
  TANDEM_CHECK(IndexError, index >= 0 && index < size, dataset, ": index is ", index, ", expected 0 <= index < ", size);
}

}}}  // namespace tandem::v0::data

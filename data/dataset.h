// Datasets and batches.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// One item of a dataset, on the CPU.
struct Example {
  Tensor image;  ///< any shape and dtype, the same for all items of a dataset
  Tensor label;  ///< any shape and dtype, the same for all items; class labels are 0-dim int64
};

/// Examples stacked along a new first dimension.
struct Batch {
  Tensor images;     ///< [size, ...]
  Tensor labels;     ///< [size, ...]
  int64_t size = 0;  ///< number of examples
};

/// A map-style dataset: examples that can be read in any order. Several threads call its const members concurrently, so
/// they must be thread-safe.
class TANDEM_API Dataset {
 public:
  virtual ~Dataset();

  /// Number of items.
  virtual int64_t size() const = 0;
  /// Item `index`, 0 <= index < size(). The result depends only on the index.
  virtual Example get(int64_t index) const = 0;
  /// Stacks the items `indices` (at least one) to a batch on the CPU. Throws ShapeError or DTypeError if items differ
  /// in shape or dtype. An exception of get is rethrown with the same type and a text that names the item. Override it
  /// if reading many items together is faster.
  virtual Batch get_batch(std::span<const int64_t> indices) const;
};

/// Throws IndexError unless 0 <= index < size; the error text begins with `dataset`.
TANDEM_API void check_item(const char* dataset, int64_t index, int64_t size);

}}}  // namespace tandem::v0::data

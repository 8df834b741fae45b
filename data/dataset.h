// Datasets: numbered examples, and batches of them.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// One item of a dataset, on the CPU.
struct Example {
  Tensor image;  ///< any shape and dtype, the same for all items of a dataset
  Tensor label;  ///< likewise; class numbers are 0-dim int64
};

/// Examples stacked along a new first dimension.
struct Batch {
  Tensor images;     ///< [size, ...]
  Tensor labels;     ///< [size, ...]
  int64_t size = 0;  ///< number of examples
};

/// A finite sequence of examples that can be read in any order.  Its const members are called from several threads at a
/// time and must be safe for that.
class TANDEM_API Dataset {
 public:
  virtual ~Dataset();

  /// Number of items.
  virtual int64_t size() const = 0;
  /// Item `index`, 0 <= index < size().  What it returns depends on the index alone.
  virtual Example get(int64_t index) const = 0;
  /// The items `indices` (at least one) as a batch on the CPU.  Stacks the results of get, which must agree in shape
  /// and dtype (else ShapeError, DTypeError); an exception from get goes on as one of the same kind whose text names
  /// the item.  A dataset that can read many items faster than one by one overrides it.
  virtual Batch get_batch(std::span<const int64_t> indices) const;
};

/// Throws IndexError naming `dataset` unless 0 <= index < size.
TANDEM_API void check_item(const char* dataset, int64_t index, int64_t size);

}}}  // namespace tandem::v0::data

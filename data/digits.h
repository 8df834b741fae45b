// Generated images of handwritten digits: a dataset without files.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Images float32 [1, 28, 28] with values in [0, 1] and labels int64 [], 0 to 9. Each item is a pure function of (seed,
/// index).
///
/// Each digit has several sets of strokes, and an item uses one of them. Its points are randomly displaced, then
/// rotated, scaled, sheared and shifted, and drawn with random width and pressure. Then noise is added. Datasets with
/// different seeds are independent; use one for training and one for testing.
class TANDEM_API DigitsDataset : public Dataset {
 public:
  /// Throws ValueError if `size` is negative.
  explicit DigitsDataset(int64_t size, uint64_t seed = 0);

  int64_t size() const override { return size_; }
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  int64_t size_;
  uint64_t seed_;
};

}}}  // namespace tandem::v0::data

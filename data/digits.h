// Digits drawn by the program: a data set that needs no files.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Images float32 [1, 28, 28] with values in [0, 1] and labels int64 [], 0 to 9: each item a pure function of (seed,
/// index).
///
/// A digit is a set of strokes in one of several ways of writing it.  Its points are displaced a little, mapped by a
/// random rotation, scaling, shear and shift, and drawn with a pen of random width and pressure; noise is added at the
/// end.  Datasets of different seeds are independent draws: one for training, one for testing.
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

// Coloured shapes and patterns drawn by the program: a data set of colour images that needs no files.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Images float32 [3, 32, 32] with values in [0, 1] and labels int64 [], 0 to 9: each item a pure function of (seed,
/// index).  The classes: disc, square, triangle, ring, cross, half disc, stripes, squares of a chessboard, dots, star.
///
/// A figure has a random colour, size, place and rotation (patterns: width and offset too) on a background of another
/// random colour that changes slowly across the image; a smaller disc or square of a third colour lies somewhere, maybe
/// across it, and noise is added at the end.  Datasets of different seeds are independent draws.
class TANDEM_API ShapesDataset : public Dataset {
 public:
  /// Throws ValueError if `size` is negative.
  explicit ShapesDataset(int64_t size, uint64_t seed = 0);

  int64_t size() const override { return size_; }
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  int64_t size_;
  uint64_t seed_;
};

}}}  // namespace tandem::v0::data

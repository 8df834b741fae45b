// Generated images of colored shapes and patterns: a dataset without files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Options of ShapesDataset.
struct ShapesOptions {
  int64_t side = 32;   ///< rows and columns of the images; changes the resolution only
  bool plain = false;  ///< the figure alone, on a black background
};

/// Images float32 [3, side, side] with values in [0, 1] and labels int64 [], 0 to 9. Each item is a pure function of
/// (seed, index, options). The classes: disc, square, triangle, ring, cross, half disc, stripes, chessboard, dots,
/// star.
///
/// A figure has a random color, size, position and rotation (patterns also width and offset). Without `plain` the
/// background has a color gradient, a smaller disc or square of a third color is drawn at a random position, and noise
/// is added. Datasets with different seeds are independent.
class TANDEM_API ShapesDataset : public Dataset {
 public:
  /// Throws ValueError if `size` is negative, or unless 1 <= options.side <= 4096.
  explicit ShapesDataset(int64_t size, uint64_t seed = 0, ShapesOptions options = {});

  /// Names of the classes, by label.
  static const std::vector<std::string>& class_names();
  int64_t size() const override { return size_; }
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  int64_t size_;
  uint64_t seed_;
  ShapesOptions options_;
};

}}}  // namespace tandem::v0::data

// MNIST: handwritten digits (LeCun, Cortes, Burges). Read from disk, never downloaded.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Training or test set.
enum class MnistSplit { kTrain, kTest };

/// Options of MnistDataset.
struct MnistOptions {
  bool normalize = false;  ///< (x - 0.1307) / 0.3081: mean 0 and standard deviation 1 over the training set
};

/// Images float32 [1, 28, 28] with values in [0, 1] and labels int64 [], 0 to 9.
///
/// The folder contains MNIST's four files, each uncompressed or as ".gz":
///     train-images-idx3-ubyte  train-labels-idx1-ubyte  t10k-images-idx3-ubyte  t10k-labels-idx1-ubyte
/// If it contains only the two t10k files, their first 80 % (8000 of 10000) are the training set and the rest is the
/// test set.
class TANDEM_API MnistDataset : public Dataset {
 public:
  /// Reads the split into memory, 784 bytes per item. Throws IoError, with a list of the expected files, if a file is
  /// missing; if a file is damaged or has wrong sizes; or if a label is outside 0..9.
  MnistDataset(const std::string& folder, MnistSplit split, MnistOptions options = {});

  int64_t size() const override { return end_ - begin_; }
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  void write_item(int64_t index, float* image, int64_t* label) const;

  Tensor images_;  ///< uint8 [n, 28, 28], of the whole file
  Tensor labels_;  ///< uint8 [n]
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::array<float, 256> value_of_;  ///< the value of each byte
};

}}}  // namespace tandem::v0::data

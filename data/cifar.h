// CIFAR-10: 32x32 color photographs in ten classes (Krizhevsky). Read from disk, never downloaded.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>
#include <tandem/data/transform.h>

namespace tandem { inline namespace v0 { namespace data {

/// Training or test set.
enum class CifarSplit { kTrain, kTest };

/// Options of CifarDataset.
struct CifarOptions {
  int64_t records_per_file = 10000;  ///< number of records that each file must have, to detect truncated files
};

/// Normalizes each channel of CIFAR-10's images to mean 0 and standard deviation 1 over the training set.
TANDEM_API Transform normalize_cifar();

/// Images float32 [3, 32, 32] (red, green, blue) with values in [0, 1] and labels int64 [], 0 to 9: airplane,
/// automobile, bird, cat, deer, dog, frog, horse, ship, truck.
///
/// The folder, or its subfolder cifar-10-batches-bin, contains the files of CIFAR-10's binary version:
///     data_batch_1.bin .. data_batch_5.bin (training)  test_batch.bin (test)
/// A file is a sequence of records of one label byte and 3072 bytes: the three color planes, row by row.
class TANDEM_API CifarDataset : public Dataset {
 public:
  /// Reads the split into memory, 3073 bytes per item. Throws IoError, with a list of the expected files, if a file is
  /// missing; if a file does not have the size of options.records_per_file records; or if a label is outside 0..9.
  CifarDataset(const std::string& folder, CifarSplit split, CifarOptions options = {});

  int64_t size() const override { return records_.size(0); }
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  void write_item(int64_t index, float* image, int64_t* label) const;

  Tensor records_;  ///< uint8 [n, 3073], as they are in the files
};

}}}  // namespace tandem::v0::data

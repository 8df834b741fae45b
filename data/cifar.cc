#include <tandem/data/cifar.h>

#include <filesystem>
#include <string>
#include <vector>

#include <tandem/base/file.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kChannels = 3;
constexpr int64_t kPixels = kChannels * kSide * kSide;
constexpr int64_t kRecord = 1 + kPixels;
constexpr int kClasses = 10;
constexpr const char* kOp = "CifarDataset";

std::vector<std::string> file_names(CifarSplit split) {
  if (split == CifarSplit::kTest) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

}  // namespace

Transform normalize_cifar() { return normalize({0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}); }

CifarDataset::CifarDataset(const std::string& folder, CifarSplit split, CifarOptions options) {
  TANDEM_CHECK(ValueError, options.records_per_file >= 1, "CifarDataset: records_per_file is ",
               options.records_per_file, ", expected at least 1");
  const std::filesystem::path inner = std::filesystem::path(folder) / "cifar-10-batches-bin";
  // "inner/." exists if inner is a folder.
  const std::filesystem::path where = path_exists(kOp, inner / ".") ? inner : std::filesystem::path(folder);
  const std::vector<std::string> names = file_names(split);
  std::string list;
  bool complete = true;
  for (const std::string& name : names) {
    const bool found = path_exists(kOp, where / name);
    complete = complete && found;
    list += "\n  " + name + (found ? "  found" : "  missing");
  }
  TANDEM_CHECK(IoError, complete, "CifarDataset: '", where.string(),
               "' does not have all files of CIFAR-10's binary version", list);

  const auto num_files = static_cast<int64_t>(names.size());
  for (int64_t i = 0; i < num_files; ++i) {
    const std::string path = where / names[static_cast<size_t>(i)];
    const InputFile file(kOp, path);
    const int64_t num_bytes = file.size();  // checked before memory is allocated
    TANDEM_CHECK(IoError, num_bytes % kRecord == 0 && num_bytes / kRecord == options.records_per_file,
                 "CifarDataset: '", path, "' has ", num_bytes, " bytes, expected ", options.records_per_file,
                 " records of ", kRecord, " bytes");
    if (!records_.defined()) records_ = empty({num_files * options.records_per_file, kRecord}, {kUInt8});
    uint8_t* bytes = records_.data<uint8_t>() + i * num_bytes;
    file.read(bytes, 0, num_bytes);
    for (int64_t r = 0; r < options.records_per_file; ++r) {
      const int label = bytes[r * kRecord];
      TANDEM_CHECK(IoError, label < kClasses, "CifarDataset: '", path, "': label ", r, " is ", label,
                   ", expected 0 to 9");
    }
  }
}

void CifarDataset::write_item(int64_t index, float* image, int64_t* label) const {
  check_item("CifarDataset", index, size());
  const uint8_t* record = records_.data<uint8_t>() + index * kRecord;
  *label = record[0];
  for (int64_t i = 0; i < kPixels; ++i) image[i] = static_cast<float>(record[1 + i]) / 255.0f;
}

Example CifarDataset::get(int64_t index) const {
  Example example = {empty({kChannels, kSide, kSide}), empty({}, {kInt64})};
  write_item(index, example.input.data<float>(), example.target.data<int64_t>());
  return example;
}

Batch CifarDataset::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ValueError, count > 0, "CifarDataset: empty batch, expected at least one index");
  Batch batch = {empty({count, kChannels, kSide, kSide}), empty({count}, {kInt64}), count};
  for (int64_t row = 0; row < count; ++row) {
    write_item(indices[static_cast<size_t>(row)], batch.input.data<float>() + row * kPixels,
               batch.target.data<int64_t>() + row);
  }
  return batch;
}

}}}  // namespace tandem::v0::data

#include <tandem/data/cifar.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::CifarDataset;
using td::data::CifarSplit;
using td::testing::error_text;
using td::testing::write_file;

namespace {

constexpr size_t kRecord = 3073;

/// Record i of a file: label (first + i) % 10, byte k of the image (i + k) % 256.
std::string records(int count, int first) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((first + i) % 10);
    for (int k = 0; k < 3072; ++k) bytes += static_cast<char>((i + k) % 256);
  }
  return bytes;
}

class Cifar : public ::testing::Test {
 protected:
  void write_all(const std::string& folder, int count) const {
    for (int i = 1; i <= 5; ++i) write_file(folder + "/data_batch_" + std::to_string(i) + ".bin", records(count, i));
    write_file(folder + "/test_batch.bin", records(count, 0));
  }
  std::string error_of(CifarSplit split, int64_t records_per_file) const {
    return folder_.shortened(
        error_text<td::IoError>([&] { CifarDataset(folder_.path(), split, {.records_per_file = records_per_file}); }));
  }
  const td::testing::TemporaryFolder folder_;
};

TEST_F(Cifar, RecordsAreReadInFileOrder) {
  write_all(folder_.path(), 3);
  const CifarDataset train(folder_.path(), CifarSplit::kTrain, {.records_per_file = 3});
  const CifarDataset test(folder_.path(), CifarSplit::kTest, {.records_per_file = 3});
  ASSERT_EQ(train.size(), 15);
  ASSERT_EQ(test.size(), 3);
  for (int64_t i = 0; i < 15; ++i) {
    const auto example = train.get(i);
    EXPECT_EQ(example.target.item<int64_t>(), (i / 3 + 1 + i % 3) % 10);
    EXPECT_EQ(example.input.shape(), td::Shape({3, 32, 32}));
    const auto values = example.input.to_vector<float>();
    for (const size_t k : {0, 1, 31, 32, 1023, 1024, 3071})
      EXPECT_EQ(values[k], static_cast<float>((static_cast<size_t>(i % 3) + k) % 256) / 255.0f);
  }
  const std::vector<int64_t> indices = {14, 0, 7};
  const auto batch = train.get_batch(indices);
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.input.shape(), td::Shape({3, 3, 32, 32}));
  EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{7, 1, 4}));
  std::vector<float> joined;
  for (const int64_t index : indices) {
    const auto values = train.get(index).input.to_vector<float>();
    joined.insert(joined.end(), values.begin(), values.end());
  }
  EXPECT_EQ(batch.input.to_vector<float>(), joined);
}

TEST_F(Cifar, ArchiveSubfolderIsFound) {
  const std::string inner = folder_ / "cifar-10-batches-bin";
  std::filesystem::create_directory(inner);
  write_all(inner, 1);
  EXPECT_EQ(CifarDataset(folder_.path(), CifarSplit::kTrain, {.records_per_file = 1}).size(), 5);
}

TEST_F(Cifar, MissingFilesAreListed) {
  write_all(folder_.path(), 1);
  std::filesystem::remove(folder_ / "data_batch_4.bin");
  EXPECT_EQ(error_of(CifarSplit::kTrain, 1),
            "CifarDataset: 'DIR' does not have all files of CIFAR-10's binary version\n"
            "  data_batch_1.bin  found\n"
            "  data_batch_2.bin  found\n"
            "  data_batch_3.bin  found\n"
            "  data_batch_4.bin  missing\n"
            "  data_batch_5.bin  found");
  std::filesystem::remove(folder_ / "test_batch.bin");
  EXPECT_EQ(error_of(CifarSplit::kTest, 1),
            "CifarDataset: 'DIR' does not have all files of CIFAR-10's binary version\n  test_batch.bin  missing");
}

TEST_F(Cifar, FilesOfWrongSizeAreRejected) {
  const std::string good = records(2, 0);
  for (const size_t size : {size_t{0}, size_t{1}, kRecord - 1, kRecord, 2 * kRecord - 1}) {
    write_file(folder_ / "test_batch.bin", good.substr(0, size));
    EXPECT_EQ(error_of(CifarSplit::kTest, 2), "CifarDataset: 'DIR/test_batch.bin' has " + std::to_string(size) +
                                                  " bytes, expected 2 records of 3073 bytes");
  }
  write_file(folder_ / "test_batch.bin", good + good);
  EXPECT_EQ(error_of(CifarSplit::kTest, 10000),
            "CifarDataset: 'DIR/test_batch.bin' has 12292 bytes, expected 10000 records of 3073 bytes");
  std::filesystem::remove(folder_ / "test_batch.bin");
  std::filesystem::create_directory(folder_ / "test_batch.bin");
  EXPECT_EQ(error_of(CifarSplit::kTest, 2), "CifarDataset: 'DIR/test_batch.bin' is a folder, not a regular file");
}

TEST_F(Cifar, LabelsAboveNineAreRejected) {
  std::string bytes = records(3, 0);
  bytes[2 * kRecord] = 10;
  write_file(folder_ / "test_batch.bin", bytes);
  EXPECT_EQ(error_of(CifarSplit::kTest, 3), "CifarDataset: 'DIR/test_batch.bin': label 2 is 10, expected 0 to 9");
}

TEST_F(Cifar, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, CifarDataset(folder_.path(), CifarSplit::kTest, {.records_per_file = 0}),
               "CifarDataset: records_per_file is 0, expected at least 1");
  write_all(folder_.path(), 2);
  const CifarDataset test(folder_.path(), CifarSplit::kTest, {.records_per_file = 2});
  EXPECT_ERROR(td::IndexError, test.get(2), "CifarDataset: index is 2, expected 0 <= index < 2");
  EXPECT_ERROR(td::ValueError, test.get_batch({}), "CifarDataset: empty batch, expected at least one index");
}

TEST_F(Cifar, NormalizationUsesTrainingSetStatistics) {
  td::data::ItemRandom random(0, 0, 0);
  const td::data::Example example = td::data::normalize_cifar()({td::zeros({3, 1, 1}), {}}, random);
  const auto values = example.input.to_vector<float>();
  EXPECT_FLOAT_EQ(values[0], -0.4914f / 0.2470f);
  EXPECT_FLOAT_EQ(values[1], -0.4822f / 0.2435f);
  EXPECT_FLOAT_EQ(values[2], -0.4465f / 0.2616f);
}

}  // namespace

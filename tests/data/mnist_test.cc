#include <tandem/data/mnist.h>

#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::MnistDataset;
using td::data::MnistSplit;
using td::testing::Bytes;
using td::testing::gzip;
using td::testing::idx;

namespace {

constexpr size_t kPixels = 784;

/// Pixel p of image i.
uint8_t pixel(size_t i, size_t p) { return static_cast<uint8_t>(i * 31 + p * 7); }

Bytes images_file(uint32_t count) {
  Bytes values;
  for (size_t i = 0; i < count; ++i) {
    for (size_t p = 0; p < kPixels; ++p) values.push_back(pixel(i, p));
  }
  return idx({count, 28, 28}, values);
}

Bytes labels_file(uint32_t count) {
  Bytes values;
  for (uint32_t i = 0; i < count; ++i) values.push_back(static_cast<uint8_t>(i * 3 % 10));
  return idx({count}, values);
}

class Mnist : public ::testing::Test {
 protected:
  std::string error_of(MnistSplit split = MnistSplit::kTrain) {
    return folder_.shortened(td::testing::error_text<td::IoError>([&] { MnistDataset(folder_.path(), split); }));
  }
  void write_train(uint32_t count) {
    folder_.write("train-images-idx3-ubyte", images_file(count));
    folder_.write("train-labels-idx1-ubyte.gz", gzip(labels_file(count)));
  }
  void write_test(uint32_t count) {
    folder_.write("t10k-images-idx3-ubyte.gz", gzip(images_file(count)));
    folder_.write("t10k-labels-idx1-ubyte", labels_file(count));
  }

  td::testing::TemporaryFolder folder_;
};

TEST_F(Mnist, ImagesAreScaledToUnitRange) {
  write_train(7);
  const MnistDataset dataset(folder_.path(), MnistSplit::kTrain);
  ASSERT_EQ(dataset.size(), 7);
  for (size_t i = 0; i < 7; ++i) {
    const auto example = dataset.get(static_cast<int64_t>(i));
    EXPECT_EQ(example.input.shape(), td::Shape({1, 28, 28}));
    EXPECT_EQ(example.target.shape(), td::Shape());
    EXPECT_EQ(example.target.item<int64_t>(), static_cast<int64_t>(i * 3 % 10));
    const auto values = example.input.to_vector<float>();
    for (size_t p = 0; p < kPixels; ++p) ASSERT_EQ(values[p], static_cast<float>(pixel(i, p)) / 255.0f);
  }
}

TEST_F(Mnist, NormalizeOptionStandardizesPixels) {
  write_train(1);
  const MnistDataset dataset(folder_.path(), MnistSplit::kTrain, {.normalize = true});
  const auto values = dataset.get(0).input.to_vector<float>();
  for (size_t p = 0; p < kPixels; ++p) ASSERT_NEAR(values[p], (pixel(0, p) / 255.0 - 0.1307) / 0.3081, 1e-6);
}

TEST_F(Mnist, BatchEqualsStackedItems) {
  write_test(20);
  const MnistDataset dataset(folder_.path(), MnistSplit::kTest);
  const std::vector<int64_t> indices = {3, 0, 3, 1};
  const auto fast = dataset.get_batch(indices);
  const auto slow = dataset.Dataset::get_batch(indices);
  EXPECT_EQ(fast.size, 4);
  EXPECT_EQ(fast.input.shape(), td::Shape({4, 1, 28, 28}));
  EXPECT_EQ(fast.input.to_vector<float>(), slow.input.to_vector<float>());
  EXPECT_EQ(fast.target.to_vector<int64_t>(), slow.target.to_vector<int64_t>());
}

TEST_F(Mnist, TrainAndTestFilesAreReadSeparately) {
  write_train(6);
  write_test(10);
  EXPECT_EQ(MnistDataset(folder_.path(), MnistSplit::kTrain).size(), 6);
  EXPECT_EQ(MnistDataset(folder_.path(), MnistSplit::kTest).size(), 10);
}

TEST_F(Mnist, TestFilesAloneAreSplitIntoBothSets) {
  write_test(10);
  const MnistDataset train(folder_.path(), MnistSplit::kTrain);
  const MnistDataset test(folder_.path(), MnistSplit::kTest);
  EXPECT_EQ(train.size(), 8);
  EXPECT_EQ(test.size(), 2);
  EXPECT_EQ(train.get(7).input.to_vector<float>()[0], static_cast<float>(pixel(7, 0)) / 255.0f);
  EXPECT_EQ(test.get(0).input.to_vector<float>()[0], static_cast<float>(pixel(8, 0)) / 255.0f);
  EXPECT_EQ(test.get(1).target.item<int64_t>(), 27 % 10);
  write_test(23);  // 20 %, rounded down, are for testing
  EXPECT_EQ(MnistDataset(folder_.path(), MnistSplit::kTrain).size(), 19);
  EXPECT_EQ(MnistDataset(folder_.path(), MnistSplit::kTest).size(), 4);
}

TEST_F(Mnist, OutOfRangeItemsAreRejected) {
  write_test(10);
  const MnistDataset test(folder_.path(), MnistSplit::kTest);
  EXPECT_ERROR(td::IndexError, test.get(2), "MnistDataset: index is 2, expected 0 <= index < 2");
  EXPECT_THROW(test.get(-1), td::IndexError);
  EXPECT_THROW(test.get_batch(std::vector<int64_t>{0, 2}), td::IndexError);
  EXPECT_THROW(test.get_batch({}), td::ValueError);
}

TEST_F(Mnist, MissingFilesAreListed) {
  const std::string header = "MnistDataset: 'DIR' does not have all files (each may end in .gz)\n";
  const std::string footer =
      "\n  a folder with only the t10k files is accepted: they are divided into training and test set";
  EXPECT_EQ(error_of(), header +
                            "  train-images-idx3-ubyte  missing\n  train-labels-idx1-ubyte  missing\n"
                            "  t10k-images-idx3-ubyte   missing\n  t10k-labels-idx1-ubyte   missing" +
                            footer);
  // An incomplete training set is an error; the test set is not divided.
  folder_.write("train-images-idx3-ubyte", images_file(2));
  write_test(10);
  EXPECT_EQ(error_of(), header +
                            "  train-images-idx3-ubyte  found\n  train-labels-idx1-ubyte  missing\n"
                            "  t10k-images-idx3-ubyte   found\n  t10k-labels-idx1-ubyte   found" +
                            footer);
  EXPECT_EQ(MnistDataset(folder_.path(), MnistSplit::kTest).size(), 10);
}

TEST_F(Mnist, InconsistentFilesAreRejected) {
  folder_.write("train-images-idx3-ubyte", idx({2, 28, 27}, Bytes(2 * 28 * 27)));
  folder_.write("train-labels-idx1-ubyte", labels_file(2));
  EXPECT_EQ(error_of(), "MnistDataset: 'DIR/train-images-idx3-ubyte' has sizes [2, 28, 27], expected [n, 28, 28]");
  folder_.write("train-images-idx3-ubyte", images_file(3));
  EXPECT_EQ(error_of(),
            "MnistDataset: 'DIR/train-labels-idx1-ubyte' has sizes [2], expected [3] for the images of "
            "'DIR/train-images-idx3-ubyte'");
  folder_.write("train-labels-idx1-ubyte", idx({3}, {0, 10, 9}));
  EXPECT_EQ(error_of(), "MnistDataset: 'DIR/train-labels-idx1-ubyte': label 1 is 10, expected 0 to 9");
}

}  // namespace

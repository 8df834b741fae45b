#include <tandem/data/digits.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::DigitsDataset;

namespace {

TEST(Digits, ItemDependsOnlyOnSeedAndIndex) {
  const DigitsDataset a(100, 5);
  const DigitsDataset b(200, 5);
  const DigitsDataset other(100, 6);
  int differing = 0;
  for (const int64_t index : {99, 0, 17}) {
    const auto image = a.get(index).input.to_vector<float>();
    EXPECT_EQ(image, b.get(index).input.to_vector<float>());
    EXPECT_EQ(a.get(index).target.item<int64_t>(), b.get(index).target.item<int64_t>());
    differing += image != other.get(index).input.to_vector<float>();
  }
  EXPECT_EQ(differing, 3);
}

TEST(Digits, BatchEqualsStackedItems) {
  const DigitsDataset digits(50, 3);
  const std::vector<int64_t> indices = {49, 3, 3, 0};
  const auto fast = digits.get_batch(indices);
  const auto slow = digits.Dataset::get_batch(indices);
  EXPECT_EQ(fast.size, 4);
  EXPECT_EQ(fast.input.shape(), td::Shape({4, 1, 28, 28}));
  EXPECT_EQ(fast.input.to_vector<float>(), slow.input.to_vector<float>());
  EXPECT_EQ(fast.target.to_vector<int64_t>(), slow.target.to_vector<int64_t>());
}

TEST(Digits, EveryDigitIsEquallyLikely) {
  constexpr int kCount = 5000;
  const DigitsDataset digits(kCount, 1);
  std::array<int, 10> counts = {};
  for (int i = 0; i < kCount; ++i) ++counts.at(static_cast<size_t>(digits.get(i).target.item<int64_t>()));
  for (const int count : counts) EXPECT_NEAR(count, kCount / 10, 5 * 21.2);  // 5 standard deviations
}

TEST(Digits, ImagesHaveInkAwayFromTheBorder) {
  const DigitsDataset digits(300, 2);
  double border = 0;
  for (int64_t i = 0; i < digits.size(); ++i) {
    const auto image = digits.get(i).input.to_vector<float>();
    double ink = 0;
    for (size_t p = 0; p < image.size(); ++p) {
      ASSERT_TRUE(image[p] >= 0 && image[p] <= 1);
      ink += image[p];
      const size_t row = p / 28;
      const size_t column = p % 28;
      if (std::min(row, column) == 0 || std::max(row, column) == 27) border += image[p];
    }
    EXPECT_GT(ink, 20) << i;
    EXPECT_LT(ink, 300) << i;
  }
  EXPECT_LT(border / (300 * 108), 0.1);
}

TEST(Digits, NearestMeanClassifierBeatsChance) {
  // A nearest-mean classifier must be much better than chance on images of another seed.
  const DigitsDataset train(3000, 1);
  const DigitsDataset test(1000, 2);
  std::vector<std::vector<double>> mean(10, std::vector<double>(784));
  std::array<int, 10> counts = {};
  for (int64_t i = 0; i < train.size(); ++i) {
    const auto example = train.get(i);
    const auto label = static_cast<size_t>(example.target.item<int64_t>());
    ++counts.at(label);
    const auto image = example.input.to_vector<float>();
    for (size_t p = 0; p < 784; ++p) mean[label][p] += image[p];
  }
  for (size_t c = 0; c < 10; ++c) {
    for (double& value : mean[c]) value /= counts.at(c);
  }
  int correct = 0;
  for (int64_t i = 0; i < test.size(); ++i) {
    const auto example = test.get(i);
    const auto image = example.input.to_vector<float>();
    std::array<double, 10> distance = {};
    for (size_t c = 0; c < 10; ++c) {
      for (size_t p = 0; p < 784; ++p) distance.at(c) += (image[p] - mean[c][p]) * (image[p] - mean[c][p]);
    }
    const auto guess = std::min_element(distance.begin(), distance.end()) - distance.begin();
    correct += guess == example.target.item<int64_t>();
  }
  EXPECT_GT(correct, 500);
  EXPECT_LT(correct, 950);  // not trivial
}

TEST(Digits, InvalidArgumentsAreRejected) {
  EXPECT_THROW(DigitsDataset(-1), td::ValueError);
  const DigitsDataset digits(3);
  EXPECT_THROW(digits.get(3), td::IndexError);
  EXPECT_THROW(digits.get(-1), td::IndexError);
  EXPECT_THROW(digits.get_batch({}), td::ValueError);
  EXPECT_THROW(digits.get_batch(std::vector<int64_t>{0, 3}), td::IndexError);
}

}  // namespace

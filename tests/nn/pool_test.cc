#include <tandem/nn/pool.h>

#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

/// The values 0 .. 19 in four rows.
td::Tensor image() {
  std::vector<float> values(20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return td::from_vector<float>(values, {1, 1, 4, 5});
}

TEST(MaxPool2d, OutputIsTheMaximumOfEachWindow) {
  EXPECT_EQ(nn::MaxPool2d(2)(image()).to_vector<float>(), (std::vector<float>{6, 8, 16, 18}));
  EXPECT_EQ(nn::MaxPool2d({2, 3}, {.stride = td::Size2d(3, 2), .ceil_mode = true})(image()).to_vector<float>(),
            (std::vector<float>{7, 9, 17, 19}));
  EXPECT_EQ(nn::MaxPool2d(2, {.padding = 1, .dilation = {1, 3}})(image()).shape(), td::Shape({1, 1, 3, 2}));
}

TEST(AvgPool2d, OutputIsTheMeanOfEachWindow) {
  EXPECT_EQ(nn::AvgPool2d(2)(image()).to_vector<float>(), (std::vector<float>{3, 5, 13, 15}));
  EXPECT_EQ(nn::AvgPool2d(2, {.stride = td::Size2d(4, 5), .padding = 1})(image()).to_vector<float>(),
            (std::vector<float>{0, 1, 3.75, 4.75}));
  EXPECT_EQ(nn::AvgPool2d(2, {.stride = td::Size2d(4, 6), .padding = 1, .count_include_pad = false})(image())
                .to_vector<float>(),
            (std::vector<float>{0, 15}));
}

TEST(AdaptiveAvgPool2d, AveragesRegionsToTheGivenSize) {
  EXPECT_EQ(nn::AdaptiveAvgPool2d(1)(image()).to_vector<float>(), (std::vector<float>{9.5}));
  EXPECT_EQ(nn::AdaptiveAvgPool2d({2, 1})(image()).to_vector<float>(), (std::vector<float>{4.5, 14.5}));
}

}  // namespace

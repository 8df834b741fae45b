#include <tandem/nn/pool.h>

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

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
  EXPECT_EQ(nn::AdaptiveAvgPool2d({1, std::nullopt})(image()).to_vector<float>(),
            (std::vector<float>{7.5, 8.5, 9.5, 10.5, 11.5}));
}

TEST(AvgPool2d, DivisorReplacesTheNumberOfElements) {
  EXPECT_EQ(nn::AvgPool2d(2, {.divisor_override = 2})(image()).to_vector<float>(), (std::vector<float>{6, 10, 26, 30}));
}

TEST(AdaptiveMaxPool2d, SelectsMaximaOfRegions) {
  nn::AdaptiveMaxPool2d pool({2, 1});
  EXPECT_EQ(pool(image()).to_vector<float>(), (std::vector<float>{9, 19}));
  EXPECT_EQ(pool.with_indices(image()).indices.to_vector<int>(), (std::vector<int>{9, 19}));
  EXPECT_EQ(nn::AdaptiveMaxPool2d({std::nullopt, 1})(image()).to_vector<float>(), (std::vector<float>{4, 9, 14, 19}));
}

TEST(SignalPooling, LayersPoolTheLastDimension) {
  const td::Tensor x = image().view({1, 20});  // 0 .. 19 without a batch
  EXPECT_EQ(nn::MaxPool1d(6)(x).to_vector<float>(), (std::vector<float>{5, 11, 17}));
  EXPECT_EQ(nn::MaxPool1d(3, {.stride = 8, .padding = 1, .dilation = 2, .ceil_mode = true})(x).to_vector<float>(),
            (std::vector<float>{3, 11, 19}));
  EXPECT_EQ(nn::AvgPool1d(6, {.stride = 7, .padding = 1, .count_include_pad = false})(x).to_vector<float>(),
            (std::vector<float>{2, 8.5, 15.5}));
  EXPECT_EQ(nn::AdaptiveAvgPool1d(2)(x).to_vector<float>(), (std::vector<float>{4.5, 14.5}));
  EXPECT_EQ(nn::AdaptiveMaxPool1d(3)(x).to_vector<float>(), (std::vector<float>{6, 13, 19}));
  EXPECT_EQ(nn::AdaptiveMaxPool1d(3).with_indices(x).indices.to_vector<int>(), (std::vector<int>{6, 13, 19}));
}

TEST(MaxUnpool, PlacesMaximaAtTheirIndices) {
  const td::ValuesIndices rows = nn::MaxPool2d(2).with_indices(image());
  const nn::MaxUnpool2d unpool(2);
  const std::vector<float> values = unpool(rows.values, rows.indices, td::Size2d(4, 5)).to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], i == 6 || i == 8 || i == 16 || i == 18 ? static_cast<float>(i) : 0) << i;
  }
  EXPECT_EQ(unpool(rows.values, td::zeros({1, 1, 2, 2}, {td::kInt64})).shape(), td::Shape({1, 1, 4, 4}));
  const td::ValuesIndices signal = nn::MaxPool1d(3).with_indices(td::from_vector<float>({1, 3, 2, 6, 5, 4}, {1, 6}));
  EXPECT_EQ(nn::MaxUnpool1d(3)(signal.values, signal.indices).to_vector<float>(),
            (std::vector<float>{0, 3, 0, 6, 0, 0}));
}

TEST(MaxUnpool, ErrorsNameTheLayer) {
  const td::Tensor x = td::ones({1, 2, 3});
  const std::string text = error_text<td::DTypeError>([&] { nn::MaxUnpool1d(2)(x, x); });
  EXPECT_TRUE(text.ends_with("\n  in MaxUnpool1d")) << text;
}

TEST(Pooling, SettingsArePrinted) {
  EXPECT_EQ(nn::MaxPool1d(3, {.stride = 2, .dilation = 2}).extra_repr(), "kernel 3, stride 2, padding 0, dilation 2");
  EXPECT_EQ(nn::AvgPool2d(2, {.divisor_override = 3}).extra_repr(), "kernel 2x2, stride 2, padding 0, divisor 3");
  EXPECT_EQ(nn::AdaptiveAvgPool1d(4).extra_repr(), "output 4");
  EXPECT_EQ(nn::AdaptiveMaxPool2d({std::nullopt, 7}).extra_repr(), "output keepx7");
  EXPECT_EQ(nn::MaxUnpool2d(2, {.padding = 1}).extra_repr(), "kernel 2x2, stride 2, padding 1");
}

}  // namespace

#include <vector>

#include <gtest/gtest.h>

#include <tandem/nn/pad.h>
#include <tandem/nn/resize.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

using Values = std::vector<float>;

TEST(PaddingLayers, OneDimensionalLayersPadBothSides) {
  const td::Tensor x = td::from_vector<float>({1, 2, 3}, {1, 1, 3});
  EXPECT_EQ(nn::ConstantPad1d(1, 4)(x).to_vector<float>(), (Values{4, 1, 2, 3, 4}));
  EXPECT_EQ(nn::ZeroPad1d({2, -1})(x).to_vector<float>(), (Values{0, 0, 1, 2}));
  EXPECT_EQ(nn::ReflectionPad1d({2, 1})(x).to_vector<float>(), (Values{3, 2, 1, 2, 3, 2}));
  EXPECT_EQ(nn::ReplicationPad1d({0, 2})(x).to_vector<float>(), (Values{1, 2, 3, 3, 3}));
  EXPECT_EQ(nn::CircularPad1d({1, 2})(x).to_vector<float>(), (Values{3, 1, 2, 3, 1, 2}));
}

TEST(PaddingLayers, TwoDimensionalLayersTakeLeftRightTopBottom) {
  const td::Tensor x = td::from_vector<float>({1, 2, 3, 4}, {1, 2, 2});
  EXPECT_EQ(nn::ConstantPad2d({1, 0, 0, 1}, 5)(x).to_vector<float>(), (Values{5, 1, 2, 5, 3, 4, 5, 5, 5}));
  EXPECT_EQ(nn::ZeroPad2d({0, 1, 1, 0})(x).to_vector<float>(), (Values{0, 0, 0, 1, 2, 0, 3, 4, 0}));
  EXPECT_EQ(nn::ReflectionPad2d({1, 0, 0, 1})(x).to_vector<float>(), (Values{2, 1, 2, 4, 3, 4, 2, 1, 2}));
  EXPECT_EQ(nn::ReplicationPad2d({0, 1, 1, 0})(x).to_vector<float>(), (Values{1, 2, 2, 1, 2, 2, 3, 4, 4}));
  EXPECT_EQ(nn::CircularPad2d({1, 0, 1, 0})(x).to_vector<float>(), (Values{4, 3, 4, 2, 1, 2, 4, 3, 4}));
  EXPECT_EQ(nn::ZeroPad2d(2)(x).shape(), td::Shape({1, 6, 6}));
}

TEST(PaddingLayers, SettingsArePrinted) {
  EXPECT_EQ(nn::ReflectionPad2d(2).extra_repr(), "padding 2");
  EXPECT_EQ(nn::ZeroPad1d({1, 0}).extra_repr(), "padding [1, 0]");
  EXPECT_EQ(nn::ConstantPad2d({1, 2, 3, 4}, 0.5).extra_repr(), "padding [1, 2, 3, 4], value 0.5");
}

TEST(PaddingLayers, WrongNumberOfSidesIsRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] {
              nn::ReplicationPad2d({1, 2});
            }),
            "ReplicationPad2d: padding is [1, 2], expected one number or 4");
  EXPECT_EQ(error_text<td::ValueError>([] {
              nn::CircularPad1d({1, 2, 3, 4});
            }),
            "CircularPad1d: padding is [1, 2, 3, 4], expected one number or 2");
}

TEST(Upsample, ImagesAreInterpolated) {
  const td::Tensor x = td::from_vector<float>({1, 3}, {1, 1, 1, 2});
  EXPECT_EQ(nn::Upsample({.scale_factor = {2}})(x).to_vector<float>(), (Values{1, 1, 3, 3, 1, 1, 3, 3}));
  EXPECT_EQ(nn::Upsample({.size = {1, 4}, .mode = td::InterpolateMode::kBilinear})(x).to_vector<float>(),
            (Values{1, 1.5, 2.5, 3}));
  EXPECT_EQ(nn::UpsamplingNearest2d({.size = {1, 4}})(x).to_vector<float>(), (Values{1, 1, 3, 3}));
  EXPECT_EQ(nn::UpsamplingBilinear2d({.size = {1, 3}})(x).to_vector<float>(), (Values{1, 2, 3}));
}

TEST(PixelShuffle, ChannelsBecomePixelsAndBack) {
  const td::Tensor x = td::from_vector<float>({1, 2, 3, 4}, {1, 4, 1, 1});
  const td::Tensor y = nn::PixelShuffle(2)(x);
  EXPECT_EQ(y.shape(), td::Shape({1, 1, 2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (Values{1, 2, 3, 4}));
  EXPECT_EQ(nn::PixelUnshuffle(2)(y).shape(), x.shape());
}

TEST(ChannelShuffle, GroupsAreInterleaved) {
  const td::Tensor x = td::from_vector<float>({1, 2, 3, 4}, {1, 4, 1});
  EXPECT_EQ(nn::ChannelShuffle(2)(x).to_vector<float>(), (Values{1, 3, 2, 4}));
}

TEST(Upsample, SettingsArePrinted) {
  EXPECT_EQ(nn::Upsample({.scale_factor = {2}}).extra_repr(), "scale 2, nearest");
  EXPECT_EQ(nn::Upsample({.scale_factor = {2, 0.5}, .mode = td::InterpolateMode::kBicubic}).extra_repr(),
            "scale 2 x 0.5, bicubic");
  EXPECT_EQ(nn::UpsamplingBilinear2d({.size = {4, 6}}).extra_repr(), "size [4, 6], bilinear, align corners");
  EXPECT_EQ(nn::PixelShuffle(3).extra_repr(), "factor 3");
  EXPECT_EQ(nn::ChannelShuffle(4).extra_repr(), "groups 4");
}

}  // namespace

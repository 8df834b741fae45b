#include <tandem/data/image_ops.h>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/data/image_fixtures.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::Tensor;
using td::data::Interpolation;
using td::data::resize_image;

namespace {

/// Largest difference between two images of one shape.
double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.dtype(), b.dtype());
  const auto x = a.to_vector<double>();
  const auto y = b.to_vector<double>();
  double result = 0;
  for (size_t i = 0; i < x.size(); ++i) result = std::max(result, std::abs(x[i] - y[i]));
  return result;
}

Tensor permuted(const Tensor& image) {  // the same pixels, in memory [H, W, C]
  const td::Shape& s = image.shape();
  Tensor pixels = td::empty({s[1], s[2], s[0]}, {image.dtype()});
  const Tensor view = td::make_view(pixels.storage(), image.dtype(), s, {1, s[2] * s[0], s[0]}, 0);
  td::primitives::copy(image, view);
  return view;
}

TEST(ResizeImage, ResultsAreEqualToPillow) {
  const auto fixtures = td::testing::image_fixtures();
  const Tensor picture = fixtures.at("picture");
  int count = 0;
  for (const auto& [name, expected] : fixtures) {
    if (!name.starts_with("resized")) continue;
    const auto filter = name.find("bicubic") != std::string::npos ? Interpolation::kBicubic : Interpolation::kBilinear;
    const int64_t height = expected.size(1);
    const int64_t width = expected.size(2);
    if (name.starts_with("resized_float")) {
      const Tensor plane = td::empty({1, picture.size(1), picture.size(2)});
      for (int64_t i = 0; i < plane.numel(); ++i)
        plane.data<float>()[i] = static_cast<float>(picture.data<uint8_t>()[i]) / 255;
      EXPECT_LT(distance(resize_image(plane, height, width, filter), expected), 1e-6) << name;
    } else {
      EXPECT_EQ(distance(resize_image(picture, height, width, filter), expected), 0) << name;
      EXPECT_EQ(distance(resize_image(permuted(picture), height, width, filter), expected), 0) << name;
    }
    ++count;
  }
  EXPECT_EQ(count, 14);
}

TEST(ResizeImage, EqualSizeIsACopy) {
  const Tensor picture = td::testing::image_fixtures().at("picture");
  const Tensor same = resize_image(picture, picture.size(1), picture.size(2), Interpolation::kBicubic);
  EXPECT_EQ(distance(same, picture), 0);
  EXPECT_FALSE(same.is_same(picture));
}

TEST(ResizeImage, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, resize_image(td::zeros({3, 2, 2}), 0, 1),
               "resize_image: the size is 0x1, expected 1 to 65535");
  EXPECT_ERROR(td::ShapeError, resize_image(td::zeros({2, 2}), 1, 1),
               "resize_image: the image has shape [2, 2], expected [C, H, W]");
  EXPECT_ERROR(td::ShapeError, resize_image(td::zeros({3, 0, 2}), 1, 1),
               "resize_image: the image has shape [3, 0, 2], expected at least one pixel");
  EXPECT_ERROR(td::DTypeError, resize_image(td::zeros({3, 2, 2}, {td::kFloat64}), 1, 1),
               "resize_image: the image is float64, expected uint8 or float32");
}

TEST(AdjustColors, ResultsMatchTorchvision) {
  const auto fixtures = td::testing::image_fixtures();
  const Tensor picture = fixtures.at("picture");
  int count = 0;
  for (const auto& [name, expected] : fixtures) {
    const size_t bracket = name.find('(');
    if (bracket == std::string::npos) continue;
    const std::string function = name.substr(0, bracket);
    const double factor = std::stod(name.substr(bracket + 1));
    const auto apply = [&](const Tensor& image) {
      return function == "adjust_brightness" ? td::data::adjust_brightness(image, factor)
             : function == "adjust_contrast" ? td::data::adjust_contrast(image, factor)
             : function == "adjust_hue"      ? td::data::adjust_hue(image, factor)
                                             : td::data::adjust_saturation(image, factor);
    };
    EXPECT_LE(distance(apply(picture), expected), 1) << name;
    EXPECT_LE(distance(apply(permuted(picture)), expected), 1) << name;
    Tensor floats = td::empty(picture.shape());
    for (int64_t i = 0; i < floats.numel(); ++i)
      floats.data<float>()[i] = static_cast<float>(picture.data<uint8_t>()[i]) / 255;
    const auto values = apply(floats).to_vector<float>();
    const auto levels = expected.to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i] * 255, levels[i], 2) << name;
    ++count;
  }
  EXPECT_EQ(count, 9);
}

TEST(AdjustColors, InvalidArgumentsAreRejected) {
  const Tensor gray = td::zeros({1, 2, 2});
  EXPECT_ERROR(td::ValueError, td::data::adjust_brightness(gray, -1),
               "adjust_brightness: factor is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, td::data::adjust_hue(gray, 0.6),
               "adjust_hue: factor is 0.6, expected -0.5 <= factor <= 0.5");
  EXPECT_ERROR(td::ShapeError, td::data::adjust_saturation(gray, 1),
               "adjust_saturation: the image has shape [1, 2, 2], expected 3 channels");
  EXPECT_ERROR(td::ShapeError, td::data::adjust_contrast(td::zeros({2, 2, 2}), 1),
               "adjust_contrast: the image has shape [2, 2, 2], expected 1 or 3 channels");
}

TEST(Crop, WindowBeyondTheImageHasZeros) {
  const Tensor image = td::from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  EXPECT_EQ(td::data::crop(image, 0, 1, 2, 2).to_vector<int>(), (std::vector<int>{2, 3, 5, 6}));
  EXPECT_EQ(td::data::crop(image, -1, 2, 2, 2).to_vector<int>(), (std::vector<int>{0, 0, 3, 0}));
  EXPECT_EQ(td::data::crop(image, 5, 5, 1, 2).to_vector<int>(), (std::vector<int>{0, 0}));
  EXPECT_ERROR(td::ValueError, td::data::crop(image, 0, 0, -1, 2), "crop: the size is -1x2, expected at least 0");
}

}  // namespace

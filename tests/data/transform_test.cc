#include <tandem/data/transform.h>

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
using td::Tensor;
using td::data::ItemRandom;
using td::data::transform_images;
using td::testing::error_text;

namespace {

/// [C, H, W] with values 1, 2, 3, ...
Tensor counted(const td::Shape& shape) {
  Tensor image = td::empty(shape);
  for (int64_t i = 0; i < image.num_elements(); ++i) image.data<float>()[i] = static_cast<float>(i + 1);
  return image;
}

Tensor transformed(const td::data::Transform& transform, const Tensor& image, int64_t index = 0) {
  ItemRandom random(5, index, 9);
  return transform(image, random);
}

/// Element (c, y, x) of the image shifted by `down` rows and `right` columns, with zeros at the border.
std::vector<float> moved(const Tensor& image, int64_t down, int64_t right) {
  const auto in = image.to_vector<float>();
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  std::vector<float> out;
  for (int64_t c = 0; c < image.size(0); ++c) {
    for (int64_t y = down; y < height + down; ++y) {
      for (int64_t x = right; x < width + right; ++x) {
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;
        out.push_back(inside ? in[static_cast<size_t>((c * height + y) * width + x)] : 0);
      }
    }
  }
  return out;
}

TEST(ItemRandom, SequenceDependsOnSeedIndexAndStream) {
  ItemRandom a(7, 3, 1);
  ItemRandom b(7, 3, 1);
  std::vector<uint32_t> first;
  for (int i = 0; i < 9; ++i) {
    first.push_back(a.word());
    EXPECT_EQ(b.word(), first.back());
  }
  EXPECT_EQ(first[4], td::philox({7, 0}, {1, 3, 0, 1})[0]);
  for (ItemRandom other : {ItemRandom(8, 3, 1), ItemRandom(7, 4, 1), ItemRandom(7, 3, 2)}) {
    EXPECT_NE(other.word(), first[0]);
  }
}

TEST(Normalize, SubtractsAndDividesPerChannel) {
  const auto transform = td::data::normalize({1, 0.5, -2}, {2, 0.25, 3});
  const Tensor image = counted({3, 1, 2});
  EXPECT_EQ(transformed(transform, image).to_vector<float>(), (std::vector<float>{0, 0.5, 10, 14, 7.0f / 3, 8.0f / 3}));
  const Tensor transposed = td::make_view(image.storage(), td::kFloat32, {3, 2}, {1, 3}, 0);  // 1 4, 2 5, 3 6
  EXPECT_EQ(transformed(transform, transposed).to_vector<float>(),
            (std::vector<float>{0, 1.5, 6, 18, 5.0f / 3, 8.0f / 3}));
}

TEST(Normalize, InvalidArgumentsAndImagesAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] {
              td::data::normalize({1, 2}, {1});
            }),
            "normalize: mean has 2 values and deviation 1, expected one value per channel");
  EXPECT_EQ(error_text<td::ValueError>([] { td::data::normalize({}, {}); }),
            "normalize: mean has 0 values and deviation 0, expected one value per channel");
  EXPECT_EQ(error_text<td::ValueError>([] { td::data::normalize({1}, {0}); }),
            "normalize: deviation has the value 0, expected > 0");
  const auto transform = td::data::normalize({1}, {2});
  EXPECT_EQ(error_text<td::ShapeError>([&] {
              transformed(transform, counted({3, 1, 2}));
            }),
            "normalize: the image has shape [3, 1, 2], expected 1 channels");
  EXPECT_EQ(error_text<td::DTypeError>([&] {
              transformed(transform, td::zeros({1, 2}, {td::kUInt8}));
            }),
            "normalize: the image is uint8, expected float32");
}

TEST(RandomCrop, CropsAreWindowsOfThePaddedImage) {
  for (const td::Shape& shape : {td::Shape{2, 3, 5}, td::Shape{1, 1, 1}, td::Shape{3, 7, 2}, td::Shape{1, 0, 4}}) {
    const Tensor image = counted(shape);
    for (const int64_t padding : {0, 1, 2, 6}) {
      const auto transform = td::data::random_crop(padding);
      std::set<std::vector<float>> windows;
      for (int64_t down = -padding; down <= padding; ++down) {
        for (int64_t right = -padding; right <= padding; ++right) windows.insert(moved(image, down, right));
      }
      std::set<std::vector<float>> seen;
      for (int64_t index = 0; index < 300; ++index)
        seen.insert(transformed(transform, image, index).to_vector<float>());
      for (const auto& window : seen) EXPECT_TRUE(windows.contains(window)) << shape << padding;
      if (padding > 2) continue;
      EXPECT_EQ(seen, windows) << shape << padding;  // each of the 25 windows occurs in 300 draws
    }
  }
}

TEST(RandomHorizontalFlip, MirrorsWithTheGivenProbability) {
  const Tensor image = counted({2, 2, 3});
  const std::vector<float> same = image.to_vector<float>();
  const std::vector<float> mirrored = {3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10};
  for (const double probability : {0.0, 0.25, 1.0}) {
    const auto transform = td::data::random_horizontal_flip(probability);
    int count = 0;
    for (int64_t index = 0; index < 1000; ++index) {
      const auto result = transformed(transform, image, index).to_vector<float>();
      EXPECT_TRUE(result == same || result == mirrored);
      count += result == mirrored;
    }
    EXPECT_NEAR(count, 1000 * probability, 70 * probability * (1 - probability) * 4);  // 5 standard deviations
  }
}

TEST(RandomTransforms, InvalidArgumentsAndImagesAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { td::data::random_crop(-1); }),
            "random_crop: padding is -1, expected 0 <= padding <= 1048576");
  EXPECT_EQ(error_text<td::ValueError>([] { td::data::random_horizontal_flip(1.5); }),
            "random_horizontal_flip: probability is 1.5, expected 0 <= probability <= 1");
  EXPECT_EQ(error_text<td::ShapeError>([] {
              transformed(td::data::random_crop(1), counted({4, 4}));
            }),
            "random_crop: the image has shape [4, 4], expected [C, H, W]");
  EXPECT_EQ(error_text<td::DTypeError>([] {
              transformed(td::data::random_horizontal_flip(), td::zeros({1, 2, 2}, {td::kUInt8}));
            }),
            "random_horizontal_flip: the image is uint8, expected float32");
}

TEST(Chain, TransformsAreAppliedInOrder) {
  const auto transform = td::data::chain(
      {td::data::normalize({1}, {2}), td::data::random_horizontal_flip(1), td::data::normalize({0}, {0.5})});
  EXPECT_EQ(transformed(transform, counted({1, 1, 3})).to_vector<float>(), (std::vector<float>{2, 1, 0}));
  EXPECT_EQ(transformed(td::data::chain({}), counted({3})).to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(TransformImages, ImageDependsOnlyOnSeedEpochAndIndex) {
  const auto transform = td::data::chain({td::data::random_crop(3), td::data::random_horizontal_flip()});
  const Tensor images = counted({4, 2, 7, 5});
  // Four equal images, so that differences come from the random numbers.
  for (int64_t i = 1; i < 4; ++i) std::copy_n(images.data<float>(), 70, images.data<float>() + 70 * i);
  const auto rows = [&](std::vector<int64_t> indices, uint64_t seed, int64_t epoch) {
    const auto all = transform_images(transform, images, indices, seed, epoch).to_vector<float>();
    std::vector<std::vector<float>> result;
    for (size_t i = 0; i < 4; ++i)
      result.emplace_back(all.begin() + static_cast<int64_t>(70 * i), all.begin() + static_cast<int64_t>(70 * (i + 1)));
    return result;
  };
  const auto first = rows({11, 12, 13, 14}, 3, 5);
  EXPECT_EQ(rows({14, 11, 13, 12}, 3, 5), (std::vector{first[3], first[0], first[2], first[1]}));
  EXPECT_NE(rows({11, 12, 13, 14}, 3, 6), first);
  EXPECT_NE(rows({11, 12, 13, 14}, 4, 5), first);
  EXPECT_GT((std::set<std::vector<float>>(first.begin(), first.end()).size()), 2u);
}

TEST(TransformImages, MismatchedResultsAreRejected) {
  const Tensor images = counted({2, 3});
  const std::vector<int64_t> indices = {0, 1};
  int64_t calls = 0;
  const auto grow = [&](const Tensor&, ItemRandom&) { return td::zeros({++calls}); };
  EXPECT_EQ(error_text<td::ShapeError>([&] { transform_images(grow, images, indices, 0, 0); }),
            "Transform: the image has shape [2], expected [1] as in the items before");
  const auto nothing = [](const Tensor&, ItemRandom&) { return Tensor(); };
  EXPECT_EQ(error_text<td::StateError>([&] { transform_images(nothing, images, indices, 0, 0); }),
            "Transform: the image is undefined");
  const std::vector<int64_t> three = {0, 1, 2};
  EXPECT_EQ(error_text<td::ShapeError>([&] { transform_images(nothing, images, three, 0, 0); }),
            "transform_images: images of [2, 3] for 3 indices");
}

}  // namespace

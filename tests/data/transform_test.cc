#include <tandem/data/transform.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::Tensor;
using td::data::ItemRandom;
using td::data::transform_items;
using td::testing::error_text;

namespace {

/// [C, H, W] with values 1, 2, 3, ...
Tensor counted(const td::Shape& shape) {
  Tensor image = td::empty(shape);
  for (int64_t i = 0; i < image.numel(); ++i) image.data<float>()[i] = static_cast<float>(i + 1);
  return image;
}

Tensor transformed(const td::data::Transform& transform, const Tensor& image, int64_t index = 0) {
  ItemRandom random(5, index, 9);
  return transform({image, td::scalar_tensor(7, {td::kInt64})}, random).input;
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

TEST(ItemRandom, UniformExcludesItsUpperBound) {
  const double low = 1, high = std::nextafter(low, 2);  // half of the sums round up
  ItemRandom random(7, 3, 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.uniform(low, high), low);
  EXPECT_EQ(random.uniform(low, low), low);
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
  EXPECT_ERROR(td::ValueError, td::data::normalize({1, 2}, {1}),
               "normalize: mean has 2 values and deviation 1, expected one value per channel");
  EXPECT_ERROR(td::ValueError, td::data::normalize({}, {}),
               "normalize: mean has 0 values and deviation 0, expected one value per channel");
  EXPECT_ERROR(td::ValueError, td::data::normalize({1}, {0}), "normalize: deviation has the value 0, expected > 0");
  const auto transform = td::data::normalize({1}, {2});
  EXPECT_ERROR(td::ShapeError, transformed(transform, counted({3, 1, 2})),
               "normalize: the image has shape [3, 1, 2], expected 1 channels");
  EXPECT_ERROR(td::DTypeError, transformed(transform, td::zeros({1, 2}, {td::kUInt8})),
               "normalize: the image is uint8, expected float32; apply to_float() before");
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
  EXPECT_ERROR(td::ValueError, td::data::random_crop(-1),
               "random_crop: padding is -1, expected 0 <= padding <= 1048576");
  EXPECT_ERROR(td::ValueError, td::data::random_horizontal_flip(1.5),
               "random_horizontal_flip: probability is 1.5, expected 0 <= probability <= 1");
  EXPECT_ERROR(td::ShapeError, transformed(td::data::random_crop(1), counted({4, 4})),
               "random_crop: the image has shape [4, 4], expected [C, H, W]");
  EXPECT_ERROR(td::DTypeError, transformed(td::data::random_horizontal_flip(), td::zeros({1, 2, 2}, {td::kInt64})),
               "random_horizontal_flip: the image is int64, expected uint8 or float32");
}

TEST(Chain, TransformsAreAppliedInOrder) {
  const auto transform = td::data::chain(
      {td::data::normalize({1}, {2}), td::data::random_horizontal_flip(1), td::data::normalize({0}, {0.5})});
  EXPECT_EQ(transformed(transform, counted({1, 1, 3})).to_vector<float>(), (std::vector<float>{2, 1, 0}));
  EXPECT_EQ(transformed(td::data::chain({}), counted({3})).to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(ToFloat, BytesBecome255ths) {
  const Tensor bytes = td::from_vector<uint8_t>({0, 51, 255}, {1, 1, 3});
  EXPECT_EQ(transformed(td::data::to_float(), bytes).to_vector<float>(), (std::vector<float>{0, 0.2f, 1}));
  EXPECT_EQ(transformed(td::data::to_float(), counted({1, 1, 2})).to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(RandomVerticalFlip, ExchangesTopAndBottom) {
  const Tensor image = counted({2, 3, 2});
  EXPECT_EQ(transformed(td::data::random_vertical_flip(1), image).to_vector<float>(),
            (std::vector<float>{5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8}));
  EXPECT_TRUE(transformed(td::data::random_vertical_flip(0), image).is_same(image));
}

TEST(CenterCrop, WindowIsInTheMiddle) {
  const Tensor image = counted({1, 5, 4});
  EXPECT_EQ(transformed(td::data::center_crop(2), image).to_vector<float>(), (std::vector<float>{10, 11, 14, 15}));
  // The difference of 1 column is rounded down to 0; the difference of 3 rows up to 2, to even.
  const Tensor row = counted({1, 4, 2});
  EXPECT_EQ(transformed(td::data::center_crop(1), row).to_vector<float>(), (std::vector<float>{5}));
  const Tensor padded = transformed(td::data::center_crop(4), counted({1, 1, 2}));
  EXPECT_EQ(padded.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Resize, ShorterSideGetsTheSize) {
  const auto shape = [](const td::data::Transform& transform, const td::Shape& in) {
    return transformed(transform, td::zeros(in, {td::kUInt8})).shape();
  };
  EXPECT_EQ(shape(td::data::resize(10), {3, 20, 33}), td::Shape({3, 10, 16}));
  EXPECT_EQ(shape(td::data::resize(10), {1, 33, 20}), td::Shape({1, 16, 10}));
  EXPECT_EQ(shape(td::data::resize(10), {1, 5, 5}), td::Shape({1, 10, 10}));
  EXPECT_EQ(shape(td::data::resize(4, 9), {2, 5, 5}), td::Shape({2, 4, 9}));
}

TEST(RandomResizedCrop, WindowsHaveTheRequestedAreasAndRatios) {
  // The values of the image are the places of its pixels, so windows are visible in the result: minima and maxima.
  constexpr int64_t kHeight = 60;
  constexpr int64_t kWidth = 90;
  Tensor image = td::empty({2, kHeight, kWidth});
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      image.data<float>()[y * kWidth + x] = static_cast<float>(y);
      image.data<float>()[(kHeight + y) * kWidth + x] = static_cast<float>(x);
    }
  }
  // A large result shows the extent: the first and last values are the window's border.
  const auto transform = td::data::random_resized_crop(180, {.scale = {0.2, 0.5}, .ratio = {0.5, 2}});
  double least = 1;
  double greatest = 0;
  std::set<int> corners;
  for (int64_t index = 0; index < 100; ++index) {
    const Tensor result = transformed(transform, image, index);
    ASSERT_EQ(result.shape(), td::Shape({2, 180, 180}));
    const auto values = result.to_vector<float>();
    const double height = values[180 * 179] - values[0] + 1;
    const double width = values[180 * 180 + 179] - values[180 * 180] + 1;
    EXPECT_GT(width / height, 0.5 * 0.9);
    EXPECT_LT(width / height, 2 * 1.1);
    least = std::min(least, height * width / (kHeight * kWidth));
    greatest = std::max(greatest, height * width / (kHeight * kWidth));
    corners.insert(static_cast<int>(values[0]) / 10 + 10 * (static_cast<int>(values[180 * 180]) / 10));
  }
  EXPECT_GT(least, 0.19);
  EXPECT_LT(least, 0.25);
  EXPECT_GT(greatest, 0.45);
  EXPECT_LT(greatest, 0.51);
  EXPECT_GT(corners.size(), 15u);
}

TEST(RandomResizedCrop, WindowThatNeverFitsIsTheLargestInTheMiddle) {
  const auto transform = td::data::random_resized_crop(2, {.scale = {1, 1}, .ratio = {1, 1}});
  const Tensor image = counted({1, 2, 6});
  EXPECT_EQ(transformed(transform, image).to_vector<float>(), (std::vector<float>{3, 4, 9, 10}));
}

TEST(ColorJitter, FactorsAreDrawnFromTheirRanges) {
  const Tensor gray = td::full({3, 1, 1}, 0.5);
  const auto brightness = td::data::color_jitter({.brightness = 0.4});
  float least = 1;
  float greatest = 0;
  for (int64_t index = 0; index < 200; ++index) {
    const float value = transformed(brightness, gray, index).to_vector<float>()[0];
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  EXPECT_NEAR(least, 0.3, 0.01);
  EXPECT_NEAR(greatest, 0.7, 0.01);
  const Tensor image = td::from_vector<uint8_t>({200, 10, 60, 90, 30, 250}, {3, 1, 2});
  EXPECT_TRUE(transformed(td::data::color_jitter({}), image).is_same(image));
}

TEST(ColorJitter, FunctionsAreAppliedInRandomOrder) {
  const Tensor image = td::from_vector<uint8_t>({200, 10, 60, 90, 30, 250}, {3, 1, 2});
  const auto both = td::data::color_jitter({.brightness = 0.6, .contrast = 0.6});
  // An image has the same factors in all three transforms.
  const auto brightness = td::data::color_jitter({.brightness = 0.6});
  const auto contrast = td::data::color_jitter({.contrast = 0.6});
  int brightness_first = 0;
  int contrast_first = 0;
  for (int64_t index = 0; index < 60; ++index) {
    const auto result = transformed(both, image, index).to_vector<int>();
    const auto one = transformed(contrast, transformed(brightness, image, index), index).to_vector<int>();
    const auto other = transformed(brightness, transformed(contrast, image, index), index).to_vector<int>();
    ASSERT_TRUE(result == one || result == other) << "image " << index;
    if (one == other) continue;
    (result == one ? brightness_first : contrast_first) += 1;
  }
  EXPECT_GT(brightness_first, 10);
  EXPECT_GT(contrast_first, 10);
}

TEST(ImageTransforms, InvalidArgumentsAreRejected) {
  const auto error = [](auto make) { return error_text<td::ValueError>(make); };
  EXPECT_EQ(error([] { td::data::resize(0); }), "resize: size is 0, expected 1 to 65535");
  EXPECT_EQ(error([] { td::data::resize(5, 65536); }), "resize: width is 65536, expected 1 to 65535");
  EXPECT_EQ(error([] { td::data::center_crop(-1); }), "center_crop: size is -1, expected 1 to 65535");
  EXPECT_EQ(error([] { td::data::random_vertical_flip(-0.5); }),
            "random_vertical_flip: probability is -0.5, expected 0 <= probability <= 1");
  EXPECT_EQ(error([] {
              td::data::random_resized_crop(8, {.scale = {0.5, 0.2}});
            }),
            "random_resized_crop: scale is (0.5, 0.2), expected 0 < first <= second");
  EXPECT_EQ(error([] {
              td::data::random_resized_crop(8, {.ratio = {0, 1}});
            }),
            "random_resized_crop: ratio is (0, 1), expected 0 < first <= second");
  EXPECT_EQ(error([] { td::data::color_jitter({.contrast = -1}); }),
            "color_jitter: contrast is -1, expected at least 0");
  EXPECT_EQ(error([] { td::data::color_jitter({.hue = 0.6}); }), "color_jitter: hue is 0.6, expected 0 <= hue <= 0.5");
  EXPECT_EQ(error([] { td::data::mixup({}); }), "mixup: num_classes is 0, expected at least 1");
  EXPECT_EQ(error([] { td::data::mixup({.num_classes = 2, .alpha = 0}); }), "mixup: alpha is 0, expected > 0");
}

TEST(ImageTransforms, EmptyImagesAreRejected) {
  EXPECT_ERROR(td::ShapeError, transformed(td::data::resize(4), td::zeros({3, 0, 2})),
               "resize: the image has shape [3, 0, 2], expected at least one pixel");
  EXPECT_ERROR(td::ShapeError, transformed(td::data::random_resized_crop(4), td::zeros({3, 2, 0})),
               "random_resized_crop: the image has shape [3, 2, 0], expected at least one pixel");
}

TEST(Mixup, ImagesAndLabelsAreMixedWithTheirPredecessors) {
  const td::data::Batch batch = {td::from_vector<float>({0, 10, 100, 1, 11, 101}, {3, 2}),
                                 td::from_vector<int64_t>({2, 0, 0}, {3}),
                                 3,
                                 {{"ids", td::zeros({3})}}};
  ItemRandom random(1, 2, 3);
  const td::data::Batch mixed = td::data::mixup({.num_classes = 3, .alpha = 0.4})(batch, random);
  EXPECT_EQ(mixed.size, 3);
  EXPECT_TRUE(mixed["ids"].is_same(batch["ids"]));
  const auto labels = mixed.target.to_vector<float>();
  const float kept = labels[2];
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 1);
  const float added = 1 - kept;
  EXPECT_EQ(labels, (std::vector<float>{added, 0, kept, kept, 0, added, kept + added, 0, 0}));
  EXPECT_EQ(mixed.input.to_vector<float>(),
            (std::vector<float>{kept * 0 + added * 11, kept * 10 + added * 101, kept * 100 + added * 0,
                                kept * 1 + added * 10, kept * 11 + added * 100, kept * 101 + added * 1}));
  EXPECT_EQ(batch.input.to_vector<float>()[1], 10);
}

TEST(Mixup, WeightsHaveTheBetaDistribution) {
  const td::data::Batch batch = {td::zeros({2, 1}), td::from_vector<int64_t>({0, 1}, {2}), 2};
  for (const double alpha : {0.2, 1.0, 8.0}) {
    const auto transform = td::data::mixup({.num_classes = 2, .alpha = alpha});
    double sum = 0;
    double squares = 0;
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
      ItemRandom random(4, i, 5);
      const double weight = transform(batch, random).target.to_vector<float>()[0];
      sum += weight;
      squares += weight * weight;
    }
    const double mean = sum / kDraws;
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws - mean * mean, variance, variance / 10) << alpha;
  }
}

TEST(Mixup, InvalidBatchesAreRejected) {
  ItemRandom random(1, 2, 3);
  const auto transform = td::data::mixup({.num_classes = 2});
  EXPECT_ERROR(td::IndexError, transform({td::zeros({2, 1}), td::from_vector<int64_t>({0, 2}, {2}), 2}, random),
               "mixup: label 1 is 2, expected 0 <= label < 2");
  EXPECT_ERROR(td::DTypeError, transform({td::zeros({2, 1}, {td::kUInt8}), td::zeros({2}, {td::kInt64}), 2}, random),
               "mixup: images are uint8 and labels int64, expected float32 and int64");
  EXPECT_ERROR(td::ShapeError, transform({td::zeros({2, 1}), td::zeros({2, 1}, {td::kInt64}), 2}, random),
               "mixup: images have shape [2, 1] and labels [2, 1], expected [size, ...] and [size]");
}

/// Items with image [2, 7, 5] of the values 1, 2, ..., or of other shapes, and label 10 * index.
class CountedItems : public td::data::Dataset {
 public:
  explicit CountedItems(bool grows = false) : grows_(grows) {}
  int64_t size() const override { return 100; }
  td::data::Example get(int64_t index) const override {
    return {counted({2, 7, grows_ ? index : 5}), td::scalar_tensor(10 * index, {td::kInt64})};
  }

 private:
  bool grows_;
};

TEST(TransformItems, ResultDependsOnlyOnSeedEpochAndIndex) {
  const CountedItems items;
  const auto transform = td::data::chain({td::data::random_crop(3), td::data::random_horizontal_flip()});
  const auto rows = [&](std::vector<int64_t> indices, uint64_t seed, int64_t epoch) {
    const auto batch = transform_items(items, indices, transform, seed, epoch);
    EXPECT_EQ(batch.size, 4);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(batch.target.to_vector<int64_t>()[i], 10 * indices[i]);
    const auto all = batch.input.to_vector<float>();
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

TEST(TransformItems, ImagesOfDifferentSizesAreCroppedToOne) {
  const std::vector<int64_t> indices = {3, 9};
  const auto batch = transform_items(CountedItems(true), indices, td::data::center_crop(2), 0, 0);
  EXPECT_EQ(batch.input.shape(), td::Shape({2, 2, 2, 2}));
}

TEST(TransformItems, TransformChangesTheLabelToo) {
  const std::vector<int64_t> indices = {1, 2};
  const auto transform = [](td::data::Example example, ItemRandom& random) {
    example.target = td::scalar_tensor(random.uniform(1, 2), {td::kFloat32});
    return example;
  };
  const auto labels = transform_items(CountedItems(), indices, transform, 0, 0).target.to_vector<float>();
  EXPECT_GE(labels[0], 1);
  EXPECT_NE(labels[0], labels[1]);
}

TEST(TransformItems, MismatchedResultsAreRejected) {
  const std::vector<int64_t> indices = {4, 5};
  const auto run = [&](const td::data::Dataset& items, const td::data::Transform& transform) {
    transform_items(items, indices, transform, 0, 0);
  };
  EXPECT_ERROR(td::ShapeError, run(CountedItems(true), td::data::chain({})),
               "Transform: the input has shape [2, 7, 5], expected [2, 7, 4] as in the items before\n"
               "  in item 5 of the dataset");
  EXPECT_ERROR(td::StateError, run(CountedItems(), [](td::data::Example, ItemRandom&) { return td::data::Example(); }),
               "Transform: the example has no tensors\n  in item 4 of the dataset");
  EXPECT_ERROR(td::ValueError, transform_items(CountedItems(), {}, td::data::chain({}), 0, 0),
               "Transform: empty batch, expected at least one index");
}

}  // namespace

#include <tandem/data/shapes.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::ShapesDataset;

namespace {

TEST(Shapes, ImagesAreColorAndClassesBalanced) {
  const ShapesDataset shapes(500, 4);
  EXPECT_EQ(shapes.size(), 500);
  std::array<int, 10> counts = {};
  for (int64_t i = 0; i < shapes.size(); ++i) {
    const auto example = shapes.get(i);
    ASSERT_EQ(example.input.shape(), td::Shape({3, 32, 32}));
    ASSERT_EQ(example.target.dtype(), td::kInt64);
    ++counts.at(static_cast<size_t>(example.target.item<int64_t>()));
    for (const float value : example.input.to_vector<float>()) {
      ASSERT_GE(value, 0);
      ASSERT_LE(value, 1);
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, 50, 5 * 6.7);  // 5 standard deviations
}

TEST(Shapes, ImageDependsOnlyOnSeedAndIndex) {
  const ShapesDataset a(100, 7);
  const ShapesDataset b(3, 7);
  const ShapesDataset c(3, 8);
  EXPECT_EQ(a.get(2).input.to_vector<float>(), b.get(2).input.to_vector<float>());
  EXPECT_NE(a.get(2).input.to_vector<float>(), c.get(2).input.to_vector<float>());
  std::set<std::vector<float>> different;
  for (int64_t i = 0; i < 100; ++i) different.insert(a.get(i).input.to_vector<float>());
  EXPECT_EQ(different.size(), 100u);
}

TEST(Shapes, BatchEqualsStackedItems) {
  const ShapesDataset shapes(40, 1);
  const std::vector<int64_t> indices = {31, 0, 32};
  const auto batch = shapes.get_batch(indices);
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.input.shape(), td::Shape({3, 3, 32, 32}));
  std::vector<float> images;
  std::vector<int64_t> labels;
  for (const int64_t index : indices) {
    const auto example = shapes.get(index);
    const auto values = example.input.to_vector<float>();
    images.insert(images.end(), values.begin(), values.end());
    labels.push_back(example.target.item<int64_t>());
  }
  EXPECT_EQ(batch.input.to_vector<float>(), images);
  EXPECT_EQ(batch.target.to_vector<int64_t>(), labels);
}

/// Sum over the channels of the variance of a pixel's four differences to its neighbors, which is large in textured
/// regions.
double roughness(const std::vector<float>& image, int distance) {
  double sum = 0;
  for (int c = 0; c < 3; ++c) {
    for (int y = distance; y < 32; ++y) {
      for (int x = distance; x < 32; ++x) {
        const auto at = [&](int row, int column) { return image[static_cast<size_t>(c * 1024 + row * 32 + column)]; };
        const double down = at(y, x) - at(y - distance, x);
        const double right = at(y, x) - at(y, x - distance);
        sum += down * down + right * right;
      }
    }
  }
  return sum;
}

TEST(Shapes, ClassesDifferInTextureNotInColor) {
  // Patterns (stripes, chessboard, dots) have more texture than figures. The mean colors of all classes are equal, so
  // that a model must use the shape.
  const ShapesDataset shapes(2000, 3);
  double rough_patterns = 0;
  double rough_figures = 0;
  int num_patterns = 0;
  std::array<std::array<double, 3>, 10> color = {};
  std::array<int, 10> counts = {};
  for (int64_t i = 0; i < shapes.size(); ++i) {
    const auto example = shapes.get(i);
    const auto image = example.input.to_vector<float>();
    const auto label = static_cast<size_t>(example.target.item<int64_t>());
    const bool pattern = label >= 6 && label <= 8;
    num_patterns += pattern;
    (pattern ? rough_patterns : rough_figures) += roughness(image, 4);
    ++counts.at(label);
    for (size_t k = 0; k < image.size(); ++k) color.at(label).at(k / 1024) += image[k] / 1024;
  }
  EXPECT_GT(rough_patterns / num_patterns, 1.3 * rough_figures / (2000 - num_patterns));
  for (size_t label = 0; label < 10; ++label) {
    for (const double sum : color.at(label)) EXPECT_NEAR(sum / counts.at(label), 0.5, 0.1) << label;
  }
}

TEST(Shapes, SideChangesTheResolutionOnly) {
  const ShapesDataset small(40, 2);
  const ShapesDataset large(40, 2, {.side = 96});
  double difference = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const auto coarse = small.get(i);
    const auto fine = large.get(i);
    ASSERT_EQ(fine.input.shape(), td::Shape({3, 96, 96}));
    EXPECT_EQ(fine.target.item<int64_t>(), coarse.target.item<int64_t>());
    // Means of 3x3 pixels, without the noise of single pixels.
    const auto a = coarse.input.to_vector<float>();
    const auto b = fine.input.to_vector<float>();
    for (size_t c = 0; c < 3; ++c) {
      for (size_t y = 0; y < 32; ++y) {
        for (size_t x = 0; x < 32; ++x) {
          double mean = 0;
          for (size_t k = 0; k < 9; ++k) mean += b[(c * 96 + 3 * y + k / 3) * 96 + 3 * x + k % 3] / 9;
          difference += std::abs(mean - a[(c * 32 + y) * 32 + x]) / (40 * 3 * 32 * 32);
        }
      }
    }
  }
  EXPECT_LT(difference, 0.08);  // images of different items differ by about 0.3
}

TEST(Shapes, PlainImagesAreBlackAndOneColor) {
  const ShapesDataset plain(100, 6, {.plain = true});
  const ShapesDataset detailed(100, 6);
  double pixels_between = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const auto example = plain.get(i);
    EXPECT_EQ(example.target.item<int64_t>(), detailed.get(i).target.item<int64_t>());
    const auto image = example.input.to_vector<float>();
    std::map<std::array<float, 3>, int> counts;
    for (size_t pixel = 0; pixel < 1024; ++pixel) ++counts[{image[pixel], image[1024 + pixel], image[2048 + pixel]}];
    const int black = counts[{0, 0, 0}];
    counts.erase({0, 0, 0});
    int most = 0;
    for (const auto& [color, count] : counts) most = std::max(most, count);
    EXPECT_GT(black, 100) << i;
    EXPECT_GT(most, 40) << i;
    pixels_between += 1024 - black - most;  // at the figure's edge
  }
  EXPECT_LT(pixels_between / 100, 250);
}

TEST(Shapes, ClassesHaveNames) {
  EXPECT_EQ(ShapesDataset::class_names().size(), 10u);
  EXPECT_EQ(ShapesDataset::class_names()[5], "half_disc");
}

TEST(Shapes, InvalidArgumentsAreRejected) {
  EXPECT_ERROR(td::ValueError, ShapesDataset(-1), "ShapesDataset: size is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, ShapesDataset(1, 0, {.side = 0}), "ShapesDataset: side is 0, expected 1 to 4096");
  const ShapesDataset shapes(3);
  EXPECT_ERROR(td::IndexError, shapes.get(3), "ShapesDataset: index is 3, expected 0 <= index < 3");
  EXPECT_ERROR(td::ValueError, shapes.get_batch({}), "ShapesDataset: empty batch, expected at least one index");
  EXPECT_ERROR(td::IndexError, shapes.get_batch(std::vector<int64_t>{0, -1}),
               "ShapesDataset: index is -1, expected 0 <= index < 3");
}

}  // namespace

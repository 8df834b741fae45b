// Trains the GAN and the diffusion model until their pictures resemble the data.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include <tandem/data/digits.h>
#include <tandem/data/image.h>
#include <tandem/tandem.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem;
using namespace tandem::testing_support;

constexpr std::chrono::seconds kBound{800};  // each takes about a minute on an idle core

/// The 64 images of a grid that write_samples wrote, gray, with values in [0, 1]: [64, 32, 32].
Tensor images_of(const std::string& path) {
  const Tensor grid = data::read_image(path).to(kFloat32)[0] / 255;
  std::vector<Tensor> images;
  for (int64_t i = 0; i < 64; ++i) {
    images.push_back(grid.narrow(0, 2 + i / 8 * 34, 32).narrow(1, 2 + i % 8 * 34, 32));
  }
  return stack(images);
}

TEST(GanExample, GeneratedDigitsHaveTheStatisticsOfDrawnDigits) {
  const std::string out = fresh_folder("digits");
  const auto result = run_example("gan", {"--max-steps", "936", "--out", out}, {}, kBound);
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<int64_t> indices(1000);
  std::iota(indices.begin(), indices.end(), 0);
  const Tensor drawn = pad(data::DigitsDataset(1000, 5).get_batch(indices).images.squeeze(1), {2, 2, 2, 2});
  const Tensor generated = images_of(out + "/samples/step-00000936.png");
  EXPECT_NEAR(generated.mean().item(), drawn.mean().item(), 0.02);
  const auto ink = [](const Tensor& images) { return (images > 0.5).to(kFloat32).mean().item(); };
  EXPECT_NEAR(ink(generated), ink(drawn), 0.02);
  // Pixels vary between digits: the generator does not make the same digit always.
  const auto deviation = [](const Tensor& images) { return tandem::std(images, {0}).mean().item(); };
  EXPECT_GT(deviation(generated), 0.75 * deviation(drawn));
}

TEST(DiffusionExample, PredictsTheNoiseInShapes) {
  const std::string out = fresh_folder("shapes");
  const auto result = run_example("diffusion", {"--max-steps", "400", "--width", "16", "--out", out}, {}, kBound);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_LT(number_after(result.out, "\ntest loss "), 0.2) << result.out;
  const Tensor images = images_of(out + "/samples/step-00000400.png");
  EXPECT_NEAR(images.mean().item(), 0.5, 0.1);
  EXPECT_GT(tandem::std(images, {0}).mean().item(), 0.1);
}

}  // namespace

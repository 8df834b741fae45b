// Trains the GAN and the diffusion model until their pictures resemble the data.
#include <iostream>

#include <tandem/data/digits.h>
#include <tandem/data/image.h>
#include <tandem/data/shapes.h>
#include <tandem/models/lenet.h>
#include <tandem/tandem.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem;
using namespace tandem::testing_support;

constexpr std::chrono::seconds kBound{800};  // each takes about a minute on an idle core

/// The first channel of the images in a grid that write_samples wrote, with values in [0, 1]: [count, 32, 32].
Tensor images_of(const std::string& path, int64_t count) {
  const Tensor grid = data::read_image(path).to(kFloat32)[0] / 255;
  std::vector<Tensor> images;
  for (int64_t i = 0; i < count; ++i) {
    images.push_back(grid.narrow(0, 2 + i / 8 * 34, 32).narrow(1, 2 + i % 8 * 34, 32));
  }
  return stack(images);
}

std::vector<int64_t> indices_up_to(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// A classifier of drawn digits.
class DigitClassifier {
 public:
  DigitClassifier() {
    manual_seed(3);
    const data::Batch digits = data::DigitsDataset(12800, 6).get_batch(indices_up_to(12800));
    optim::Adam adam(net_.parameters(), {.lr = 1e-3});
    for (int64_t first = 0; first < digits.size; first += 64) {
      adam.zero_grad();
      cross_entropy(net_(digits.input.narrow(0, first, 64)), digits.target.narrow(0, first, 64)).backward();
      adam.step();
    }
    net_.eval();
  }

  /// exp of the mean of KL(p(digit | image) || p(digit)) over images [N, 32, 32]: from 1, if all images have the same
  /// digit or none is recognizable, to 10. T. Salimans et al., "Improved techniques for training GANs", NeurIPS 2016.
  double score(const Tensor& images) {
    const NoGradGuard no_grad;
    const Tensor p = softmax(net_(images.narrow(1, 2, 28).narrow(2, 2, 28).contiguous().unsqueeze(1)), 1);
    const Tensor mean = p.mean({0});
    return std::exp((p * (log(p + 1e-12) - log(mean + 1e-12))).sum({1}).mean().item());
  }

 private:
  models::LeNet net_;
};

TEST(GanExample, GeneratedDigitsResembleDrawnDigits) {
  const std::string out = fresh_folder("digits");
  const auto result = run_example("gan", {"--max-steps", "936", "--out", out}, {}, kBound);
  ASSERT_EQ(result.status, 0) << result.err;
  const Tensor drawn = pad(data::DigitsDataset(1000, 5).get_batch(indices_up_to(1000)).input.squeeze(1), {2, 2, 2, 2});
  const Tensor generated = images_of(out + "/samples/step-00000936.png", 64);
  EXPECT_NEAR(generated.mean().item(), drawn.mean().item(), 0.02);
  const auto ink = [](const Tensor& images) { return (images > 0.5).to(kFloat32).mean().item(); };
  EXPECT_NEAR(ink(generated), ink(drawn), 0.02);
  // Pixels vary between digits: the generator does not make the same digit always.
  const auto deviation = [](const Tensor& images) { return tandem::std(images, {0}).mean().item(); };
  EXPECT_GT(deviation(generated), 0.75 * deviation(drawn));
  DigitClassifier classifier;
  const double drawn_score = classifier.score(drawn.narrow(0, 0, 64)), generated_score = classifier.score(generated);
  std::cout << "score of 64 drawn digits " << drawn_score << ", of 64 generated digits " << generated_score << "\n";
  EXPECT_GT(generated_score, 3);
}

TEST(DiffusionExample, GeneratedShapesAreSmoothAndDiffer) {
  const std::string out = fresh_folder("shapes");
  const auto result = run_example("diffusion", {"--max-steps", "400", "--width", "16", "--out", out}, {}, kBound);
  ASSERT_EQ(result.status, 0) << result.err;
  const Tensor drawn =
      data::ShapesDataset(64, 5, {.plain = true}).get_batch(indices_up_to(64)).input.narrow(1, 0, 1).squeeze(1);
  const Tensor generated = images_of(out + "/samples/step-00000400.png", 24);
  EXPECT_NEAR(generated.mean().item(), drawn.mean().item(), 0.06);
  const auto deviation = [](const Tensor& images) { return tandem::std(images, {0}).mean().item(); };
  EXPECT_GT(deviation(generated), 0.5 * deviation(drawn));
  // Neighbors have similar values: noise is removed.
  const auto roughness = [](const Tensor& images) {
    return (images.narrow(2, 1, 31) - images.narrow(2, 0, 31)).abs().mean().item();
  };
  std::cout << "roughness " << roughness(generated) << " " << roughness(drawn) << ", deviation " << deviation(generated)
            << " " << deviation(drawn) << "\n";
  EXPECT_LT(roughness(generated), 1.5 * roughness(drawn));
}

}  // namespace

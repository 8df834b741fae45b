#include <tandem/data/image.h>
#include <tandem/data/shapes.h>
#include <tandem/io/safetensors.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
namespace fs = std::filesystem;

/// Flags of a training of a small network on drawn images.
Arguments training(const std::string& out, const Arguments& more) {
  return joined({"--width", "4", "--size", "16", "--images", "64", "--batch-size", "4", "--out", out}, more);
}

/// A folder of 100 training and 50 validation JPEG files.
std::string draw_images(const std::string& name) {
  const std::string folder = fresh_folder(name);
  const auto result = run_program(
      {"tools/draw_images/draw_images", folder, "--train", "100", "--val", "50", "--size", "20", "--seed", "5"});
  EXPECT_EQ(result.status, 0) << result.err;
  return folder;
}

TEST(ImageNetExample, LearnsFromAFolderOfJpegFiles) {
  const std::string images = fresh_folder("images"), out = fresh_folder("results");
  const auto drawn = run_program({"tools/draw_images/draw_images", images, "--draw", "plain_shapes", "--train", "1200",
                                  "--val", "300", "--size", "32", "--seed", "5"});
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  for (const std::string& name : tandem::data::ShapesDataset::class_names()) {
    if (name == "square" || name == "star" || name == "stripes") continue;  // few classes are learned soon
    for (const std::string split : {"/train/", "/val/"}) fs::remove_all(images + split + name);
  }
  const auto result =
      run_example("imagenet", {"--nproc", "2", "--data", images, "--width", "4", "--size", "24", "--batch-size", "10",
                               "--epochs", "8", "--lr", "0.05", "--ema", "0.9", "--out", out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("resnet18 on 2 ranks, 354 training and 100 validation images of 3 classes from "), 0u)
      << result.out;
  EXPECT_LT(number_after(result.out, "\nepoch 8: loss "), number_after(result.out, "\nepoch 1: loss ")) << result.out;
  EXPECT_NE(result.out.find(" % after 136 steps\n"), std::string::npos) << result.out;
  EXPECT_GT(number_after(result.out, ", validation accuracy "), 50) << result.out;  // of untrained weights: 37
  const tandem::Tensor pictures = tandem::data::read_image(out + "/augmented.png");
  EXPECT_EQ(pictures.shape(), tandem::Shape({3, 2 * 26 + 2, 8 * 26 + 2}));
  const auto model = tandem::io::load_safetensors(out + "/model.safetensors").tensors;
  const auto averaged = tandem::io::load_safetensors(out + "/averaged.safetensors").tensors;
  ASSERT_EQ(model.size(), averaged.size());
  for (size_t i = 0; i < model.size(); ++i) {
    const auto& [name, tensor] = model[i];
    ASSERT_EQ(name, averaged[i].first);
    const bool is_equal = tensor.to_vector<float>() == averaged[i].second.to_vector<float>();
    EXPECT_EQ(is_equal, name.ends_with("num_batches_tracked")) << name;
  }
}

TEST(ImageNetExample, VisionTransformerAndResNet50Train) {
  for (const Arguments& model : {Arguments{"--model", "vit", "--patch", "4", "--lr", "1e-3", "--mixup", "0"},
                                 Arguments{"--model", "resnet50", "--ema", "0"}}) {
    Arguments arguments = training(fresh_folder(model[1]), model);
    arguments.insert(arguments.end(), {"--max-steps", "2"});
    const auto result = run_example("imagenet", arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.find(model[1] + " on 1 rank, 64 training and 6 validation images of 10 classes drawn by this "
                                         "program\n"),
              0u)
        << result.out;
    EXPECT_NE(result.out.find(" % after 2 steps\n"), std::string::npos) << result.out;
  }
}

TEST(ImageNetExample, UnusableFoldersAreRejected) {
  const std::string folder = draw_images("images");
  fs::remove_all(folder + "/val/star");
  const auto error = [&](const std::string& data) {
    const auto result = run_example("imagenet", {"--data", data, "--out", fresh_folder("none")});
    EXPECT_EQ(result.status, 1);
    return result.err;
  };
  EXPECT_EQ(error(folder),
            "rank 0 of 1 failed: imagenet: '" + folder + "/train' and '" + folder + "/val' have different classes\n");
  const std::string missing = fresh_folder("missing");
  EXPECT_EQ(error(missing),
            "rank 0 of 1 failed: ImageFolder: cannot read '" + missing + "/train': No such file or directory\n");
}

}  // namespace

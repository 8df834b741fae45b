#include <tandem/io/safetensors.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

/// Flags of a training of a small network.
Arguments training(const std::string& out, const Arguments& more) {
  return joined({"--patch", "2", "--images", "40", "--batch-size", "4", "--sample-steps", "3", "--out", out}, more);
}

TEST(DiffusionExample, LearnsToRemoveNoiseAndDrawsAGridPerEpoch) {
  const std::string out = fresh_folder("shapes");
  const auto result = run_example(
      "diffusion", training(out, {"--nproc", "2", "--width", "16", "--levels", "1", "--lr", "0.01", "--epochs", "10"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("DDPM of width 16 on 2 ranks, 40 training and 2 test images drawn by this program\n"
                            "batch 4 per rank, 8 over all ranks; 50 steps\n"),
            0u)
      << result.out;
  const double first = number_after(result.out.substr(0, result.out.find("\nepoch 2: ")), "test loss ");
  EXPECT_LT(number_after(result.out, "test loss "), 0.8 * first) << result.out;
  expect_picture_grid(out + "/samples/step-00000005.png", 3, 3);
  expect_picture_grid(out + "/samples/step-00000050.png", 3, 3);
  const auto model = tandem::io::load_safetensors(out + "/model.safetensors").tensors;
  const auto averaged = tandem::io::load_safetensors(out + "/averaged.safetensors").tensors;
  ASSERT_EQ(model.size(), averaged.size());
  EXPECT_EQ(model[0].first, averaged[0].first);
  EXPECT_NE(model[0].second.to_vector<float>(), averaged[0].second.to_vector<float>());
}

TEST(DiffusionExample, WrongFlagsAndFoldersAreRejected) {
  for (const Arguments& flags :
       {Arguments{"--sample-steps", "1001"}, Arguments{"--eta", "2"}, Arguments{"--levels", "0"}}) {
    const auto result = run_example("diffusion", flags);
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find(flags[0]), std::string::npos) << result.err;
  }
  const auto width = run_example("diffusion", training(fresh_folder("width"), {"--width", "12", "--levels", "2"}));
  EXPECT_EQ(width.status, 1);
  EXPECT_NE(width.err.find(
                "DdpmUNet: channels 3, width 12, multipliers [1, 2], groups 8, patch 2; expected sizes of at least 1, "
                "and a width that is even and a multiple of groups\n"),
            std::string::npos)
      << width.err;
  const std::string missing = fresh_folder("no_such_folder");
  const auto data = run_example("diffusion", training(fresh_folder("no_data"), {"--data", missing}));
  EXPECT_EQ(data.status, 1);
  EXPECT_NE(data.err.find(missing), std::string::npos) << data.err;
}

}  // namespace

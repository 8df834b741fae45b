#include <tandem/io/safetensors.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;

/// Flags of a training of two small networks.
Arguments training(const std::string& out, const Arguments& more) {
  return joined({"--width", "4", "--latent", "8", "--batch-size", "4", "--out", out}, more);
}

TEST(GanExample, TrainsBothNetworksAndDrawsADigitGridPerEpoch) {
  const std::string out = fresh_folder("digits");
  const auto result =
      run_example("gan", training(out, {"--nproc", "2", "--images", "64", "--epochs", "2", "--lr", "0.002"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("DCGAN of width 4 on 2 ranks, 64 digits drawn by this program\n"
                            "batch 4 per rank, 8 over all ranks; 16 steps\n"),
            0u)
      << result.out;
  EXPECT_NE(result.out.find("\nepoch 2: discriminator loss "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(", generator loss "), std::string::npos) << result.out;
  const double real = number_after(result.out, "probability of real digits ");
  const double generated = number_after(result.out, "probability of generated digits ");
  EXPECT_GT(real, generated) << result.out;
  EXPECT_LT(real, 1);
  EXPECT_GT(generated, 0);

  const std::string first = read_file(out + "/samples/step-00000008.png");
  EXPECT_TRUE(first != read_file(out + "/samples/step-00000016.png"));
  expect_picture_grid(out + "/samples/step-00000016.png", 1, 8);
  const std::string chart = read_file(out + "/loss.svg");
  EXPECT_NE(chart.find(">discriminator</text>"), std::string::npos);
  EXPECT_NE(chart.find(">generator</text>"), std::string::npos);
  int64_t batches = 0;
  int64_t generated_batches = 0;
  for (const auto& [name, tensor] : tandem::io::load_safetensors(out + "/model.safetensors").tensors) {
    if (name == "discriminator.main.3.num_batches_tracked") batches = tensor.item<int64_t>();
    if (name == "generator.main.1.num_batches_tracked") generated_batches = tensor.item<int64_t>();
  }
  EXPECT_EQ(batches, 16 * 3);            // real and generated digits, and the generator's step
  EXPECT_EQ(generated_batches, 16 * 2);  // in the steps of both networks
}

TEST(GanExample, WrongFlagsAndFoldersAreRejected) {
  const auto width = run_example("gan", {"--width", "0"});
  EXPECT_EQ(width.status, 2);
  EXPECT_NE(width.err.find("--width"), std::string::npos) << width.err;
  const std::string missing = fresh_folder("no_such_folder");
  const auto data = run_example("gan", training(fresh_folder("no_data"), {"--data", missing}));
  EXPECT_EQ(data.status, 1);
  EXPECT_NE(data.err.find(missing), std::string::npos) << data.err;
  const TemporaryFolder folder;
  folder.write("samples", std::string("1"));
  const auto samples = run_example("gan", training(folder.path(), {"--images", "8", "--max-steps", "1"}));
  EXPECT_EQ(samples.status, 1);
  EXPECT_EQ(samples.err,
            "rank 0 of 1 failed: gan: an output cannot be written; training is not started\n"
            "  cannot create the folder '" +
                folder.path() + "/samples': File exists\n");
}

}  // namespace

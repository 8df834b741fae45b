#include <tandem/io/safetensors.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

TEST(ResNetCifarExample, LearnsGeneratedShapes) {
  const std::string out = fresh_folder("shapes");
  const auto result = run_example("resnet_cifar", {"--nproc", "2", "--width", "4", "--images", "600", "--batch-size",
                                                   "8", "--lr", "0.05", "--epochs", "3", "--out", out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("resnet18 of width 4 on 2 ranks, 600 training and 60 test images drawn by this program\n"
                            "batch 8 per rank, 16 over all ranks; 111 steps\n"),
            0u)
      << result.out;
  EXPECT_LT(number_after(result.out, "\nepoch 3: loss "), number_after(result.out, "\nepoch 1: loss ")) << result.out;
  EXPECT_NE(result.out.find(" % after 111 steps\n"), std::string::npos) << result.out;
  bool found = false;
  for (const auto& [name, tensor] : tandem::io::load_safetensors(out + "/model.safetensors").tensors) {
    if (name != "layer4.1.bn2.num_batches_tracked") continue;
    found = true;
    EXPECT_EQ(tensor.item<int64_t>(), 111);
  }
  EXPECT_TRUE(found);
}

TEST(ResNetCifarExample, RunsWithBfloat16Autocast) {
  const auto result =
      run_example("resnet_cifar", {"--width", "4", "--images", "100", "--batch-size", "10", "--max-steps", "4", "--amp",
                                   "bfloat16", "--out", fresh_folder("amp")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find(" % after 4 steps\n"), std::string::npos) << result.out;
}

TEST(ResNetCifarExample, TooFewImagesForOneBatchAreRejected) {
  const auto result =
      run_example("resnet_cifar", {"--images", "7", "--batch-size", "8", "--out", fresh_folder("no_step")});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(
      result.err.find("resnet_cifar: not enough data for one batch: 7 samples over 1 rank are 7 per rank, fewer than "
                      "batch_size 8\n"),
      std::string::npos)
      << result.err;
}

TEST(ResNetCifarExample, MissingDataFolderIsRejected) {
  const std::string missing = fresh_folder("no_such_folder");
  const auto result = run_example("resnet_cifar", {"--data", missing, "--out", fresh_folder("no_data")});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find(missing), std::string::npos) << result.err;
}

}  // namespace

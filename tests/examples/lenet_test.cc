// Tests of the mnist example with --model lenet.
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

TEST(LeNetExample, LearnsGeneratedDigits) {
  const auto result = run_example("mnist", {"--model", "lenet", "--nproc", "2", "--batch-size", "16", "--max-steps",
                                            "150", "--out", fresh_folder("lenet")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("lenet on 2 ranks, 20000 training and 2000 test images drawn by this program\n"), 0u)
      << result.out;
  EXPECT_GE(number_after(result.out, "test accuracy "), 85) << result.out;
}

TEST(LeNetExample, RanksAndAccumulationMatchSingleRank) {
  expect_equal_training("mnist", {"--model", "lenet", "--max-steps", "6", "--lr", "0.02"});
}

// The same training with thread ranks on two devices of one process and with two processes: equal weights, bit by bit.
TEST(LeNetExample, ThreadRanksMatchProcessRanksBitExactly) {
  const auto train = [](const Arguments& ranks) {
    const std::string folder = fresh_folder("lenet" + ranks[0]);
    Arguments arguments = {"--model", "lenet", "--batch-size", "8", "--max-steps", "12", "--out", folder};
    arguments.insert(arguments.end(), ranks.begin(), ranks.end());
    const auto result = run_example("mnist", arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out.find("lenet on 2 ranks"), 0u) << result.out;
    return read_file(folder + "/model.safetensors");
  };
  const std::string processes = train({"--nproc", "2"});
  ASSERT_GT(processes.size(), 40000u);
  EXPECT_TRUE(train({"--devices", "cpu,cpu:1"}) == processes);
  EXPECT_TRUE(train({"--devices", "cpu:3,cpu:2"}) == processes);
}

TEST(LeNetExample, LearnsWithBfloat16Autocast) {
  const auto result = run_example("mnist", {"--model", "lenet", "--nproc", "2", "--batch-size", "16", "--max-steps",
                                            "60", "--amp", "bfloat16", "--out", fresh_folder("amp")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_GE(number_after(result.out, "test accuracy "), 60) << result.out;
}

}  // namespace

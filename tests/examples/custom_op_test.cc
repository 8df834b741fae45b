#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

TEST(CustomOpExample, LearnsTheWaveAndDrawsIt) {
  const std::string out = fresh_folder("wave");
  const auto result = run_example("custom_op", {"--nproc", "2", "--out", out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_LT(number_after(result.out, "epoch 30: loss "), 0.001) << result.out;
  EXPECT_LT(number_after(result.out, "squared error beyond the training data "), 0.3) << result.out;  // of 0: 0.5
  EXPECT_NE(read_file(out + "/wave.svg").find(">training data</text>"), std::string::npos);
}

TEST(CustomOpExample, ResumedRunMatchesUninterruptedRunBitExactly) {
  const auto run = [](const std::string& out, const Arguments& more) {
    const auto result = run_example("custom_op", joined({"--nproc", "3", "--save-every", "10", "--out", out}, more));
    EXPECT_EQ(result.status, 0) << result.err;
  };
  const std::string whole = fresh_folder("whole"), parts = fresh_folder("parts");
  run(whole, {"--max-steps", "25"});
  run(parts, {"--max-steps", "10"});
  run(parts, {"--max-steps", "25", "--resume"});
  EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));
  EXPECT_TRUE(read_file(whole + "/wave.svg") == read_file(parts + "/wave.svg"));
}

TEST(CustomOpExample, UnknownFlagIsRejectedWithUsage) {
  const auto number = run_example("custom_op", {"--max-steps", "1x"});
  EXPECT_EQ(number.err, "rank 0 of 1 failed: custom_op: --max-steps: expected a whole number, got '1x'\n");
  const auto result = run_example("custom_op", {"--what", "1"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(
      result.err,
      "rank 0 of 1 failed: custom_op: unexpected '--what'; usage: custom_op [--nproc N] [--device cpu|cuda] [--out "
      "DIR] [--max-steps N] [--save-every N] [--seed N] [--resume]\n");
}

}  // namespace

// The mnist example with its convolutional network.
#include <gtest/gtest.h>

#include <string>

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

TEST(LenetTest, LearnsDrawnDigits) {
  const auto result = run_example("mnist", {"--model", "lenet", "--nproc", "2", "--batch-size", "16", "--max-steps",
                                            "150", "--out", fresh_folder("lenet")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("lenet on 2 ranks, 20000 training and 2000 test images drawn by this program\n"), 0u)
      << result.out;
  EXPECT_GE(number_after(result.out, "\ntest accuracy "), 85) << result.out;
}

TEST(LenetTest, RanksTakePartsOfTheSameBatch) {
  expect_equal_training("mnist", {"--model", "lenet", "--max-steps", "6", "--lr", "0.02"});
}

TEST(LenetTest, LowPrecisionProductsTrainToo) {
  const auto result = run_example("mnist", {"--model", "lenet", "--nproc", "2", "--batch-size", "16", "--max-steps",
                                            "60", "--amp", "--out", fresh_folder("amp")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_GE(number_after(result.out, "\ntest accuracy "), 60) << result.out;
}

}  // namespace

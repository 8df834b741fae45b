#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

TEST(ReinforceExample, LearnsToBalanceThePole) {
  const std::string out = fresh_folder("learned");
  const auto result = run_example("reinforce", {"--nproc", "2", "--max-steps", "40", "--out", out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("policy of width 64 on 2 ranks, 1024 episodes per epoch\n"
                            "batch 16 per rank, 32 over all ranks; 40 steps\n"),
            0u)
      << result.out;
  EXPECT_GT(number_after(result.out, "test return "), 300) << result.out;  // an untrained policy has about 20
  EXPECT_NE(read_file(out + "/returns.svg").find("<path d="), std::string::npos);
}

TEST(ReinforceExample, FlagsWithoutMeaningAreRejected) {
  const auto result = run_example("reinforce", {"--data", "x"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("--data"), std::string::npos) << result.err;
}

}  // namespace

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

TEST(ReinforceExample, ResumedRunMatchesUninterruptedRunBitExactly) {
  for (const std::string ranks : {"1", "3"}) {
    const auto run = [&](const std::string& out, const Arguments& more) {
      Arguments arguments = {"--nproc", ranks, "--batch-size", "4", "--save-every", "3", "--out", out};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const auto result = run_example("reinforce", arguments);
      EXPECT_EQ(result.status, 0) << result.err;
      return result.out;
    };
    const std::string whole = fresh_folder("whole" + ranks), parts = fresh_folder("parts" + ranks);
    run(whole, {"--max-steps", "7"});
    run(parts, {"--max-steps", "3"});
    EXPECT_NE(run(parts, {"--max-steps", "7", "--resume"}).find(": 3 steps of 7 done\n"), std::string::npos);
    EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));
    EXPECT_TRUE(read_file(whole + "/returns.svg") == read_file(parts + "/returns.svg"));
  }
}

TEST(ReinforceExample, FlagsWithoutMeaningAreRejected) {
  const auto result = run_example("reinforce", {"--data", "x"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("--data"), std::string::npos) << result.err;
}

}  // namespace

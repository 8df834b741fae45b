// tandem-run with emulated GPUs: number of ranks and their devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tandem/tests/support/subprocess.h>

namespace {

using tandem::testing_support::run_program;
using tandem::testing_support::sorted_lines;
using tandem::testing_support::Subprocess;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

/// Starts ranks that print their devices.
Subprocess::Result run(const std::string& num_ranks, const std::string& num_gpus, Variables variables = {}) {
  variables.emplace_back("TANDEM_EMULATED_GPUS", num_gpus);
  return run_program(
      {"distributed/launch/tandem-run", "--nproc-per-node", num_ranks, "tests/distributed/launch_program", "device"},
      variables);
}

const Arguments kTwoGpus = {"[1] cuda:1 cuda:1", "cuda:0 cuda:0"};
const Arguments kTwoOnTheCpu = {"[1] cpu cpu", "cpu cpu"};

TEST(GpuTandemRun, EachRankUsesGpuOfItsLocalRank) {
  const std::vector<std::tuple<std::string, std::string, Variables, Arguments>> cases = {
      {"gpu", "2", {}, kTwoGpus},
      {"gpu", "1", {}, {"cuda:0 cuda:0"}},
      {"gpu", "2", {{"TANDEM_DEVICE", "cuda"}}, kTwoGpus},
      {"gpu", "2", {{"TANDEM_DEVICE", "auto"}}, kTwoGpus},
      {"gpu", "2", {{"TANDEM_DEVICE", "cpu"}}, kTwoOnTheCpu},  // the user's setting takes precedence
      {"auto", "2", {}, kTwoGpus},
      {"auto", "2", {{"TANDEM_DEVICE", "cuda"}}, kTwoGpus},
      {"2", "2", {{"TANDEM_DEVICE", "cuda"}}, kTwoGpus},
      {"1", "2", {{"TANDEM_DEVICE", "cuda"}}, {"cuda:0 cuda:0"}},
      {"2", "3", {{"TANDEM_DEVICE", "auto"}}, kTwoGpus},
      {"2", "1", {{"TANDEM_DEVICE", "auto"}}, kTwoOnTheCpu},
      {"2", "2", {}, kTwoOnTheCpu},
      {"2", "0", {{"TANDEM_DEVICE", "auto"}}, kTwoOnTheCpu},
  };
  for (const auto& [num_ranks, num_gpus, variables, expected] : cases) {
    SCOPED_TRACE(num_ranks + " ranks, " + num_gpus + " GPUs" +
                 (variables.empty() ? "" : ", TANDEM_DEVICE=" + variables[0].second));
    const auto result = run(num_ranks, num_gpus, variables);
    EXPECT_EQ(sorted_lines(result.out), expected);
    EXPECT_THAT(result.err, Not(HasSubstr("GPU")));
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

TEST(GpuTandemRun, AutoUsesCpuCoresWithoutGpus) {
  const auto cores = sorted_lines(run("cpu", "0").out), ranks = sorted_lines(run("auto", "0").out);
  EXPECT_EQ(ranks, cores);
  EXPECT_THAT(ranks, Each(HasSubstr("cpu cpu")));
  EXPECT_FALSE(ranks.empty());
}

TEST(GpuTandemRun, RequestingMissingGpusIsRejected) {
  const auto none = run("gpu", "0");
  EXPECT_EQ(none.err,
            "tandem-run: --nproc-per-node gpu: this machine has no GPU or no GPU driver\n"
            "Run with --help for the flags.\n");
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.status, 2);

  const auto alone = run("1", "0", {{"TANDEM_DEVICE", "cuda"}});
  EXPECT_EQ(alone.out, "");
  EXPECT_THAT(alone.err, HasSubstr("TANDEM_DEVICE: cuda:0: no usable GPU"));
  EXPECT_THAT(alone.err, HasSubstr("rank 0 of 1 failed (exit status 2)\n"));
  EXPECT_EQ(alone.status, 1);

  const auto crowded = run("3", "2", {{"TANDEM_DEVICE", "cuda"}});
  EXPECT_EQ(crowded.out, "");
  EXPECT_THAT(crowded.err,
              HasSubstr("TANDEM_DEVICE cuda: 3 ranks on this host but 2 GPUs; each rank needs its own GPU\n"));
  EXPECT_THAT(crowded.err, HasSubstr(" of 3 failed (exit status 2)\n"));
  EXPECT_EQ(crowded.status, 1);

  const auto one = run("2", "1", {{"TANDEM_DEVICE", "cuda"}});
  EXPECT_EQ(one.out, "");
  EXPECT_THAT(one.err, HasSubstr("TANDEM_DEVICE cuda: 2 ranks on this host but 1 GPU; each rank needs its own GPU\n"));
  EXPECT_EQ(one.status, 1);
}

}  // namespace

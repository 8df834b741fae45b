// Runs examples/collectives with one GPU per rank.
#include <tandem/tests/examples/collectives_output.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

/// No checks of kernels: other tests do them, and they would take most of the time.
const Variables kUnchecked = {{"TANDEM_EMULATED_CHECKS", "0"}, {"TANDEM_EMULATED_GPUS", "4"}};

/// Lines of stderr without the notes about waiting ranks, which depend on the machine's load.
std::vector<std::string> lines_of(const std::string& err) {
  std::vector<std::string> lines;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);) {
    if (line.find(" has been waiting for ") == std::string::npos) lines.push_back(line);
  }
  return lines;
}

struct Case {
  int ranks;
  const char* backend;
  size_t groups;  // NCCL groups of several ranks: the default group, sub-groups, two groups in flight
};

class GpuCollectivesExampleRanks : public ::testing::TestWithParam<Case> {};

TEST_P(GpuCollectivesExampleRanks, AllResultsAreCorrectOnEveryRank) {
  const auto& [ranks, backend, groups] = GetParam();
  const auto result = run_example("collectives",
                                  {"--check", "--device", "cuda", "--nproc", std::to_string(ranks), "--backend",
                                   backend, "--side", "2000", "--timeout", "60"},
                                  kUnchecked);
  expect_all_operations(result, ranks);
  const auto lines = lines_of(result.err);
  EXPECT_EQ(lines.size(), groups) << result.err;
  for (const std::string& line : lines) {
    EXPECT_NE(line.find(" x tandem emulated GPU, CUDA "), std::string::npos) << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GpuCollectivesExampleRanks,
                         ::testing::Values(Case{1, "auto", 0}, Case{2, "auto", 3}, Case{4, "auto", 5},
                                           Case{2, "shm", 3}),
                         [](const auto& test) { return std::to_string(test.param.ranks) + test.param.backend; });

TEST(GpuCollectivesExample, TablesShowTheGpuOfEachRank) {
  const auto result = run_example("collectives", {"--device", "cuda", "--nproc", "2", "--side", "2000"}, kUnchecked);
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* text :
       {"  hello from rank 1 of 2  cuda:1\n", "; NCCL rounds after every addition", "x is on cpu on the last rank\n"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << result.out;
  }
}

}  // namespace

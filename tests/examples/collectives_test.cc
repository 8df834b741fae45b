// Runs examples/collectives on every backend and checks that each rank prints every result, all of them correct.

#include <nlohmann/json.hpp>

#include <tandem/tests/examples/collectives_output.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

struct Case {
  std::string backend;
  int ranks;
};

class CollectivesExampleBackends : public ::testing::TestWithParam<Case> {};

TEST_P(CollectivesExampleBackends, AllResultsAreCorrectOnEveryRank) {
  const auto result = run_example("collectives", {"--check", "--nproc", std::to_string(GetParam().ranks), "--backend",
                                                  GetParam().backend, "--timeout", "30"});
  expect_all_operations(result, GetParam().ranks);
}

INSTANTIATE_TEST_SUITE_P(Backends, CollectivesExampleBackends,
                         ::testing::Values(Case{"auto", 1}, Case{"shm", 2}, Case{"shm", 4}, Case{"gloo", 2},
                                           Case{"gloo", 4}),
                         [](const auto& test) { return test.param.backend + std::to_string(test.param.ranks); });

TEST(CollectivesExample, TablesAndTraceShowEveryRank) {
  const std::string trace = fresh_folder("collectives") + ".json";
  const auto result = run_example("collectives", {"--nproc", "4", "--trace", trace});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* table : {
           "group.reduce(x, /*root=*/0, op)\n"
           "    x of the root becomes the result; x of the other ranks is unchanged\n"
           "            x      sum     product  max    min\n"
           "    rank 0  [1 1]  [4 10]  [1 24]   [1 4]  [1 1]\n"
           "    rank 1  [1 2]  [1 2]   [1 2]    [1 2]  [1 2]\n"
           "    rank 2  [1 3]  [1 3]   [1 3]    [1 3]  [1 3]\n"
           "    rank 3  [1 4]  [1 4]   [1 4]    [1 4]  [1 4]\n\n",
           "group.gather(parts, x, /*root=*/0)\n"
           "    the root gets x of every rank, in rank order; the other ranks pass an empty list\n"
           "            x    after\n"
           "    rank 0  [0]  [0] [1] [2] [3]\n"
           "    rank 1  [1]  -\n"
           "    rank 2  [2]  -\n"
           "    rank 3  [3]  -\n\n",
       }) {
    EXPECT_NE(result.out.find(table), std::string::npos) << table << result.out;
  }
  EXPECT_EQ(result.out.find("WRONG"), std::string::npos) << result.out;

  // The trace contains each rank's all_reduce and its concurrent work.
  std::map<int, std::set<std::string>> seen;
  const auto document = nlohmann::json::parse(read_file(trace));
  for (const auto& event : document.at("traceEvents")) {
    if (event.contains("ts")) seen[event.at("pid").get<int>()].insert(event.at("name").get<std::string>());
  }
  ASSERT_EQ(seen.size(), 4u);
  for (const auto& [rank, names] : seen) {
    EXPECT_TRUE(names.contains("other work")) << rank;
    EXPECT_TRUE(names.contains("x")) << rank << ": " << ::testing::PrintToString(names);
  }
}

TEST(CollectivesExample, InvalidFlagsAreUsageErrors) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--backend", "mpi"}, "collectives: --backend: mpi not in {auto,shm,gloo}\n"},
      {{"--side", "1999"}, "collectives: --side: expected an integer from 2000 to 20000, got '1999'\n"},
      {{"--device", "gpu"}, "launch: --device: expected cpu, cuda or auto, got 'gpu'\n"},
      {{"--bogus"}, "collectives: The following argument was not expected: --bogus\n"},
  };
  for (const auto& [arguments, text] : cases) {
    const auto result = run_example("collectives", arguments);
    EXPECT_EQ(result.status, 2) << text;
    EXPECT_EQ(result.err, text);
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace

// The tour of the collectives, on every backend: each rank has every result, and all are right.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

const std::set<std::string> kOps = {
    "hello",
    "all_reduce sum",
    "all_reduce product",
    "all_reduce max",
    "all_reduce min",
    "all_reduce avg",
    "all_reduce x after",
    "all_reduce bitand",
    "all_reduce bitor",
    "all_reduce bitxor",
    "all_reduce bfloat16",
    "all_reduce_coalesced",
    "reduce sum",
    "reduce product",
    "reduce max",
    "reduce min",
    "reduce_scatter",
    "reduce_scatter_coalesced",
    "reduce_mean",
    "broadcast",
    "broadcast_coalesced",
    "broadcast memory",
    "broadcast memory of x.t()",
    "broadcast float16",
    "scatter",
    "gather",
    "all_gather list",
    "all_gather tensor",
    "all_gather unequal",
    "all_gather_coalesced",
    "all_to_all",
    "all_to_all uneven",
    "send_recv",
    "batch_isend_irecv",
    "barrier",
    "monitored_barrier missing",
    "monitored_barrier",
    "sub_groups all_reduce",
    "sub_groups broadcast",
    "all_reduce_async sum",
    "all_reduce_async product",
    "all_reduce_async during a product",
    "then",
    "groups_in_flight first group",
    "groups_in_flight second group",
    "mismatched_dtypes error",
    "mismatched_sizes error",
    "mismatched_gather error",
    "wrong_device error",
};

struct Case {
  std::string backend;
  int ranks;
};

class CollectivesTour : public testing::TestWithParam<Case> {};

TEST_P(CollectivesTour, EveryResultIsRightOnEveryRank) {
  const auto result = run_example("collectives", {"--check", "--nproc", std::to_string(GetParam().ranks), "--backend",
                                                  GetParam().backend, "--timeout", "30"});
  EXPECT_EQ(result.status, 0) << result.err;
  std::map<int, std::set<std::string>> ops;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_TRUE(json.at("ok").get<bool>()) << line;
    EXPECT_EQ(json.at("got"), json.at("expected")) << line;
    EXPECT_TRUE(ops[json.at("rank").get<int>()].insert(json.at("op").get<std::string>()).second) << "twice: " << line;
  }
  ASSERT_EQ(ops.size(), static_cast<size_t>(GetParam().ranks)) << result.out;
  for (const auto& [rank, names] : ops) EXPECT_EQ(names, kOps) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Backends, CollectivesTour,
                         testing::Values(Case{"auto", 1}, Case{"shm", 2}, Case{"shm", 4}, Case{"gloo", 2},
                                         Case{"gloo", 4}),
                         [](const auto& test) { return test.param.backend + std::to_string(test.param.ranks); });

TEST(CollectivesTables, ShowWhatEachRankHas) {
  const std::string trace = fresh_folder("tour") + ".json";
  const auto result = run_example("collectives", {"--nproc", "4", "--trace", trace});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* table : {
           "group.reduce(x, /*root=*/0, op)\n"
           "    the root's x becomes the result, the others keep theirs\n"
           "            x      sum     product  max    min\n"
           "    rank 0  [1 1]  [4 10]  [1 24]   [1 4]  [1 1]\n"
           "    rank 1  [1 2]  [1 2]   [1 2]    [1 2]  [1 2]\n"
           "    rank 2  [1 3]  [1 3]   [1 3]    [1 3]  [1 3]\n"
           "    rank 3  [1 4]  [1 4]   [1 4]    [1 4]  [1 4]\n\n",
           "group.gather(parts, x, /*root=*/0)\n"
           "    the root gets everybody's x, by rank; the others pass no list\n"
           "            x    after\n"
           "    rank 0  [0]  [0] [1] [2] [3]\n"
           "    rank 1  [1]  -\n"
           "    rank 2  [2]  -\n"
           "    rank 3  [3]  -\n\n",
       }) {
    EXPECT_NE(result.out.find(table), std::string::npos) << table << result.out;
  }
  EXPECT_EQ(result.out.find("WRONG"), std::string::npos) << result.out;

  // The trace holds each rank's all_reduce and what it did meanwhile.
  std::map<int, std::set<std::string>> seen;
  const auto document = nlohmann::json::parse(read_file(trace));
  for (const auto& event : document.at("traceEvents")) {
    if (event.contains("ts")) seen[event.at("pid").get<int>()].insert(event.at("name").get<std::string>());
  }
  ASSERT_EQ(seen.size(), 4u);
  for (const auto& [rank, names] : seen) {
    EXPECT_TRUE(names.contains("other work")) << rank;
    EXPECT_TRUE(names.contains("x")) << rank << ": " << testing::PrintToString(names);
  }
}

TEST(CollectivesFlags, WrongOnesAreUsageErrors) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--backend", "mpi"}, "collectives: --backend: mpi not in {auto,shm,gloo}\n"},
      {{"--side", "1999"}, "collectives: --side: Value 1999 not in range 2000 to 20000\n"},
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

#include <tandem/tests/examples/collectives_output.h>

#include <nlohmann/json.hpp>

#include <tandem/tests/support/test.h>

namespace tandem::testing_support {

namespace {

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

}  // namespace

void expect_all_operations(const Subprocess::Result& result, int num_ranks) {
  EXPECT_EQ(result.status, 0) << result.err;
  std::map<int, std::set<std::string>> ops;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_TRUE(json.at("ok").get<bool>()) << line;
    EXPECT_EQ(json.at("got"), json.at("expected")) << line;
    EXPECT_TRUE(ops[json.at("rank").get<int>()].insert(json.at("op").get<std::string>()).second) << "twice: " << line;
  }
  ASSERT_EQ(ops.size(), static_cast<size_t>(num_ranks)) << result.out;
  for (const auto& [rank, names] : ops) EXPECT_EQ(names, kOps) << "rank " << rank;
}

}  // namespace tandem::testing_support

// Summation order over ranks: equal for every reducing operation and backend.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/tests/distributed/ordered_sums.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

struct Case {
  Setting setting;
  std::vector<std::vector<int>> hosts;  ///< whose order the sums have
};

/// A case whose sums have the order of one host.
Case as_one_host(int world_size, const char* backend = "", const char* hosts = "") {
  Case test{{world_size, backend, hosts}, {{}}};
  for (int rank = 0; rank < world_size; ++rank) test.hosts[0].push_back(rank);
  return test;
}

template <class T>
void check_order(const Case& test, ReduceOp op) {
  const OrderedSums<T> sums(test.hosts, 2053, op);
  const Setting& setting = test.setting;
  const ThreadRanks ranks{.world_size = setting.world_size, .backend = setting.backend, .hosts = setting.hosts};
  ranks.run([&](ProcessGroup& group) {
    sums.check_all_reduce(group);
    sums.check_reduce(group, 1);
    sums.check_reduce_scatter(group);
  });
}

class SumOrder : public ::testing::TestWithParam<Case> {};

TEST_P(SumOrder, FollowsDocumentedTree) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    check_order<float>(GetParam(), op);
    if (testing::kThreadSanitizer) continue;  // all dtypes use the same threads
    check_order<Half>(GetParam(), op);
    check_order<BFloat16>(GetParam(), op);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, SumOrder,
    ::testing::Values(as_one_host(2), as_one_host(3), as_one_host(4), as_one_host(5), as_one_host(6), as_one_host(7),
                      as_one_host(8), as_one_host(4, "gloo"), as_one_host(7, "gloo"), as_one_host(3, "gloo", "abc"),
                      as_one_host(5, "gloo", "abcde"),
                      // Hosts with 2^k consecutive ranks each; the last one may have fewer.
                      as_one_host(4, "auto", "aabb"), as_one_host(8, "auto", "aaaabbbb"),
                      as_one_host(6, "auto", "aabbcc"), as_one_host(7, "auto", "aaaabbb"),
                      Case{{4, "auto", "abab"}, {{0, 2}, {1, 3}}}, Case{{4, "gloo", "abab"}, {{0, 2}, {1, 3}}},
                      Case{{4, "auto", "abba"}, {{0, 3}, {1, 2}}}, Case{{5, "auto", "ababb"}, {{0, 2}, {1, 3, 4}}},
                      Case{{7, "auto", "aaaaabb"}, {{0, 1, 2, 3, 4}, {5, 6}}}),
    [](const auto& param_info) {
      const Setting& setting = param_info.param.setting;
      return str(setting.backend[0] == 0 ? "shm" : setting.backend, setting.world_size, setting.hosts);
    });

}}}}  // namespace tandem::v0::distributed

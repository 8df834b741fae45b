// Summation order over ranks: equal for every reducing operation and backend.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/tree_sum.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

constexpr int64_t kEach = 2053;  // elements for each rank of a reduce_scatter

/// Element i of rank r in T; sums of these values depend on the order.
template <class T>
T term(int rank, int64_t i) {
  const double x = std::sin(1.3 * static_cast<double>(i) + 2.1 * rank) * (rank % 3 == 1 ? 17.0 : 0.3);
  return static_cast<T>(static_cast<float>(x));
}

/// The documented order.
template <class T>
T summed(const std::vector<std::vector<int>>& hosts, int64_t i, int divisor) {
  const float sum = testing::tree_sum(hosts, [&](int rank) { return static_cast<float>(term<T>(rank, i)); });
  return static_cast<T>(sum / static_cast<float>(divisor));
}

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
  const int world = test.setting.world_size;
  const int64_t n = kEach * world;
  std::vector<T> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(summed<T>(test.hosts, i, op == ReduceOp::kAvg ? world : 1));
  const auto floats = [](const std::vector<T>& values) { return std::vector<float>(values.begin(), values.end()); };
  const ThreadRanks ranks{.world_size = world, .backend = test.setting.backend, .hosts = test.setting.hosts};
  ranks.run([&](ProcessGroup& group) {
    std::vector<T> terms;
    for (int64_t i = 0; i < n; ++i) terms.push_back(term<T>(group.rank(), i));
    const Tensor all = from_vector<T>(terms, {n});
    group.all_reduce(all, op);
    EXPECT_EQ(floats(all.to_vector<T>()), floats(expected)) << "all_reduce";

    const Tensor at_root = from_vector<T>(terms, {n});
    group.reduce(at_root, 1, op);
    EXPECT_EQ(floats(at_root.to_vector<T>()), floats(group.rank() == 1 ? expected : terms)) << "reduce";

    const Tensor part = from_vector<T>(std::vector<T>(kEach), {kEach});
    group.reduce_scatter(part, from_vector<T>(terms, {world, kEach}), op);
    const auto begin = expected.begin() + kEach * group.rank();
    EXPECT_EQ(floats(part.to_vector<T>()), floats({begin, begin + kEach})) << "reduce_scatter";
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

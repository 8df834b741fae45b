// Summation order over ranks on several hosts: equal for every reducing operation and backend.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>

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
  float sum = 0;
  for (size_t h = 0; h < hosts.size(); ++h) {
    float of_host = static_cast<float>(term<T>(hosts[h][0], i));
    for (size_t k = 1; k < hosts[h].size(); ++k) of_host += static_cast<float>(term<T>(hosts[h][k], i));
    sum = h == 0 ? of_host : sum + of_host;
  }
  return static_cast<T>(sum / static_cast<float>(divisor));
}

struct Case {
  Setting setting;
  std::vector<std::vector<int>> hosts;
};

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
    ::testing::Values(Case{{4}, {{0, 1, 2, 3}}}, Case{{4, "gloo"}, {{0, 1, 2, 3}}},
                      Case{{3, "gloo", "abc"}, {{0}, {1}, {2}}}, Case{{4, "auto", "abab"}, {{0, 2}, {1, 3}}},
                      Case{{4, "gloo", "abab"}, {{0, 2}, {1, 3}}}, Case{{4, "auto", "aabb"}, {{0, 1}, {2, 3}}},
                      Case{{4, "auto", "abba"}, {{0, 3}, {1, 2}}}, Case{{5, "auto", "ababb"}, {{0, 2}, {1, 3, 4}}}),
    [](const auto& param_info) {
      const Setting& setting = param_info.param.setting;
      return str(setting.backend[0] == 0 ? "shm" : setting.backend, setting.world_size, setting.hosts);
    });

}}}}  // namespace tandem::v0::distributed

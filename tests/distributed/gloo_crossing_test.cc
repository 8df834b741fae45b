// Messages in both directions concurrently with an in-place collective over one link: all share its slots.
#include <gtest/gtest.h>

#include <vector>

#include <tandem/distributed/backends/gloo/gloo_backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

class GlooConcurrentOperations : public ::testing::TestWithParam<int> {};

TEST_P(GlooConcurrentOperations, MessagesAndAllReducesShareSlotsCorrectly) {
  const gloo::Tuning tuning{.chunk_bytes = 4096, .slots = GetParam()};
  const auto store = make_memory_store();
  const auto make = [&](int rank) {
    const ProcessGroupOptions options{store, rank, 2, "crossing", std::chrono::seconds(20), true};
    return ProcessGroupAccess::make(options, gloo::make_gloo_backend(options, tuning));
  };
  rethrow_first(run_on_threads(2, make, [](ProcessGroup& group) {
    const int peer = 1 - group.rank();
    for (int round = 0; round < (testing::kThreadSanitizer ? 8 : 40); ++round) {
      constexpr int kEach = 4;
      std::vector<Tensor> received, sums;
      std::vector<Work> works;
      for (int i = 0; i < kEach; ++i) {
        received.push_back(zeros({30000 + 1000 * i}));
        sums.push_back(full({20000 + 3000 * i}, group.rank() + round + i));
        works.push_back(group.irecv(received.back(), peer, i));
        works.push_back(group.isend(full({30000 + 1000 * i}, 100 * group.rank() + i), peer, i));
        works.push_back(group.all_reduce_async(sums.back()));
      }
      for (Work& work : works) work.wait();
      for (int i = 0; i < kEach; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(received[at].to_vector<float>(), std::vector<float>(30000 + 1000 * at, 100.0f * peer + i));
        ASSERT_EQ(sums[at].to_vector<float>(), std::vector<float>(20000 + 3000 * at, 2.0f * (round + i) + 1));
      }
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(Slots, GlooConcurrentOperations, ::testing::Values(1, 2, 3, 5, 8));

}}}}  // namespace tandem::v0::distributed

// Queued collectives whose signatures are sent ahead.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

constexpr int64_t kRows = 600;
constexpr int64_t kColumns = 500;  // together more than a link's ring buffer holds

class QueuedCollectives : public ::testing::TestWithParam<Setting> {
 protected:
  /// Runs f on all ranks; `sum` is the sum of all ranks' first values.
  void run(const std::function<void(ProcessGroup&, float sum)>& f) {
    const Setting& s = GetParam();
    const ThreadRanks ranks{.world_size = s.world_size, .backend = s.backend, .hosts = s.hosts};
    const auto n = static_cast<float>(s.world_size);
    ranks.run([&](ProcessGroup& group) { f(group, n * (n + 1) / 2); });
  }

  static Tensor mine(const ProcessGroup& group) { return full({kRows, kColumns}, group.rank() + 1); }

  static Tensor rows(const Tensor& x, int64_t begin, int64_t end) {
    return make_view(x.storage(), kFloat32, {end - begin, kColumns}, {kColumns, 1}, begin * kColumns);
  }
  static Tensor columns(const Tensor& x, int64_t begin, int64_t end) {
    return make_view(x.storage(), kFloat32, {kRows, end - begin}, {kColumns, 1}, begin);
  }

  static void expect_all(const Tensor& x, float value, const char* what) {
    const std::vector<float> values = x.to_vector<float>();
    EXPECT_EQ(values, std::vector<float>(values.size(), value)) << what;
  }
};

TEST_P(QueuedCollectives, InputIsReadAfterEarlierWrites) {
  run([](ProcessGroup& group, float sum) {
    const auto n = static_cast<float>(group.size());
    for (int round = 0; round < (testing::kThreadSanitizer ? 1 : 3); ++round) {
      const Tensor x = mine(group);
      std::vector<Work> works;
      for (int i = 0; i < 4; ++i) works.push_back(group.all_reduce_async(x));
      for (const Work& work : works) work.wait();
      expect_all(x, sum * n * n * n, "the same tensor");
    }
  });
}

TEST_P(QueuedCollectives, OverlappingSlicesRunInOrder) {
  run([](ProcessGroup& group, float sum) {
    const auto n = static_cast<float>(group.size());
    for (const int64_t begin : {int64_t{0}, kRows / 2, kRows - 40}) {
      const Tensor x = mine(group);
      const Tensor part = rows(x, begin, begin + 40);
      const Work whole = group.all_reduce_async(x);
      const Work again = group.all_reduce_async(part);
      const Work all = group.all_reduce_async(x);
      all.wait();
      expect_all(part, sum * n * n, "the part");
      expect_all(rows(x, begin == 0 ? 40 : 0, begin == 0 ? kRows : begin), sum * n, "the rest");
    }
  });
}

TEST_P(QueuedCollectives, StridedResultsAreCopiedBackBeforeReads) {
  run([](ProcessGroup& group, float sum) {
    const auto n = static_cast<float>(group.size());
    // Columns need contiguous copies; whole tensors do not.
    const Tensor x = mine(group);
    const Tensor half = columns(x, 0, kColumns / 2);
    const Tensor other = mine(group);
    const std::vector<Work> works = {group.all_reduce_async(other), group.all_reduce_async(half),
                                     group.all_reduce_async(x), group.all_reduce_async(half),
                                     group.all_reduce_async(other)};
    for (const Work& work : works) work.wait();
    expect_all(other, sum * n, "another tensor");
    expect_all(half, sum * n * n, "columns");
    expect_all(columns(x, kColumns / 2, kColumns), sum, "the other columns");
  });
}

TEST_P(QueuedCollectives, MixedKindsAndSizesGiveExpectedValues) {
  run([](ProcessGroup& group, float sum) {
    std::vector<Tensor> sums;
    std::vector<Tensor> sent;
    std::vector<Work> works;
    for (int i = 0; i < (testing::kThreadSanitizer ? 12 : 40); ++i) {
      // Too small for a prefetched signature, large enough for one, and kinds that are never prefetched.
      sums.push_back(full({i % 3 == 0 ? 10 : 150000 + 1000 * i}, group.rank() + 1));
      works.push_back(group.all_reduce_async(sums.back()));
      if (i % 5 == 0) works.push_back(group.barrier_async());
      if (i % 5 == 1) works.push_back(group.all_gather_async(zeros({group.size(), 70000}), full({70000}, i)));
      if (i % 7 == 0) {
        sent.push_back(full({100000}, group.rank() == i % group.size() ? i : -1));
        works.push_back(group.broadcast_async(sent.back(), i % group.size()));
      }
    }
    for (const Work& work : works) work.wait();
    for (const Tensor& x : sums) expect_all(x, sum, "a sum");
    for (size_t i = 0; i < sent.size(); ++i) expect_all(sent[i], static_cast<float>(7 * i), "what was sent");
  });
}

TEST_P(QueuedCollectives, MessagesCompleteWhileCollectivesAreQueued) {
  run([](ProcessGroup& group, float sum) {
    const int to = (group.rank() + 1) % group.size();
    const int from = (group.rank() + group.size() - 1) % group.size();
    std::vector<Tensor> sums;
    std::vector<Work> works;
    for (int i = 0; i < 6; ++i) {
      sums.push_back(mine(group));
      works.push_back(group.all_reduce_async(sums.back()));
    }
    // The last rank to queue its sums must be notified first.
    for (int i = 0; i < 4; ++i) {
      const Tensor in = zeros({200000 + i});
      const Tensor out = full({200000 + i}, group.rank() * 10 + i);
      const std::vector<Work> messages = {group.isend(out, to), group.irecv(in, from)};
      for (const Work& work : messages) work.wait();
      expect_all(in, static_cast<float>(from * 10 + i), "a message");
      sums.push_back(mine(group));
      works.push_back(group.all_reduce_async(sums.back()));
    }
    for (const Work& work : works) work.wait();
    for (const Tensor& x : sums) expect_all(x, sum, "a sum");
  });
}

INSTANTIATE_TEST_SUITE_P(Each, QueuedCollectives,
                         ::testing::Values(Setting{2}, Setting{3}, Setting{2, "gloo"}, Setting{3, "gloo"},
                                           Setting{4, "gloo"}, Setting{2, "auto", "ab"}, Setting{4, "auto", "aabb"}),
                         setting_name);

}}}}  // namespace tandem::v0::distributed

#include <tandem/base/parallel_for.h>

#include <barrier>
#include <mutex>

#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

class ParallelFor : public ::testing::TestWithParam<int> {
 protected:
  ParallelFor() : use_(context_) { set_num_threads(GetParam()); }

  RankContext context_;
  RankContext::Use use_;
};

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, ::testing::Values(1, 2, 3, 7));

TEST_P(ParallelFor, PiecesDependOnlyOnSizeAndGrain) {
  for (int64_t n : {0, 1, 3, 7, 31, 32, 33, 1000}) {
    for (int64_t grain : {1, 7, 8, 2000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
      std::atomic<int64_t> pieces = 0;
      parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_EQ(end, std::min(n, begin + grain));
        ++pieces;
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(pieces, (n + grain - 1) / grain);
      for (const auto& count : visits) EXPECT_EQ(count, 1);
    }
  }
}

TEST_P(ParallelFor, WorkerWritesAreVisibleAfterReturn) {
  for (int round = 1; round <= 200; ++round) {
    std::vector<int> values(33);
    parallel_for(33, 1, [&](int64_t begin, int64_t) { values[static_cast<size_t>(begin)] = round; });
    EXPECT_EQ(values, std::vector<int>(33, round));
  }
}

TEST_P(ParallelFor, LowestFailingPieceIsRethrownAfterAllPieces) {
  std::atomic<int> finished = 0;
  try {
    parallel_for(31, 1, [&](int64_t begin, int64_t) {
      ++finished;
      TANDEM_CHECK(IndexError, begin % 7 != 3, "piece ", begin);
    });
    FAIL();
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(), "piece 3");
  }
  EXPECT_EQ(finished, 31);
  int sum = 0;
  parallel_for(1, 1, [&](int64_t, int64_t end) { sum += static_cast<int>(end); });  // the pool still works
  EXPECT_EQ(sum, 1);
}

TEST_P(ParallelFor, NestedCallsRunInOrderOnOneThread) {
  std::atomic<int> total = 0;
  parallel_for(7, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    int64_t next = 0;
    parallel_for(33, 4, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(begin, next);
      next = end;
    });
    EXPECT_EQ(next, 33);
    ++total;
  });
  EXPECT_EQ(total, 7);
}

TEST_P(ParallelFor, WorkersShareTheCallersRankContext) {
  context_.rank = 3;
  parallel_for(33, 1, [&](int64_t, int64_t) { EXPECT_EQ(&RankContext::current(), &context_); });
}

TEST_P(ParallelFor, UsesAllConfiguredThreadsAndNoMore) {
  // Each piece waits until num_threads pieces run concurrently; with fewer threads the test would hang.
  const int budget = GetParam();
  std::barrier everybody(budget);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(budget, 1, [&](int64_t, int64_t) {
    everybody.arrive_and_wait();
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), static_cast<size_t>(budget));
  threads.clear();
  parallel_for(1000, 1, [&](int64_t, int64_t) {
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_LE(threads.size(), static_cast<size_t>(budget));
}

TEST_P(ParallelFor, ConcurrentCallsFromThreadRanksAreIndependent) {
  constexpr int kRanks = 4;
  std::vector<std::thread> ranks;
  std::vector<int64_t> sums(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([rank, &sums] {
      RankContext context;
      context.rank = rank;
      RankContext::Use use(context);
      set_num_threads(GetParam());
      for (int round = 0; round < 300; ++round) {
        std::vector<int64_t> items(33);
        parallel_for(33, 1, [&](int64_t begin, int64_t) {
          items[static_cast<size_t>(begin)] = begin + RankContext::current().rank;
        });
        for (int64_t item : items) sums[static_cast<size_t>(rank)] += item;
      }
    });
  }
  for (auto& thread : ranks) thread.join();
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(sums[static_cast<size_t>(rank)], 300 * (528 + 33 * rank));
}

TEST(ParallelForThreads, SinglePieceOrThreadRunsOnCaller) {
  RankContext context;
  RankContext::Use use(context);
  const auto caller = std::this_thread::get_id();
  set_num_threads(4);
  parallel_for(31, 31, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 31);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  set_num_threads(1);
  parallel_for(31, 3, [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelForThreads, DefaultDividesCoresAmongLocalRanks) {
  RankContext context;
  RankContext::Use use(context);
  EXPECT_EQ(num_threads(), available_cores());
  context.local_world_size = available_cores();
  EXPECT_EQ(num_threads(), 1);
  context.local_world_size = available_cores() + 7;
  EXPECT_EQ(num_threads(), 1);
  set_num_threads(5);
  EXPECT_EQ(num_threads(), 5);
  set_num_threads(0);
  EXPECT_EQ(num_threads(), 1);
}

TEST(ParallelForThreads, InvalidThreadCountAndGrainAreRejected) {
  RankContext context;
  RankContext::Use use(context);
  EXPECT_ERROR(ValueError, set_num_threads(-1), "set_num_threads: -1 is negative");
  EXPECT_THROW(parallel_for(3, 0, [](int64_t, int64_t) {}), ValueError);
}

}}  // namespace tandem

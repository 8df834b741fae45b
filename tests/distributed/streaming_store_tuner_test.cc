#include <tandem/distributed/backends/shm/streaming_store_tuner.h>

#include <gtest/gtest.h>

#include <ctime>

#include <cstdint>
#include <vector>

namespace tandem::distributed::shm { namespace {

constexpr int64_t kBytes = 1000;
constexpr int64_t kBetween = 10 * kBytes;

int64_t thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void work(int64_t ns) {
  const int64_t end = thread_ns() + ns;
  while (thread_ns() < end) {
  }
}

/// A rank, and the kind of stores that each of its rounds used.
struct Rank {
  StreamingStoreTuner trials{kBetween};
  std::vector<bool> ways;

  void all_reduce(int64_t rounds, int64_t ns_past, int64_t ns_through) {
    trials.begin(kBytes);
    for (int64_t round = 0; round < rounds; ++round) {
      const bool through = trials.uses_cached_stores(round);
      ways.push_back(through);
      trials.run(StreamingStoreTuner::Stage::kSend, round, kBytes, [&] { work(through ? ns_through : ns_past); });
      EXPECT_EQ(trials.uses_cached_stores(round), through);
    }
    trials.end(rounds);
  }
};

constexpr int64_t kShort = 20'000;
constexpr int64_t kLong = 100'000;

TEST(StreamingStoreTuner, FasterStoreKindIsPreferred) {
  for (const int64_t rounds : {2, 3, 7, 40}) {
    for (const bool caches_are_better : {true, false}) {
      Rank rank;
      for (int i = 0; i < 25; ++i) {
        rank.all_reduce(rounds, caches_are_better ? kLong : kShort, caches_are_better ? kShort : kLong);
      }
      EXPECT_EQ(rank.trials.prefers_cached_stores(), caches_are_better) << rounds << " rounds";
    }
  }
}

TEST(StreamingStoreTuner, PreferenceFollowsChangedTimings) {
  Rank rank;
  const auto run = [&](bool caches_are_better) {
    for (int i = 0; i < 25; ++i) {
      rank.all_reduce(4, caches_are_better ? kLong : kShort, caches_are_better ? kShort : kLong);
    }
    return rank.trials.prefers_cached_stores();
  };
  EXPECT_TRUE(run(true));
  EXPECT_FALSE(run(false));
  EXPECT_TRUE(run(true));
}

// The choice is independent of measurements only in trial rounds of all ranks.
TEST(StreamingStoreTuner, AllRanksRunTrialsInTheSameRounds) {
  Rank one, other;
  for (int i = 0; i < 12; ++i) {
    one.all_reduce(5, kLong, kShort);
    other.all_reduce(5, kShort, kLong);
  }
  // 24 trial rounds start at the first all_reduce and at the eleventh; between them, from the next all_reduce
  // on, each rank uses its preference.
  ASSERT_EQ(one.ways.size(), 60u);
  for (size_t i = 0; i < 60; ++i) {
    const bool tried = i < 24 || i >= 50;
    EXPECT_EQ(one.ways[i], tried ? i % 5 % 2 == 1 : i > 24) << i;
    EXPECT_EQ(other.ways[i], tried ? i % 5 % 2 == 1 : false) << i;
  }
}

TEST(StreamingStoreTuner, StreamingStoresArePreferredBeforeFirstTrialEnds) {
  Rank rank;
  EXPECT_FALSE(rank.trials.prefers_cached_stores());
  rank.all_reduce(5, 0, 0);
  EXPECT_FALSE(rank.trials.prefers_cached_stores());
}

}}  // namespace tandem::distributed::shm

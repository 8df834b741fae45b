// A rank throws, calls another operation or never joins before each operation, on every backend with thread ranks: the
// other ranks throw an error that names it within a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tests/distributed/failing_ranks.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Clock = std::chrono::steady_clock;

class ThreadRankFailure : public ::testing::TestWithParam<Setting> {
 protected:
  /// Runs `victim` on rank kVictim and the operation on the others; returns their errors and times. At most two
  /// retries if it took too long, because the machine may be loaded.
  static Notified run(const std::string& operation, std::chrono::milliseconds timeout,
                      std::chrono::milliseconds allowed,
                      const std::function<void(ProcessGroup&, const std::atomic<int>& num_notified)>& victim) {
    Notified notified;
    for (int attempt = 0; attempt < 3; ++attempt) {
      notified = run_once(operation, timeout, victim);
      if (notified.seconds < std::chrono::duration<double>(allowed).count()) break;
    }
    return notified;
  }

 private:
  static Notified run_once(const std::string& operation, std::chrono::milliseconds timeout,
                           const std::function<void(ProcessGroup&, const std::atomic<int>&)>& victim) {
    const ThreadRanks ranks{.world_size = kFailingWorld, .backend = GetParam().backend, .hosts = GetParam().hosts};
    Notified notified{.texts = std::vector<std::string>(kFailingWorld)};
    std::vector<Clock::time_point> when(kFailingWorld);
    std::atomic<int> num_joined{0};
    std::atomic<int> num_notified{0};
    run_on_threads(
        kFailingWorld, [&](int rank) { return ranks.make(rank); },
        [&](ProcessGroup& group) {
          const auto at = static_cast<size_t>(group.rank());
          ++num_joined;
          while (num_joined < kFailingWorld) std::this_thread::yield();
          when[at] = Clock::now();
          try {
            if (group.rank() == kVictim) {
              victim(group, num_notified);
            } else {
              call(group, operation, kFailingCount, {.timeout = timeout});
            }
          } catch (const CommError& e) {
            notified.texts[at] = e.what();
          }
          if (group.rank() != kVictim) when[at] = Clock::now();
          ++num_notified;
        });
    const auto last = *std::max_element(when.begin(), when.end());
    notified.seconds = std::chrono::duration<double>(last - when[kVictim]).count();
    return notified;
  }
};

TEST_P(ThreadRankFailure, ExceptionOfOneRankReachesAllSurvivors) {
  for (const std::string& operation : failing_operations()) {
    const Notified notified = run(operation, {}, std::chrono::seconds(1),
                                  [](ProcessGroup&, const std::atomic<int>&) { throw ValueError("out of data"); });
    for (int rank = 0; rank < kFailingWorld; ++rank) {
      if (rank == kVictim) continue;
      EXPECT_THAT(notified.texts[static_cast<size_t>(rank)],
                  MatchesRegex(str("\\[rank ", rank, " of 4\\] ", where_notified(operation, rank),
                                   " failed\n  rank 2: out of data")));
    }
    EXPECT_LT(notified.seconds, 1) << operation;
  }
}

TEST_P(ThreadRankFailure, MismatchedCallIsShownOnEveryRank) {
  for (const std::string& operation : failing_operations()) {
    const Notified notified =
        run(operation, {}, std::chrono::seconds(1), [&](ProcessGroup& group, const std::atomic<int>& num_notified) {
          const auto wait = [&] {
            while (num_notified < kFailingWorld - 1) std::this_thread::yield();
          };
          try {
            call(group, operation, kFailingCount + 7, {});
          } catch (const CommError&) {
            wait();
            throw;
          }
        });
    for (int rank = 0; rank < kFailingWorld; ++rank) {
      EXPECT_THAT(notified.texts[static_cast<size_t>(rank)], MatchesRegex(disagreement(operation, rank))) << operation;
    }
    EXPECT_LT(notified.seconds, 1) << operation;
  }
}

TEST_P(ThreadRankFailure, AbsentRankIsNamedAtTimeout) {
  const auto allowed = kStoppedTimeout + std::chrono::seconds(1);
  for (const std::string& operation : failing_operations()) {
    const Notified notified =
        run(operation, kStoppedTimeout, allowed, [&](ProcessGroup&, const std::atomic<int>& num_notified) {
          while (num_notified < kFailingWorld - 1) std::this_thread::yield();
        });
    for (int rank = 0; rank < kFailingWorld; ++rank) {
      if (rank == kVictim) continue;
      // The first rank to time out throws; the others are notified.
      const std::string& text = notified.texts[static_cast<size_t>(rank)];
      EXPECT_THAT(text, HasSubstr(title_of(operation) + " timed out after 0.8 s"));
      EXPECT_THAT(text, HasSubstr("rank 2"));
    }
    EXPECT_LT(notified.seconds, std::chrono::duration<double>(allowed).count()) << operation;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ThreadRankFailure,
                         ::testing::Values(Setting{kFailingWorld}, Setting{kFailingWorld, "gloo"},
                                           Setting{kFailingWorld, "auto", "aabb"}),
                         setting_name);

}}}}  // namespace tandem::v0::distributed

// Failures and mismatches of other ranks on several hosts, in every phase of a collective.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/host_ranks.h>
#include <tandem/tests/distributed/notification_time.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Clock = std::chrono::steady_clock;

constexpr HostTuning kTiny = {.leader_bytes = 64, .chunk_bytes = 256, .ahead = 2};

struct Thrown {
  std::string text = "nothing";
  int peer = -2;
};

Thrown thrown_by(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return {e.what(), e.peer()};
  } catch (const std::exception& e) {
    return {e.what()};
  }
}

std::string place(const std::source_location& where) { return str(where.file_name(), ":", where.line()); }

TEST(HierarchicalConsistencyCheck, MismatchIsShownEverywhereAndDataIsUnchanged) {
  for (const char* hosts : {"aabb", "aab", "abcb"}) {
    for (const int64_t count : {9, 500}) {  // one flow, several flows
      for (int wrong = 0; wrong < 4 && hosts[wrong] != 0; ++wrong) {
        const auto here = std::source_location::current();
        std::vector<std::exception_ptr> errors;
        const auto took = notification_time([&] {
          const HostRanks ranks{.hosts = hosts, .tuning = kTiny};
          const auto start = Clock::now();
          errors = ranks.run([&](ProcessGroup& group) {
            const Tensor x = full({group.rank() == wrong ? count + 1 : count}, 1.5);
            try {
              group.all_reduce(x, ReduceOp::kSum, {.name = "fc", .where = here});
            } catch (const CommError&) {
              for (const float v : x.to_vector<float>()) EXPECT_EQ(v, 1.5f);
              throw;
            }
          });
          return Clock::now() - start;
        });
        EXPECT_LT(took, kNotifiedWithin);
        for (size_t rank = 0; rank < errors.size(); ++rank) {
          const Thrown t = thrown_by(errors[rank]);
          EXPECT_EQ(t.text.find(str("[rank ", rank, " of ", errors.size(), "] all_reduce #1")), 0u) << t.text;
          EXPECT_NE(t.text.find("calls do not match across ranks"), std::string::npos) << t.text;
          const std::string shown =
              str("  rank ", wrong, "  all_reduce sum float32 [", count + 1, "], 'fc', ", place(here));
          EXPECT_NE(t.text.find(shown), std::string::npos) << t.text << "\nwithout\n" << shown;
        }
      }
    }
  }
}

/// Runs a collective that has phases with `count` elements for each rank, or in all. Its results replace `result`.
void call(ProcessGroup& group, const std::string& kind, int64_t count, const Tensor& result) {
  const int n = group.size();
  if (kind == "all_reduce") group.all_reduce(result);
  if (kind == "reduce") group.reduce(result, 1);
  if (kind == "broadcast") group.broadcast(result, 1);
  if (kind == "all_gather") group.all_gather(result, full({count / n}, 1.5));
  if (kind == "reduce_scatter") group.reduce_scatter(result, full({n, count / n}, 1.5));
}

Tensor result_of(ProcessGroup& group, const std::string& kind, int64_t count) {
  if (kind == "all_gather") return full({group.size(), count / group.size()}, 1.5);
  return full({kind == "reduce_scatter" ? count / group.size() : count}, 1.5);
}

const std::string kPhasedKinds[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"};

TEST(HierarchicalConsistencyCheck, MismatchOfAnyKindLeavesDataUnchanged) {
  for (const std::string& kind : kPhasedKinds) {
    for (const char* hosts : {"aabb", "aaab"}) {
      for (int wrong = 0; wrong < 4; ++wrong) {
        const HostRanks ranks{.hosts = hosts, .tuning = kTiny};
        const auto errors = ranks.run([&](ProcessGroup& group) {
          const int64_t count = group.rank() == wrong ? 804 : 800;
          const Tensor x = result_of(group, kind, count);
          try {
            call(group, kind, count, x);
          } catch (const CommError&) {
            for (const float v : x.to_vector<float>()) EXPECT_EQ(v, 1.5f);
            throw;
          }
        });
        for (const std::exception_ptr& error : errors) {
          const std::string text = thrown_by(error).text;
          EXPECT_NE(text.find("calls do not match across ranks"), std::string::npos) << text;
          EXPECT_NE(text.find(str("  rank ", wrong, "  ", kind)), std::string::npos) << text;
        }
      }
    }
  }
}

TEST(HierarchicalConsistencyCheck, DifferentCollectiveKindsAreRejected) {
  const HostRanks ranks{.hosts = "aabb", .tuning = kTiny};
  const auto errors = ranks.run([&](ProcessGroup& group) {
    if (group.rank() == 2) return group.barrier();
    group.all_reduce(zeros({500}));
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_NE(thrown_by(error).text.find("calls do not match across ranks"), std::string::npos);
  }
}

enum class End { kThrows, kKilled, kStopped };

struct Moment {
  int rank;
  HostPart part;
  int64_t number;
};

/// Errors of all ranks in one of two collectives if one rank ends at that step. Empty if it has no such step.
std::vector<Thrown> run_until(const std::string& kind, const char* hosts, const Moment& moment, End end) {
  HostRanks ranks{.hosts = hosts, .tuning = kTiny, .shm_inside = false};
  if (end == End::kStopped) ranks.timeout = std::chrono::milliseconds(100);
  std::latch others_ended(ranks.world_size() - 1);
  std::atomic<bool> came{false};
  ranks.on_start = [&](int rank, HostPart part, int64_t number) {
    if (rank != moment.rank || part != moment.part || number != moment.number) return;
    came = true;
    if (end == End::kKilled) ranks.store->announce_failure(rank, "killed by SIGKILL");
    if (end != End::kThrows) others_ended.wait();
    throw std::runtime_error("ended");
  };
  const auto errors = ranks.run([&](ProcessGroup& group) {
    struct Finally {
      std::function<void()> f;
      ~Finally() { f(); }
    };
    const Finally count{[&] {
      if (group.rank() != moment.rank) others_ended.count_down();
    }};
    for (int i = 0; i < 2; ++i) call(group, kind, 240, result_of(group, kind, 240));
    group.barrier();  // for ranks that had completed before
  });
  std::vector<Thrown> thrown;
  if (!came) return thrown;
  for (const std::exception_ptr& error : errors) thrown.push_back(thrown_by(error));
  return thrown;
}

void expect_all_report(const std::string& kind, End end, const std::string& wanted) {
  for (const char* hosts : {"aabb", "aab", "abc"}) {
    for (const HostPart part : {HostPart::kFlat, HostPart::kInside, HostPart::kAcross}) {
      int num_moments = 0;
      for (int rank = 0; hosts[rank] != 0; ++rank) {
        for (const int64_t number : {1, 2, 4}) {
          std::vector<Thrown> thrown;
          const auto took = notification_time([&] {
            const auto start = Clock::now();
            thrown = run_until(kind, hosts, {rank, part, number}, end);
            return Clock::now() - start;
          });
          if (thrown.empty()) continue;
          ++num_moments;
          const std::string where =
              str(kind, " ", hosts, " rank ", rank, " part ", static_cast<int>(part), " number ", number);
          EXPECT_LT(took, kNotifiedWithin) << where;
          for (size_t other = 0; other < thrown.size(); ++other) {
            if (static_cast<int>(other) == rank) continue;
            EXPECT_NE(thrown[other].text.find(wanted), std::string::npos) << where << ": " << thrown[other].text;
            if (end == End::kStopped) continue;
            EXPECT_EQ(thrown[other].peer, rank) << where << ": " << thrown[other].text;
          }
        }
      }
      EXPECT_GT(num_moments, 3);
    }
  }
}

class HierarchicalPhaseFailure : public ::testing::TestWithParam<std::string> {};

TEST_P(HierarchicalPhaseFailure, ExceptionAtAnyPhaseFailsAllRanks) {
  expect_all_report(GetParam(), End::kThrows, " threw: ended");
}

TEST_P(HierarchicalPhaseFailure, DeathAtAnyPhaseFailsAllRanks) {
  expect_all_report(GetParam(), End::kKilled, "killed by SIGKILL");
}

TEST_P(HierarchicalPhaseFailure, StallAtAnyPhaseCausesTimeout) {
  expect_all_report(GetParam(), End::kStopped, "timed out after 0.1 s");
}

INSTANTIATE_TEST_SUITE_P(Kinds, HierarchicalPhaseFailure, ::testing::ValuesIn(kPhasedKinds),
                         [](const auto& param_info) { return param_info.param; });

TEST(HierarchicalFailure, AbortReachesAllHosts) {
  for (int aborting = 0; aborting < 5; ++aborting) {
    const HostRanks ranks{.hosts = "aabbb", .tuning = kTiny};
    const auto errors = ranks.run([&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == aborting) return group.abort("loss is NaN");
      group.all_reduce(zeros({300}));
    });
    for (int rank = 0; rank < 5; ++rank) {
      const Thrown t = thrown_by(errors[static_cast<size_t>(rank)]);
      EXPECT_EQ(t.text, rank == aborting
                            ? "nothing"
                            : str("[rank ", rank, " of 5] all_reduce #2 failed\n  rank ", aborting, ": loss is NaN"));
    }
  }
}

}}}}  // namespace tandem::v0::distributed

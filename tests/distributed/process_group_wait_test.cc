// Waiting: Work handles, monitored barriers, stall reports, and timeout 0.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <iostream>
#include <latch>
#include <numeric>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/rank_context.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/meeting_backend.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using std::chrono::milliseconds;

// --- handles ---

TEST(Work, ReportsCompletionAndFailure) {
  std::promise<void> may_come;
  std::shared_future<void> waited = may_come.get_future().share();
  run_all({}, [&](ProcessGroup& g) {
    const Tensor x = full({5}, 1);
    if (g.rank() == 1) {
      waited.wait();
      g.all_reduce(x);
      return g.abort("enough");
    }
    const Work work = g.all_reduce_async(x);
    EXPECT_FALSE(work.is_completed());
    EXPECT_EQ(work.exception(), nullptr);
    EXPECT_FALSE(work.wait(milliseconds(10)));
    std::atomic<int> continued{0};
    work.then([&] { ++continued; });
    EXPECT_EQ(continued, 0);
    may_come.set_value();
    EXPECT_TRUE(work.wait(std::chrono::hours(1)));
    EXPECT_TRUE(work.is_completed());
    work.then([&] { ++continued; });
    const Work broken = g.all_gather_async(zeros({2, 5}), x);
    EXPECT_EQ(thrown_by([&] { broken.wait(); }).text, "[rank 0 of 2] all_gather #2 failed\n  rank 1: enough");
    EXPECT_TRUE(broken.is_completed());
    EXPECT_NE(broken.exception(), nullptr);
    EXPECT_EQ(thrown_by([&] { std::rethrow_exception(broken.exception()); }).seq, 2);
    EXPECT_NE(thrown_by([&] { (void)broken.wait(milliseconds(1)); }).text, "nothing");
    broken.then([&] { ++continued; });
    EXPECT_GE(continued, 2);
  });
}

TEST(Work, ContinuationMayUseGroup) {
  ThreadRanks ranks{.world_size = 3};
  ranks.run([](ProcessGroup& g) {
    const Tensor x = full({5}, 1);
    const Tensor y = full({5}, 2);
    std::promise<void> done;
    g.all_reduce_async(x).then([&] {
      g.all_reduce(y);
      done.set_value();
    });
    done.get_future().wait();
    EXPECT_EQ(count_wrong(y, [](int64_t) { return 6; }), 0);
  });
}

// Continuations on the worker use the settings of the thread that started the operation, even after it has ended.
TEST(Work, ContinuationsDoNotInheritAutocastOrGradMode) {
  run_all({}, [](ProcessGroup& g) {
    RankContext context = RankContext::current();
    context.grad_enabled = false;
    context.autocast = static_cast<int8_t>(kBFloat16);
    const RankContext::Use use(context);
    const Tensor x = zeros({2});
    std::promise<std::pair<bool, int>> modes;
    if (g.rank() == 0) std::this_thread::sleep_for(milliseconds(50));  // the other rank's is completed by its worker
    g.all_reduce_async(x).then([&] {
      modes.set_value({RankContext::current().grad_enabled, RankContext::current().autocast});
    });
    const auto seen = modes.get_future().get();
    if (g.rank() == 1) {
      EXPECT_EQ(seen, std::pair(true, -1));
    }
  });
}

TEST(Work, CoalescedWorkReportsFailureOnce) {
  run_all({}, [](ProcessGroup& g) {
    if (g.rank() == 1) return g.abort("enough");
    const Work work = g.all_reduce_coalesced_async({zeros({2}), zeros({2}, {kInt32})});
    EXPECT_EQ(thrown_by([&] { work.wait(); }).text, "[rank 0 of 2] all_reduce #1 failed\n  rank 1: enough");
    EXPECT_EQ(thrown_by([&] {
                g.all_reduce_coalesced({zeros({2}), zeros({2}, {kInt32})});
              }).text,
              "[rank 0 of 2] all_reduce #3: the group has already failed\n  rank 1: enough");
  });
}

TEST(ProcessGroup, WorksStartedInCrossingOrderComplete) {
  const auto store = make_memory_store();
  constexpr int kGroups = 4;
  constexpr int kRounds = 20;
  std::vector<ThreadRanks> worlds;
  for (int k = 0; k < kGroups; ++k) worlds.push_back({.world_size = 3, .store = store, .name = str("group ", k)});
  worlds[0].run([&](ProcessGroup& first) {
    const int rank = first.rank();
    std::vector<std::shared_ptr<ProcessGroup>> others;
    for (int k = 1; k < kGroups; ++k) others.push_back(worlds[static_cast<size_t>(k)].make(rank));
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int round = 0; round < kRounds; ++round) {
      for (int k = 0; k < kGroups; ++k) {
        // Each rank uses the groups in a different order.
        const int chosen = (k * (rank == 1 ? 3 : 1) + rank + round) % kGroups;
        ProcessGroup& g = chosen == 0 ? first : *others[static_cast<size_t>(chosen - 1)];
        tensors.push_back(full({100 * chosen + 1}, round + chosen + rank));
        works.push_back(g.all_reduce_async(tensors.back()));
      }
    }
    for (size_t i = works.size(); i-- > 0;) works[i].wait();
    size_t i = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int k = 0; k < kGroups; ++k, ++i) {
        const int chosen = (k * (rank == 1 ? 3 : 1) + rank + round) % kGroups;
        EXPECT_EQ(count_wrong(tensors[i], [&](int64_t) { return 3 * (round + chosen) + 3; }), 0);
      }
    }
  });
}

// --- without threads ---

/// While in scope, no thread can be started, because no stack can be allocated.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 48);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(Work, IsNotQueuedWhenWorkerCannotStart) {
  std::promise<void> has_tried;
  std::shared_future<void> tried = has_tried.get_future().share();
  ThreadRanks ranks{};
  ranks.run([&](ProcessGroup& g) {
    const Tensor x = full({5}, 1);
    g.barrier();
    if (g.rank() == 0) {
      {
        const NoThreads none;
        EXPECT_THROW(static_cast<void>(g.all_reduce_async(x)), tandem::ResourceError);
        EXPECT_THROW(static_cast<void>(g.isend(x, 1)), tandem::ResourceError);
      }
      has_tried.set_value();
    }
    tried.wait();
    g.all_reduce_async(x, ReduceOp::kSum, {.timeout = milliseconds(5000)}).wait();
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 2; }), 0);
  });
}

// --- monitored barriers ---

TEST(MonitoredBarrier, WaitsForAllRanksAndRemovesKeys) {
  for (const int world : {1, 2, 3, 7}) {
    ThreadRanks ranks{.world_size = world};
    std::atomic<int> arrived{0};
    ranks.run([&](ProcessGroup& g) {
      for (int round = 1; round <= 10; ++round) {
        ++arrived;
        g.monitored_barrier();
        EXPECT_GE(arrived.load(), round * g.size());
        g.monitored_barrier();
      }
    });
    if (world > 1) {
      EXPECT_FALSE(ranks.store->contains({"group/default/monitored_barrier/1/result"}));  // keys are deleted
    }
  }
}

TEST(MonitoredBarrier, TimeoutNamesAllMissingRanksAndGroupContinues) {
  std::latch failed(2);
  ThreadRanks ranks{.world_size = 4, .ranks = {2, 3, 5, 9}};
  const auto thrown = run_all(ranks, [&](ProcessGroup& g) {
    g.monitored_barrier();
    const bool late = g.rank() == 1 || g.rank() == 3;
    if (late) failed.wait();
    const Thrown t = thrown_by([&] { g.monitored_barrier({.timeout = milliseconds(late ? 5000 : 150)}); });
    if (!late) failed.count_down();
    EXPECT_EQ(t.text, str("[rank ", g.ranks()[static_cast<size_t>(g.rank())],
                          ", group 'default'] monitored_barrier #2 timed out after 0.1 s\n"
                          "  arrived: ranks 2 5\n"
                          "  missing: rank 3, rank 9"));
    EXPECT_EQ(t.peer, 3);
    EXPECT_EQ(t.rank, g.ranks()[static_cast<size_t>(g.rank())]);
    g.monitored_barrier();
    const Tensor x = full({3}, 1);
    g.all_reduce(x);
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 4; }), 0);
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

TEST(MonitoredBarrier, OnlyFailureOfMemberEndsIt) {
  ThreadRanks ranks{.world_size = 2, .ranks = {1, 2}};
  ranks.store->announce_failure(7, "is no member");
  const auto thrown = run_all(ranks, [&](ProcessGroup& g) {
    g.monitored_barrier();
    if (g.rank() == 1) return ranks.store->announce_failure(2, "loss is NaN");
    g.monitored_barrier();
  });
  EXPECT_EQ(thrown[0].text, "[rank 1, group 'default'] monitored_barrier #2 failed\n  rank 2: loss is NaN");
  EXPECT_EQ(thrown[0].peer, 2);
}

TEST(MonitoredBarrier, DepartedMemberIsNamedBeforeTimeout) {
  for (const milliseconds timeout : {milliseconds(0), milliseconds(20000)}) {
    ThreadRanks ranks{.world_size = 3, .timeout = timeout, .ranks = {1, 2, 4}};
    ranks.store->leave(7);
    std::promise<void> has_left;
    std::shared_future<void> left = has_left.get_future().share();
    const auto thrown = run_all(ranks, [&](ProcessGroup& g) {
      g.monitored_barrier();
      if (g.rank() == 1) {
        ranks.store->leave(2);
        return has_left.set_value();
      }
      if (g.rank() == 2) left.wait();  // joins later
      g.monitored_barrier();
    });
    for (const size_t rank : {0, 2}) {
      EXPECT_EQ(thrown[rank].text, str("[rank ", ranks.ranks[rank],
                                       ", group 'default'] monitored_barrier #2 failed\n  rank 2: left the job"));
      EXPECT_EQ(thrown[rank].peer, 2);
    }
  }
}

TEST(MonitoredBarrier, MemberThatArrivedAndLeftIsNotMissing) {
  ThreadRanks ranks{.world_size = 3};
  const std::string prefix = "group/default/monitored_barrier/1/";
  ranks.run([&](ProcessGroup& g) {
    if (g.rank() == 2) {
      // As a rank whose timeout has expired does, while the others still wait for the late rank.
      ranks.store->set(prefix + "2", "1");
      ranks.store->add(prefix + "count", 1);
      return ranks.store->leave(2);
    }
    if (g.rank() == 1) {
      ranks.store->get(prefix + "0", milliseconds(0));
      std::promise<void> some_slices;
      EXPECT_EQ(some_slices.get_future().wait_for(milliseconds(350)), std::future_status::timeout);
    }
    g.monitored_barrier();
  });
}

// --- stalls ---

/// Captures stderr while in scope.
class StderrLines {
 public:
  StderrLines() : saved_(dup(2)) {
    int ends[2];
    if (pipe(ends) != 0) throw IoError("pipe failed");
    read_end_ = ends[0];
    dup2(ends[1], 2);
    close(ends[1]);
  }
  ~StderrLines() {
    restore();
    close(read_end_);
  }
  StderrLines(const StderrLines&) = delete;
  StderrLines& operator=(const StderrLines&) = delete;

  /// The next log line of a group, without prefix; "" after restore() if there is no further line.
  std::string next() {
    for (;;) {
      std::string line;
      char c = 0;
      while (read(read_end_, &c, 1) == 1 && c != '\n') line += c;
      const size_t begin = line.find("group '");
      if (begin != std::string::npos) return line.substr(begin);
      if (c != '\n') return "";
    }
  }
  void restore() {
    if (saved_ < 0) return;
    dup2(saved_, 2);
    close(saved_);
    saved_ = -1;
  }

 private:
  int saved_;
  int read_end_ = -1;
};

/// The log lines of the group while `waiting` waits for the last rank, which continues after `count` lines.
std::vector<std::string> stall_lines(const ThreadRanks& ranks, size_t count,
                                     const std::function<void(ProcessGroup&)>& before,
                                     const std::function<void(ProcessGroup&)>& waiting,
                                     const std::function<void(ProcessGroup&)>& late) {
  StderrLines log;
  std::vector<std::string> lines;
  ranks.run([&](ProcessGroup& g) {
    before(g);
    if (g.rank() < g.size() - 1) return waiting(g);
    while (lines.size() < count) lines.push_back(log.next());
    late(g);
  });
  log.restore();
  for (std::string line = log.next(); !line.empty(); line = log.next()) lines.push_back(line);
  return lines;
}

/// "... has been waiting for 0.4 s ...": 0.4.
double seconds_waited(const std::string& line) {
  const std::string before = "has been waiting for ";
  return std::stod(line.substr(line.find(before) + before.size()));
}

void expect_match(const std::string& line, const std::string& pattern) {
  EXPECT_TRUE(std::regex_match(line, std::regex(pattern))) << line;
}

static_assert(kStall == std::chrono::seconds(5));  // the documented time

/// Every backend, with job ranks 1, 2, ...
class BackendStallWarning : public ::testing::TestWithParam<Setting> {
 protected:
  static ThreadRanks ranks() {
    const auto& [world_size, backend, hosts] = GetParam();
    std::vector<int> numbers(static_cast<size_t>(world_size));
    std::iota(numbers.begin(), numbers.end(), 1);
    return {.world_size = world_size,
            .name = "trainers",
            .stall = milliseconds(200),
            .ranks = numbers,
            .backend = backend,
            .hosts = hosts};
  }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendStallWarning,
                         ::testing::Values(Setting{3}, Setting{3, "gloo"}, Setting{4, "auto", "aaabb"}), setting_name);

TEST_P(BackendStallWarning, LowestWaitingRankLogsEachTimeWaitDoubles) {
  const auto same = [](ProcessGroup& g) { g.all_reduce(zeros({300}), ReduceOp::kSum, {.name = "bucket 3 of 7"}); };
  const auto lines = stall_lines(
      ranks(), 2, [](ProcessGroup& g) { g.barrier({.name = "start"}); }, same, same);
  for (size_t i = 0; i < lines.size(); ++i) {
    expect_match(lines[i],
                 str(R"(group 'trainers': all_reduce #2 'bucket 3 of 7' has been waiting for \d+\.\d s for rank )",
                     GetParam().world_size, R"( \(last: barrier #1 'start', \d+\.\d s ago\))"));
    if (i > 0) {
      EXPECT_GT(seconds_waited(lines[i]), 1.5 * seconds_waited(lines[i - 1])) << lines[i];
    }
  }
}

TEST_P(BackendStallWarning, OnlyFirstPendingMessageIsLogged) {
  const int last = GetParam().world_size - 1;
  const auto lines = stall_lines(
      ranks(), 2, [](ProcessGroup& g) { g.barrier(); },
      [&](ProcessGroup& g) {
        if (g.rank() > 0) return;
        const std::vector<Work> works = {g.irecv(zeros({3}), last, 7, {.name = "note"}),
                                         g.isend(zeros({30000}), last, 8)};
        for (const Work& work : works) work.wait();
      },
      [](ProcessGroup& g) {
        g.recv(zeros({30000}), 0, 8);
        g.send(zeros({3}), 0, 7, {.name = "note"});
      });
  for (const std::string& line : lines) {
    expect_match(line, str("group 'trainers': recv from rank ", last + 1,
                           R"( tag 7 'note' has been waiting for \d+\.\d s for rank )", last + 1,
                           R"( \(last: barrier #1, \d+\.\d s ago\))"));
  }
}

TEST(StallWarning, NamesRanksThatStartedNothing) {
  const auto lines = stall_lines(
      {.world_size = 3, .stall = milliseconds(100)}, 1, [](ProcessGroup&) {},
      [](ProcessGroup& g) {
        if (g.rank() == 1) return;
        EXPECT_NE(thrown_by([&] { g.barrier(); }).text, "nothing");
      },
      [](ProcessGroup& g) { g.abort("has seen it"); });
  expect_match(lines[0],
               R"(group 'default': barrier #1 has been waiting for \d+\.\d s for rank 1 \(has started nothing yet\), )"
               R"(rank 2 \(has started nothing yet\))");
}

TEST(StallWarning, NextRankLogsWhenLowestIsBlocked) {
  // Many rounds, the first of which cannot complete without rank 0.
  ThreadRanks ranks{.world_size = 3,
                    .tuning = {.slot_bytes = 64, .chunk_bytes = 128, .slots = 3, .small_bytes = 64},
                    .stall = milliseconds(100)};
  std::promise<void> has_seen;
  std::shared_future<void> seen = has_seen.get_future().share();
  std::promise<void> is_ready;
  StderrLines log;
  std::string line;
  ranks.run([&](ProcessGroup& g) {
    const Tensor x = full({30000}, 1);
    const Tensor note = zeros({3});
    if (g.rank() == 1) {
      is_ready.get_future().wait();  // a message that has already arrived would block rank 0's own thread
      g.send(note, 0);
      g.all_reduce(x);
      return;
    }
    const Work work = g.all_reduce_async(x);
    if (g.rank() == 0) {
      // Its worker has started the all_reduce, and is blocked as soon as the message arrives.
      g.irecv(note, 1).then([seen] { seen.wait(); });
      is_ready.set_value();
      seen.wait();
    } else {
      while (line.find("for data of rank 0 ") == std::string::npos) line = log.next();
      has_seen.set_value();
    }
    work.wait();
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 3; }), 0);
  });
  expect_match(line, R"(group 'default': all_reduce #1 has been waiting for \d+\.\d s for data of rank 0 )"
                     R"(\(last: all_reduce #1, \d+\.\d s ago\))");
}

TEST(StallWarning, IsLoggedWhenNoThreadCanStart) {
  const auto lines = stall_lines(
      {.world_size = 2, .stall = milliseconds(100)}, 1, [](ProcessGroup& g) { g.barrier(); },
      [](ProcessGroup& g) {
        const NoThreads none;
        const Tensor x = full({5}, 1);
        const Thrown t = thrown_by([&] { g.all_reduce(x); });
        EXPECT_EQ(t.text, "nothing");
        if (t.text != "nothing") std::cerr << "group 'default': failed\n";  // another thread waits for a line
        EXPECT_EQ(count_wrong(x, [](int64_t) { return 3; }), 0);
      },
      [](ProcessGroup& g) { g.all_reduce(full({5}, 2)); });
  expect_match(lines[0], R"(group 'default': all_reduce #2 has been waiting for \d+\.\d s for rank 1 )"
                         R"(\(last: barrier #1, \d+\.\d s ago\))");
}

/// A group of the same ranks, as created by Context::new_group.
std::shared_ptr<ProcessGroup> create_deferred(const ThreadRanks& ranks, int rank) {
  const ProcessGroupOptions options{ranks.store, rank, ranks.world_size, "late", ranks.timeout, true};
  return ProcessGroupAccess::make(options, nullptr, ranks.stall, make_backend);
}

TEST(StallWarning, NamesNoRankWhileMembersAreJoining) {
  const ThreadRanks three{.world_size = 3, .stall = milliseconds(100)};
  const auto meet = [&](ProcessGroup& g) { create_deferred(three, g.rank())->barrier(); };
  const auto lines = stall_lines(
      three, 1, [](ProcessGroup&) {}, meet, meet);
  expect_match(lines[0], R"(group 'late': barrier #1 has been waiting for \d+\.\d s for members to join)");

  const ThreadRanks two{.stall = milliseconds(100)};
  const auto notes = stall_lines(
      two, 1, [](ProcessGroup&) {}, [&](ProcessGroup& g) { create_deferred(two, g.rank())->recv(zeros({3}), 1); },
      [&](ProcessGroup& g) { create_deferred(two, g.rank())->send(zeros({3}), 0); });
  expect_match(notes[0], R"(group 'late': recv from rank 1 tag 0 has been waiting for \d+\.\d s for members to join)");
}

/// Whether a rank of the backend was queried before a collective was started.
struct AskedTooEarly : MeetingBackend {
  AskedTooEarly(const ProcessGroupOptions& options, std::atomic<bool>& is_too_early)
      : MeetingBackend(options, std::make_shared<Meeting>()), too_early(is_too_early) {}
  void do_start(const Collective& collective) override {
    has_started = true;
    MeetingBackend::do_start(collective);
  }
  Advance do_advance() override { return query(), MeetingBackend::do_advance(); }
  bool do_needs(int rank) override { return query(), MeetingBackend::do_needs(rank); }
  LastStarted do_last_started(int rank) const override { return query(), MeetingBackend::do_last_started(rank); }
  std::vector<int> do_awaited() override { return query(), std::vector<int>({1}); }
  void query() const { too_early = too_early || !has_started; }

  std::atomic<bool>& too_early;
  std::atomic<bool> has_started{false};
};

TEST(Joining, NewBackendIsNotQueriedBeforeStart) {
  std::atomic<bool> too_early{false};
  std::promise<void> may_come;
  StderrLines log;
  const Work barrier = [&] {
    const auto group = ProcessGroupAccess::make({make_memory_store(), 0, 2}, nullptr, milliseconds(50),
                                                [&](const ProcessGroupOptions& its) {
                                                  may_come.get_future().wait();
                                                  return std::make_unique<AskedTooEarly>(its, too_early);
                                                });
    const Work work = group->barrier_async();
    EXPECT_NE(log.next().find(" for members to join"), std::string::npos);
    may_come.set_value();
    std::string line;
    while (line.find(" for rank 1 (has started nothing yet)") == std::string::npos) line = log.next();
    return work;
  }();
  log.restore();
  EXPECT_FALSE(too_early);
  EXPECT_EQ(thrown_by([&] { barrier.wait(); }).text,
            "[rank 0 of 2] barrier #1 failed\n  rank 0: destroyed its group while 1 operation was queued");
}

// --- no deadline ---

TEST(Timeout, ZeroAndMaximumMeanNoDeadline) {
  for (const milliseconds timeout : {milliseconds(0), milliseconds::max()}) {
    const auto store = make_memory_store();
    ThreadRanks ranks{.world_size = 3, .store = store, .name = "not used"};
    std::promise<void> has_waited;
    std::shared_future<void> may_come = has_waited.get_future().share();
    ranks.run([&](ProcessGroup& other) {
      const auto group = ProcessGroup::create(
          {.store = store, .rank = other.rank(), .world_size = 3, .timeout = timeout, .thread_ranks = true});
      ProcessGroup& g = *group;
      const Tensor x = full({3000}, 1);
      if (g.rank() == 2) may_come.wait();
      const Work work = g.all_reduce_async(x, ReduceOp::kSum, {.timeout = milliseconds::max()});
      if (g.rank() == 0) {
        EXPECT_FALSE(work.wait(milliseconds(60)));
        has_waited.set_value();
      }
      g.barrier();
      work.wait();
      EXPECT_EQ(count_wrong(x, [](int64_t) { return 3; }), 0);
      if (g.rank() == 0) g.send(x, 1);
      if (g.rank() == 1) g.recv(x, 0);
      g.monitored_barrier();
      g.monitored_barrier({.timeout = milliseconds::max()});
    });
  }
}

}}}}  // namespace tandem::v0::distributed

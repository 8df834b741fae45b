// Mismatches, timeouts, deaths and aborts among ranks that are threads, with the full text of each error.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <mutex>
#include <regex>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/memory_store.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/meeting_backend.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Clock = std::chrono::steady_clock;

// --- mismatches ---

TEST(ConsistencyCheck, MismatchShowsBothCallsAndKeepsData) {
  for (const int64_t rows : {4, 40000}) {  // in slots, and in rounds
    ThreadRanks ranks{};
    const auto here = std::source_location::current();
    const auto thrown = run_all(ranks, [&](ProcessGroup& group) {
      const Tensor x = full({rows, 3 + group.rank()}, 1.5);
      const Thrown t = thrown_by([&] { group.all_reduce(x, ReduceOp::kSum, {.name = "fc.weight", .where = here}); });
      for (const float v : x.to_vector<float>()) ASSERT_EQ(v, 1.5f);
      throw CommError(t.text, t.rank, t.peer, t.seq);
    });
    for (int rank = 0; rank < 2; ++rank) {
      const Thrown& t = thrown[static_cast<size_t>(rank)];
      EXPECT_EQ(t.text, str("[rank ", rank, " of 2] all_reduce #1: calls do not match across ranks\n",
                            "  rank 0  all_reduce sum float32 [", rows, ", 3], 'fc.weight', ", place(here), "\n",
                            "  rank 1  all_reduce sum float32 [", rows, ", 4], 'fc.weight', ", place(here)));
      EXPECT_EQ(t.rank, rank);
      EXPECT_EQ(t.peer, 1 - rank);
      EXPECT_EQ(t.seq, 1);
    }
  }
}

TEST(ConsistencyCheck, EveryPartOfSignatureIsCompared) {
  const auto here = std::source_location::current();
  using Call = std::function<void(ProcessGroup&)>;
  const Call calls[] = {
      [&](ProcessGroup& g) { g.all_reduce(zeros({6}), ReduceOp::kSum, {.where = here}); },
      [&](ProcessGroup& g) { g.all_reduce(zeros({6}), ReduceOp::kMax, {.where = here}); },
      [&](ProcessGroup& g) { g.all_reduce(zeros({6}, {kInt32}), ReduceOp::kSum, {.where = here}); },
      [&](ProcessGroup& g) { g.all_reduce(zeros({7}), ReduceOp::kSum, {.where = here}); },
      [&](ProcessGroup& g) { g.all_reduce(zeros({6}), ReduceOp::kSum, {.name = "x", .where = here}); },
      [&](ProcessGroup& g) { g.broadcast(zeros({6}), 0, {.where = here}); },
      [&](ProcessGroup& g) { g.broadcast(zeros({6}), 1, {.where = here}); },
      [&](ProcessGroup& g) {
        g.all_gather(zeros({2, 6}), zeros({6}), {.where = here});
      },
      [&](ProcessGroup& g) { g.barrier({.where = here}); },
  };
  const std::string shown[] = {
      "all_reduce sum float32 [6]",   "all_reduce max float32 [6]",      "all_reduce sum int32 [6]",
      "all_reduce sum float32 [7]",   "all_reduce sum float32 [6], 'x'", "broadcast from 0 float32 [6]",
      "broadcast from 1 float32 [6]", "all_gather float32 [6]",          "barrier"};
  const std::string kinds[] = {"all_reduce", "all_reduce", "all_reduce", "all_reduce", "all_reduce",
                               "broadcast",  "broadcast",  "all_gather", "barrier"};
  for (size_t a = 0; a < std::size(calls); ++a) {
    for (size_t b = a + 1; b < std::size(calls); ++b) {
      const auto thrown = run_all({}, [&](ProcessGroup& group) { calls[group.rank() == 0 ? a : b](group); });
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(thrown[static_cast<size_t>(rank)].text,
                  str("[rank ", rank, " of 2] ", kinds[rank == 0 ? a : b], " #1: calls do not match across ranks\n",
                      "  rank 0  ", shown[a], ", ", place(here), "\n  rank 1  ", shown[b], ", ", place(here)));
      }
    }
  }
}

TEST(ConsistencyCheck, DifferentShapesOfEqualCountAreRejected) {
  const auto thrown = run_all({}, [](ProcessGroup& group) {
    group.all_reduce(full(group.rank() == 0 ? Shape{2, 3} : Shape{6}, 1));
  });
  for (const Thrown& t : thrown) {
    EXPECT_NE(t.text.find("calls do not match across ranks"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("  rank 0  all_reduce sum float32 [2, 3], "), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("  rank 1  all_reduce sum float32 [6], "), std::string::npos) << t.text;
  }
}

TEST(ConsistencyCheck, MismatchReachesAllFourRanks) {
  const auto thrown = run_all({.world_size = 4}, [](ProcessGroup& group) {
    const Work work = group.all_reduce_async(zeros({group.rank() == 2 ? 9 : 8}), ReduceOp::kSum, {.name = "loss"});
    work.wait();
  });
  for (int rank = 0; rank < 4; ++rank) {
    const Thrown& t = thrown[static_cast<size_t>(rank)];
    EXPECT_NE(t.text.find("calls do not match across ranks"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("  rank 2  all_reduce sum float32 [9], 'loss', "), std::string::npos) << t.text;
    EXPECT_EQ(t.rank, rank);
  }
}

// --- timeouts ---

TEST(Timeout, NamesMissingRanksAndTheirLastCollective) {
  std::promise<void> timed_out;
  std::shared_future<void> waited = timed_out.get_future().share();
  const auto thrown = run_all({.world_size = 3}, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() != 0) waited.wait();
    if (group.rank() == 1) throw std::runtime_error("was late");
    const Thrown t = thrown_by([&] {
      group.all_reduce(zeros({1024, 512}), ReduceOp::kSum,
                       {.name = "bucket 3 of 7", .timeout = std::chrono::milliseconds(150)});
    });
    if (group.rank() == 0) timed_out.set_value();
    throw CommError(t.text, t.rank, t.peer, t.seq);
  });
  const std::string missing = R"(missing: rank 1 \(last reached barrier #1, \d+\.\d s ago\))"
                              R"(, rank 2 \(last reached barrier #1, \d+\.\d s ago\))";
  EXPECT_TRUE(std::regex_match(thrown[0].text, std::regex(R"(\[rank 0 of 3\] all_reduce #2 timed out after 0\.1 s
  bucket 3 of 7, 524288 float32 \(2\.0 MiB\), shm
  reached #2: ranks 0\.  )" + missing)))
      << thrown[0].text;
  EXPECT_EQ(thrown[0].peer, 1);
  EXPECT_EQ(thrown[0].seq, 2);
  // A rank that comes too late gets the reason.
  EXPECT_TRUE(std::regex_match(thrown[2].text, std::regex(R"(\[rank 2 of 3\] all_reduce #2 failed
  rank 0: all_reduce #2 timed out after 0\.1 s; reached #2: ranks 0\.  )" +
                                                          missing)))
      << thrown[2].text;
  EXPECT_EQ(thrown[2].peer, 0);
}

TEST(Timeout, HeadlineNamesRankBlockedInOperation) {
  const ThreadRanks ranks{.tuning = {.slot_bytes = 64, .chunk_bytes = 128, .slots = 3, .small_bytes = 64}};
  std::promise<void> is_ready;
  std::promise<void> has_failed;
  std::shared_future<void> failed = has_failed.get_future().share();
  std::string headline;
  std::string text;
  run_all(ranks, [&](ProcessGroup& group) {
    const Tensor x = full({30000}, 1);
    const Tensor note = zeros({3});
    if (group.rank() == 0) {
      const Work work = group.all_reduce_async(x);
      // Its worker has started the all_reduce, and is blocked as soon as the message arrives.
      group.irecv(note, 1).then([failed] { failed.wait(); });
      is_ready.set_value();
      failed.wait();
      work.wait();
      return;
    }
    is_ready.get_future().wait();
    group.send(note, 0);
    try {
      group.all_reduce(x, ReduceOp::kSum, {.timeout = std::chrono::milliseconds(300)});
    } catch (const CommError& e) {
      headline = headline_of(e);
      text = e.what();
    }
    has_failed.set_value();
  });
  EXPECT_EQ(headline, "rank 0 of 2 did not finish all_reduce (collective 1) within 0.3 s; waiting: rank 1") << text;
  EXPECT_NE(text.find("missing: data of rank 0 "), std::string::npos) << text;
}

/// Calls `delay` once, when its rank waits for peers: in do_sleep, or at the end of do_advance.
class LateBackend final : public MeetingBackend {
 public:
  using MeetingBackend::MeetingBackend;
  Advance do_advance() override {
    const Advance result = MeetingBackend::do_advance();
    if (result == Advance::kIdle && is_in_advance && delay) std::exchange(delay, nullptr)();
    return result;
  }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override {
    if (is_in_advance || !delay) return MeetingBackend::do_sleep(changed, until);
    if (!changed()) std::exchange(delay, nullptr)();
  }
  bool is_in_advance = false;
  std::function<void()> delay;
};

TEST(Timeout, DataThatArrivedInTimeIsNotLate) {
  for (const bool is_async : {false, true}) {
    std::latch waits(1), has_arrived(1);
    const auto meeting = std::make_shared<Meeting>();
    const auto make = [&](int rank) {
      const ProcessGroupOptions options{nullptr, rank, 2, "default", std::chrono::milliseconds(50), true};
      auto backend = std::make_unique<LateBackend>(options, meeting);
      backend->is_in_advance = is_async;
      if (rank == 0) {
        backend->delay = [&, timeout = options.timeout] {
          waits.count_down();
          has_arrived.wait();
          std::this_thread::sleep_for(timeout);
        };
      }
      return ProcessGroupAccess::make(options, std::move(backend));
    };
    rethrow_first(run_on_threads(2, make, [&](ProcessGroup& group) {
      if (group.rank() == 1) {
        waits.wait();
        group.barrier();
        return has_arrived.count_down();
      }
      if (!is_async) return group.barrier();
      std::latch is_over(1);  // this thread does not advance the group
      const Work work = group.barrier_async();
      work.then([&] { is_over.count_down(); });
      is_over.wait();
      work.wait();
    }));
  }
}

TEST(Timeout, AsyncOperationFailsWithoutWait) {
  std::promise<void> timed_out;
  std::shared_future<void> waited = timed_out.get_future().share();
  const auto thrown = run_all({}, [&](ProcessGroup& group) {
    if (group.rank() == 1) return waited.wait();
    const Work work = group.all_reduce_async(zeros({5}), ReduceOp::kSum, {.timeout = std::chrono::milliseconds(60)});
    work.then([&] { timed_out.set_value(); });
    waited.wait();
    work.wait();
  });
  EXPECT_EQ(thrown[0].text,
            "[rank 0 of 2] all_reduce #1 timed out after 0.1 s\n"
            "  5 float32 (20 B), shm\n"
            "  reached #1: ranks 0.  missing: rank 1 (has started nothing yet)");
}

TEST(Timeout, TimedWaitDoesNotFailOperation) {
  std::promise<void> has_waited;
  std::shared_future<void> waited = has_waited.get_future().share();
  const auto thrown = run_all({}, [&](ProcessGroup& group) {
    const Tensor x = full({5}, 1);
    if (group.rank() == 1) waited.wait();
    const Work work = group.all_reduce_async(x);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.wait(std::chrono::milliseconds(20)));
      has_waited.set_value();
    }
    work.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(5, 2));
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

// --- aborts, deaths and leaving ---

TEST(Abort, ReasonReachesPeersAndLaterOperations) {
  std::promise<void> aborted;
  std::shared_future<void> waited = aborted.get_future().share();
  const auto thrown = run_all({.world_size = 3}, [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      group.abort("loss is NaN");
      aborted.set_value();
      return;
    }
    EXPECT_EQ(thrown_by([&] { group.all_reduce(zeros({7})); }).text,
              str("[rank ", group.rank(), " of 3] all_reduce #2 failed\n  rank 1: loss is NaN"));
    group.broadcast(zeros({7}), 0);
  });
  for (const int rank : {0, 2}) {
    const Thrown& t = thrown[static_cast<size_t>(rank)];
    EXPECT_EQ(t.text, str("[rank ", rank, " of 3] broadcast #3: the group has already failed\n  rank 1: loss is NaN"));
    EXPECT_EQ(t.peer, 1);
    EXPECT_EQ(t.seq, 3);
  }
}

TEST(Abort, FailsInFlightOperationsOfSameRank) {
  const auto thrown = run_all({}, [&](ProcessGroup& group) {
    if (group.rank() == 1) return;
    const Work first = group.all_reduce_async(zeros({7}));
    const Work second = group.all_reduce_async(zeros({8}));
    group.abort("interrupted");
    EXPECT_EQ(thrown_by([&] { first.wait(); }).text, "[rank 0 of 2] all_reduce #1 failed\n  rank 0: interrupted");
    second.wait();
  });
  EXPECT_EQ(thrown[0].text, "[rank 0 of 2] all_reduce #2: the group has already failed\n  rank 0: interrupted");
}

TEST(Abort, NewGroupOfSameRanksWorks) {
  const auto store = make_memory_store();
  ThreadRanks broken{.world_size = 3, .store = store, .name = "first"};
  run_all(broken, [](ProcessGroup& group) { group.abort("enough"); });
  ThreadRanks fresh{.world_size = 3, .store = store, .name = "second"};
  const auto thrown = run_all(fresh, [](ProcessGroup& group) {
    const Tensor x = full({70000}, 1);
    group.all_reduce(x);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(70000, 3));
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

TEST(RankFailure, AnnouncedFailureEndsPendingCollectives) {
  ThreadRanks ranks{.world_size = 3};
  std::atomic<int> waiting{0};
  const auto thrown = run_all(ranks, [&](ProcessGroup& group) {
    if (group.rank() == 2) {
      while (waiting.load() < 2) std::this_thread::yield();
      ranks.store->announce_failure(2, "killed by SIGKILL");
      return;
    }
    const Work work = group.all_reduce_async(zeros({9}));
    ++waiting;
    work.wait();
  });
  for (const int rank : {0, 1}) {
    const Thrown& t = thrown[static_cast<size_t>(rank)];
    EXPECT_EQ(t.text, str("[rank ", rank, " of 3] all_reduce #1 failed\n  rank 2: killed by SIGKILL"));
    EXPECT_EQ(t.peer, 2);
  }
}

TEST(RankFailure, FinishedCollectivesCompleteAfterRankLeaves) {
  // Rank 2 leaves after an all_reduce for which the others are not waiting yet.
  ThreadRanks ranks{.world_size = 3, .tuning = {.slot_bytes = 64, .chunk_bytes = 256, .slots = 3}};
  std::promise<void> left;
  std::shared_future<void> has_left = left.get_future().share();
  const auto thrown = run_all(ranks, [&](ProcessGroup& group) {
    const Tensor x = full({400}, 1);
    const Work work = group.all_reduce_async(x);
    if (group.rank() == 2) {
      work.wait();
      std::dynamic_pointer_cast<MemoryStore>(ranks.store)->leave(2);
      left.set_value();
      return;
    }
    has_left.wait();
    work.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(400, 3));
    group.barrier();
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(thrown[static_cast<size_t>(rank)].text,
              str("[rank ", rank, " of 3] barrier #2 failed\n  rank 2: left the job"));
  }
}

TEST(RankFailure, FinishedMessagesCompleteAfterRankLeaves) {
  const ThreadRanks ranks{};
  std::latch has_continuation(1), blocks(1), is_sent(1), has_left(1), is_over(1);
  const auto thrown = run_all(ranks, [&](ProcessGroup& group) {
    const Tensor x = full({3}, 1);
    if (group.rank() == 1) {
      has_continuation.wait();
      group.recv(x, 0);
      is_sent.wait();
      group.recv(x, 0);
      ranks.store->leave(1);
      return has_left.count_down();
    }
    // The worker is blocked, so that only this thread advances the group.
    group.isend(x, 1).then([&] {
      blocks.count_down();
      is_over.wait();
    });
    has_continuation.count_down();
    blocks.wait();
    const Work sent = group.isend(x, 1);
    group.progress();
    is_sent.count_down();
    has_left.wait();
    EXPECT_EQ(thrown_by([&] { group.barrier(); }).text, "[rank 0 of 2] barrier #1 failed\n  rank 1: left the job");
    EXPECT_EQ(thrown_by([&] { sent.wait(); }).text, "nothing");
    is_over.count_down();
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

TEST(ProcessGroupDestruction, FailsQueuedOperations) {
  Work work;
  const auto thrown = run_all({}, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      work = group.all_reduce_async(zeros({7}));
    } else {
      group.barrier();  // rank 0 destroys its group instead
    }
  });
  EXPECT_EQ(thrown_by([&] { work.wait(); }).text.find("[rank 0 of 2] all_reduce #1"), 0u);
  EXPECT_EQ(thrown[1].text.find("[rank 1 of 2] barrier #1"), 0u);
}

// --- wrong use ---

TEST(ArgumentChecks, InvalidArgumentsLeaveGroupUsable) {
  const auto thrown = run_all({}, [](ProcessGroup& group) {
    EXPECT_EQ(text_of<StateError>([&] { group.all_reduce({}); }), "all_reduce: tensor is undefined");
    EXPECT_EQ(text_of<DTypeError>([&] { group.all_reduce(zeros({3}, {kInt64}), ReduceOp::kAvg); }),
              "all_reduce: avg requires a floating-point dtype\n  tensor  int64 [3] on cpu");
    const Tensor one = zeros({1});
    EXPECT_EQ(
        text_of<ValueError>([&] { group.broadcast(make_view(one.storage(), kFloat32, {4}, {0}, 0), 0); }),
        "broadcast: tensor is expanded, so its elements share memory and cannot be written; pass a contiguous tensor\n"
        "  tensor  float32 [4] on cpu");
    EXPECT_EQ(text_of<ValueError>([&] { group.broadcast(one, 2); }), "broadcast: root 2 is not in [0, 2)");
    EXPECT_EQ(text_of<ShapeError>([&] {
                group.all_gather(zeros({3, 4}), zeros({4}));
              }),
              "all_gather: output must be [2, 4]\n  output  float32 [3, 4] on cpu\n  input   float32 [4] on cpu");
    EXPECT_EQ(text_of<DTypeError>([&] {
                group.all_gather(zeros({2, 4}), zeros({4}, {kInt32}));
              }),
              "all_gather: dtypes differ\n  output  float32 [2, 4] on cpu\n  input   int32 [4] on cpu");
    group.barrier();
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

TEST(ProcessGroupCreation, InvalidOptionsAreRejected) {
  EXPECT_EQ(text_of<ValueError>([] { ProcessGroup::create({.store = nullptr, .rank = 2, .world_size = 2}); }),
            "ProcessGroup: rank 2 is not in [0, 2)");
  EXPECT_EQ(text_of<StateError>([] { ProcessGroup::create({.store = nullptr, .rank = 0, .world_size = 2}); }),
            "ProcessGroup: store is null, but world_size is 2; pass a store that all ranks share");
}

}}}}  // namespace tandem::v0::distributed

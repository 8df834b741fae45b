// Point-to-point messages between thread ranks.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

// So small that messages of a few hundred elements need many chunks.
constexpr shm::Tuning kTinyPieces{
    .slot_bytes = 64, .chunk_bytes = 128, .slots = 3, .small_bytes = 64, .piece_bytes = 64, .pieces = 2};

constexpr int64_t kSizes[] = {0, 1, 7, 31, 33, 1000};

Tensor message(int from, int64_t n, DType dtype = kFloat32) { return input_of(from, n, ReduceOp::kSum, dtype); }

int count_wrong_message(const Tensor& got, int from) {
  return count_wrong(got, [&](int64_t i) { return value(from, i, ReduceOp::kSum, got.dtype()); });
}

ThreadRanks ranks_of(const Setting& setting) {
  const auto& [world_size, backend, hosts] = setting;
  return {.world_size = world_size, .tuning = kTinyPieces, .backend = backend, .hosts = hosts};
}

class PointToPoint : public ::testing::TestWithParam<Setting> {
 protected:
  static void run(const std::function<void(ProcessGroup&)>& f) { ranks_of(GetParam()).run(f); }
};
INSTANTIATE_TEST_SUITE_P(Each, PointToPoint,
                         ::testing::Values(Setting{2}, Setting{3}, Setting{4}, Setting{7}, Setting{2, "gloo"},
                                           Setting{3, "gloo"}, Setting{4, "gloo"}, Setting{7, "gloo"},
                                           Setting{4, "auto", "aabb"}, Setting{3, "auto", "aba"}),
                         setting_name);

TEST_P(PointToPoint, RingDeliversEveryDtypeAndSize) {
  run([](ProcessGroup& g) {
    const int next = (g.rank() + 1) % g.size();
    const int previous = (g.rank() + g.size() - 1) % g.size();
    for (const DType dtype : kDTypes) {
      for (const int64_t n : kSizes) {
        const Tensor out = message(g.rank(), n, dtype);
        const Tensor in = full({n}, 1, {dtype});
        if (g.rank() % 2 == 0) {
          g.send(out, next);
          g.recv(in, previous);
        } else {
          g.recv(in, previous);
          g.send(out, next);
        }
        EXPECT_EQ(count_wrong_message(in, previous), 0) << dtype << " " << n;
        EXPECT_EQ(in.version(), 1u);
        EXPECT_EQ(out.version(), 0u);
      }
    }
  });
}

TEST_P(PointToPoint, AllPairsExchangeConcurrently) {
  run([](ProcessGroup& g) {
    const int n = g.size();
    std::vector<P2POp> ops;
    for (int k = 1; k < n; ++k) {
      const int to = (g.rank() + k * (n - 1)) % n;  // a different order on each rank
      ops.push_back({P2POp::Kind::kSend, message(g.rank() + to, 100 * to + 3), to, 5});
      const int from = (g.rank() + k) % n;
      ops.push_back({P2POp::Kind::kRecv, zeros({100 * g.rank() + 3}), from, 5});
    }
    const std::vector<Work> works = g.batch_isend_irecv(ops);
    ASSERT_EQ(works.size(), ops.size());
    for (const Work& work : works) work.wait();
    for (const P2POp& op : ops) {
      if (op.kind == P2POp::Kind::kRecv) {
        EXPECT_EQ(count_wrong_message(op.tensor, op.peer + g.rank()), 0);
      }
    }
  });
}

// --- between ranks 0 and 1 ---

class SendRecv : public ::testing::TestWithParam<Setting> {
 protected:
  static void run(const std::function<void(ProcessGroup&)>& f) {
    ranks_of(GetParam()).run([&](ProcessGroup& g) {
      if (g.rank() < 2) f(g);
    });
  }
  /// The other ranks take part in one all_reduce.
  static void run_with_a_sum(const std::function<void(ProcessGroup&)>& f) {
    ranks_of(GetParam()).run([&](ProcessGroup& g) { g.rank() < 2 ? f(g) : g.all_reduce(full({3000}, 1)); });
  }
};
INSTANTIATE_TEST_SUITE_P(Each, SendRecv, ::testing::Values(Setting{2}, Setting{2, "gloo"}, Setting{3, "auto", "aba"}),
                         setting_name);

TEST_P(SendRecv, OrderIsKeptPerTagOnly) {
  run([](ProcessGroup& g) {
    constexpr int kCount = 40;
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCount; ++i) {
      // The receiver uses the reverse order of tags.
      const int tag = g.rank() == 0 ? i / (kCount / 2) : 1 - i / (kCount / 2);
      const int number = g.rank() == 0 ? i : (i + kCount / 2) % kCount;
      const int64_t n = 1 + 13 * number;
      tensors.push_back(g.rank() == 0 ? message(number, n) : zeros({n}));
      works.push_back(g.rank() == 0 ? g.isend(tensors.back(), 1, tag) : g.irecv(tensors.back(), 0, tag));
    }
    for (const Work& work : works) work.wait();
    if (g.rank() == 0) return;
    for (int i = 0; i < kCount; ++i) {
      EXPECT_EQ(count_wrong_message(tensors[static_cast<size_t>(i)], (i + kCount / 2) % kCount), 0);
    }
  });
}

TEST_P(SendRecv, GapsOfStridedTensorsAreUnchanged) {
  run([](ProcessGroup& g) {
    const Tensor base = arange(0, 600);
    const Tensor transposed = make_view(base.storage(), kInt64, {20, 15}, {1, 40}, 0);  // without columns 20..39
    if (g.rank() == 0) {
      g.send(transposed, 1, 3);
      g.send(make_view(base.storage(), kInt64, {50}, {0}, 7), 1, 3);  // expanded
    } else {
      primitives::fill(base, -1);
      g.recv(transposed, 0, 3);
      EXPECT_EQ(count_wrong(base, [](int64_t i) { return i % 40 < 20 ? i : -1; }), 0);
      const Tensor same = zeros({50}, {kInt64});
      g.recv(same, 0, 3);
      EXPECT_EQ(count_wrong(same, [](int64_t) { return 7; }), 0);
    }
  });
}

TEST_P(SendRecv, CompletesWhileCollectiveIsPending) {
  run_with_a_sum([](ProcessGroup& g) {
    const Tensor sum = full({3000}, 1);
    const Tensor note = g.rank() == 0 ? message(0, 500) : zeros({500});
    if (g.rank() == 0) {
      const Work work = g.all_reduce_async(sum);  // rank 1 joins only after it has received the message
      g.send(note, 1);
      EXPECT_FALSE(work.is_completed());
      g.send(note, 1, 1);
      work.wait();
    } else {
      g.recv(note, 0);
      g.recv(note, 0, 1);
      EXPECT_EQ(count_wrong_message(note, 0), 0);
      g.all_reduce(sum);
    }
    EXPECT_EQ(count_wrong(sum, [&](int64_t) { return g.size(); }), 0);
  });
}

TEST_P(SendRecv, CompletesWhileAnotherThreadAwaitsCollective) {
  run_with_a_sum([](ProcessGroup& g) {
    const Tensor sum = full({3000}, 1);
    const Tensor note = g.rank() == 0 ? message(0, 500) : zeros({500});
    if (g.rank() == 0) {
      std::thread waiter([&] { g.all_reduce(sum); });
      g.send(note, 1);
      waiter.join();
    } else {
      g.recv(note, 0);
      g.all_reduce(sum);
    }
    EXPECT_EQ(count_wrong(sum, [&](int64_t) { return g.size(); }), 0);
  });
}

TEST_P(SendRecv, CollectiveCompletesWhileAnotherThreadReceives) {
  run_with_a_sum([](ProcessGroup& g) {
    const Tensor sum = full({3000}, 1);
    const Tensor note = g.rank() == 0 ? message(0, 500) : zeros({500});
    if (g.rank() == 0) {
      g.all_reduce(sum);
      g.send(note, 1);
    } else {
      std::thread waiter([&] { g.recv(note, 0); });
      g.all_reduce(sum);
      waiter.join();
      EXPECT_EQ(count_wrong_message(note, 0), 0);
    }
  });
}

TEST_P(SendRecv, CompletesWithoutWaitAndByProgressAlone) {
  run([](ProcessGroup& g) {
    const Tensor note = g.rank() == 0 ? message(0, 500) : zeros({500});
    std::promise<void> done;
    const Work work = g.rank() == 0 ? g.isend(note, 1) : g.irecv(note, 0);
    work.then([&] { done.set_value(); });
    done.get_future().wait();
    EXPECT_TRUE(work.is_completed());
    const Work again = g.rank() == 0 ? g.isend(note, 1) : g.irecv(note, 0);
    while (g.progress()) std::this_thread::yield();
    again.wait();
    if (g.rank() == 1) {
      EXPECT_EQ(count_wrong_message(note, 0), 0);
    }
  });
}

TEST(PointToPointTrace, RecordsNamesAndByteCounts) {
  start_trace();
  ThreadRanks ranks{.world_size = 2};
  ranks.run([](ProcessGroup& g) {
    const Tensor note = zeros({500});
    if (g.rank() == 0) {
      g.send(note, 1);
      g.isend(note, 1, 2, {.name = "weights"}).wait();
    } else {
      g.recv(note, 0);
      g.recv(note, 0, 2, {.name = "weights"});
    }
  });
  std::multiset<std::string> names;
  for (const TraceEvent& event : stop_trace()) {
    if (event.category != "comm") continue;
    names.insert(event.name);
    EXPECT_EQ(event.num_bytes, event.name == "launch weights" ? 0 : 2000);
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"launch weights", "recv", "send", "weights", "weights"}));
}

// --- failures ---

class PointToPointFailure : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Each, PointToPointFailure, ::testing::Values(Setting{2}, Setting{2, "gloo"}), setting_name);

TEST_P(PointToPointFailure, MismatchShowsBothCallsAndFailsOtherOperations) {
  for (const int64_t n : {5, 5000}) {
    const auto here = std::source_location::current();
    ThreadRanks ranks = ranks_of(GetParam());
    ranks.ranks = {3, 8};
    const auto thrown = run_all(ranks, [&](ProcessGroup& g) {
      const Tensor x = full({n, 2 + g.rank()}, 1.5);
      const Work other = g.rank() == 0 ? g.irecv(zeros({4}), 1, 9) : g.irecv(zeros({4}), 0, 9);
      const Thrown t = thrown_by([&] {
        if (g.rank() == 0) {
          g.send(x, 1, 7, {.name = "note", .where = here});
        } else {
          g.recv(x, 0, 7, {.name = "note", .where = here});
        }
      });
      EXPECT_EQ(count_wrong(x, [](int64_t) { return 1.5; }), 0);
      const int own = g.rank() == 0 ? 3 : 8;
      const int peer = g.rank() == 0 ? 8 : 3;
      const std::string reason =
          str("calls do not match across ranks\n", "  rank 3  send float32 [", n, ", 2] to rank 8 tag 7, 'note', ",
              place(here), "\n", "  rank 8  recv float32 [", n, ", 3] from rank 3 tag 7, 'note', ", place(here));
      const std::string title = g.rank() == 0 ? "send to rank 8 tag 7" : "recv from rank 3 tag 7";
      EXPECT_EQ(t.text, str("[rank ", own, ", group 'default'] ", title, ": ", reason));
      EXPECT_EQ(t.rank, own);
      EXPECT_EQ(t.peer, peer);
      EXPECT_EQ(t.seq, -1);
      EXPECT_EQ(thrown_by([&] { other.wait(); }).text, str("[rank ", own, ", group 'default'] recv from rank ", peer,
                                                           " tag 9 failed\n  rank ", peer, ": ", reason));
      g.barrier();
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_NE(thrown[static_cast<size_t>(rank)].text.find("barrier #1: the group has already failed\n  rank "),
                std::string::npos);
    }
  }
}

TEST_P(PointToPointFailure, TimeoutNamesPeer) {
  ThreadRanks ranks = ranks_of(GetParam());
  ranks.world_size = 3;
  std::promise<void> timed_out;
  std::shared_future<void> waited = timed_out.get_future().share();
  const auto thrown = run_all(ranks, [&](ProcessGroup& g) {
    if (g.rank() != 0) {
      waited.wait();
      g.send(zeros({4}), 0);
      return;
    }
    const Thrown t = thrown_by([&] {
      g.recv(zeros({4, 2}), 2, 7, {.name = "note", .timeout = std::chrono::milliseconds(120)});
    });
    timed_out.set_value();
    throw CommError(t.text, t.rank, t.peer, t.seq);
  });
  EXPECT_EQ(thrown[0].text,
            str("[rank 0 of 3] recv from rank 2 tag 7 timed out after 0.1 s\n  note, 8 float32 (32 B), ",
                ranks.backend.empty() ? "shm" : ranks.backend, "\n  rank 2 (has started nothing yet)"));
  EXPECT_EQ(thrown[0].peer, 2);
  EXPECT_EQ(thrown[1].text,
            "[rank 1 of 3] send to rank 0 tag 0 failed\n"
            "  rank 0: recv from rank 2 tag 7 timed out after 0.1 s; rank 2 (has started nothing yet)");
}

TEST_P(PointToPointFailure, AbortFailsPendingAndLaterOperations) {
  const auto thrown = run_all(ranks_of(GetParam()), [](ProcessGroup& g) {
    if (g.rank() == 1) return g.abort("loss is NaN");
    const std::vector<Work> works =
        g.batch_isend_irecv({{P2POp::Kind::kSend, zeros({100000}), 1, 0}, {P2POp::Kind::kRecv, zeros({1}), 1, 4}});
    EXPECT_EQ(thrown_by([&] { works[0].wait(); }).text,
              "[rank 0 of 2] send to rank 1 tag 0 failed\n  rank 1: loss is NaN");
    EXPECT_EQ(thrown_by([&] { works[1].wait(); }).text,
              "[rank 0 of 2] recv from rank 1 tag 4 failed\n  rank 1: loss is NaN");
    g.send(zeros({3}), 1);
  });
  EXPECT_EQ(thrown[0].text, "[rank 0 of 2] send to rank 1 tag 0: the group has already failed\n  rank 1: loss is NaN");
}

TEST_P(PointToPointFailure, DestroyingGroupFailsPendingOperations) {
  Work work;
  run_all(ranks_of(GetParam()), [&](ProcessGroup& g) {
    if (g.rank() == 0) work = g.irecv(zeros({7}), 1);
    if (g.rank() == 1) {
      EXPECT_NE(thrown_by([&] { g.recv(zeros({7}), 0); }).text, "nothing");
    }
  });
  EXPECT_EQ(thrown_by([&] { work.wait(); }).text,
            "[rank 0 of 2] recv from rank 1 tag 0 failed\n"
            "  rank 0: destroyed its group while 1 operation was queued");
}

TEST(PointToPointArguments, InvalidArgumentsLeaveGroupUsable) {
  const auto thrown = run_all({.world_size = 2}, [](ProcessGroup& g) {
    const Tensor x = zeros({3});
    const int self = g.rank();
    EXPECT_EQ(text_of<ValueError>([&] { g.send(x, self); }), str("send: dst ", self, " is the calling rank"));
    EXPECT_EQ(text_of<ValueError>([&] { g.recv(x, self); }), str("recv: src ", self, " is the calling rank"));
    EXPECT_EQ(text_of<ValueError>([&] { (void)g.isend(x, 2); }), "isend: dst 2 is not in [0, 2)");
    EXPECT_EQ(text_of<ValueError>([&] { (void)g.irecv(x, -1); }), "irecv: src -1 is not in [0, 2)");
    EXPECT_EQ(text_of<ValueError>([&] { g.send(x, 1 - self, -3); }), "send: tag -3 is negative");
    EXPECT_EQ(text_of<StateError>([&] { g.recv({}, 1 - self); }), "recv: tensor is undefined");
    const Tensor expanded = make_view(x.storage(), kFloat32, {4}, {0}, 0);
    EXPECT_EQ(text_of<ValueError>([&] { g.recv(expanded, 1 - self); }),
              "recv: tensor is expanded, so its elements share memory and cannot be written; pass a contiguous tensor\n"
              "  tensor  float32 [4] on cpu");
    EXPECT_EQ(text_of<ValueError>([&] {
                (void)g.batch_isend_irecv({{P2POp::Kind::kSend, x, 1 - self, 0}, {P2POp::Kind::kRecv, x, self, 0}});
              }),
              str("batch_isend_irecv: ops[1]: src ", self, " is the calling rank"));
    EXPECT_TRUE(g.batch_isend_irecv({}).empty());
    EXPECT_EQ(x.version(), 0u);
    g.barrier();
  });
  for (const Thrown& t : thrown) EXPECT_EQ(t.text, "nothing");
}

}}}}  // namespace tandem::v0::distributed

// Ranks call different operations, throw or leave in the middle of each kind of collective over gloo.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <set>
#include <string>
#include <vector>

#include <tandem/distributed/backends/gloo/gloo_backend.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
#include <tandem/tests/support/sanitizers.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
namespace gl = td::distributed::gloo;
using Kind = CollectiveKind;
using Clock = std::chrono::steady_clock;

constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kReduce,        Kind::kBroadcast, Kind::kGather, Kind::kAllGather,
                           Kind::kScatter,   Kind::kReduceScatter, Kind::kAllToAll,  Kind::kBarrier};

MakeBackend gloo_backend() {
  return [](const ProcessGroupOptions& options) { return gl::make_gloo_backend(options); };
}

/// A collective of the given kind with its buffers.
struct Call {
  Call(Kind kind, int size, int64_t count)
      : input(static_cast<size_t>(count * size), 1.0f), output(static_cast<size_t>(count * size)) {
    collective.kind = kind;
    collective.seq = 1;
    collective.dtype = td::kFloat32;
    collective.num_elements = kind == Kind::kAllToAll || kind == Kind::kBarrier ? 0 : count;
    if (kind == Kind::kAllGather) collective.num_elements = count * size;
    const bool rooted =
        kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather || kind == Kind::kScatter;
    if (rooted) collective.root = 0;
    collective.shape = {count};
    collective.name = "x";
    collective.input = reinterpret_cast<std::byte*>(input.data());
    collective.output = reinterpret_cast<std::byte*>(output.data());
    if (kind == Kind::kBroadcast) collective.output = reinterpret_cast<std::byte*>(input.data());
    for (int r = 0; r < size; ++r) {
      collective.inputs.push_back({reinterpret_cast<std::byte*>(input.data() + r * count), count, {count}});
      collective.outputs.push_back({reinterpret_cast<std::byte*>(output.data() + r * count), count, {count}});
    }
  }
  Call(const Call&) = default;
  Call& operator=(Call&&) = default;  // moving keeps the addresses of the buffers

  std::vector<float> input;
  std::vector<float> output;
  Collective collective;
};

TEST(GlooFailure, MismatchReportsBothSidesOnAllRanks) {
  for (const Kind kind : kKinds) {
    const std::vector<std::string> errors = try_backend_ranks(3, gloo_backend(), [&](Backend& backend, int rank) {
      Call call(kind, 3, 40000);
      if (rank == 1) call.collective.name_hash = 7;
      if (rank == 1) call.collective.name = "y";
      run_collective(backend, call.collective);
    });
    for (const std::string& error : errors) {
      // Detected by this rank, or by another rank that notified it.
      EXPECT_NE(error.find(": calls do not match across ranks\n  rank "), std::string::npos) << error;
      EXPECT_NE(error.find("'x'"), std::string::npos) << error;
      EXPECT_NE(error.find("\n  rank 1  "), std::string::npos) << error;
      EXPECT_NE(error.find("'y'"), std::string::npos) << error;
    }
  }
}

TEST(GlooFailure, AllToAllSizeMismatchReportsBothSides) {
  const std::vector<std::string> errors = try_backend_ranks(4, gloo_backend(), [&](Backend& backend, int rank) {
    Call call(Kind::kAllToAll, 4, 30);
    if (rank == 2) call.collective.inputs[1] = {call.collective.inputs[1].data, 29, {29}};
    run_collective(backend, call.collective);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(": calls do not match across ranks\n  rank 1  expects float32 [30] from rank 2: all_to_all "),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("\n  rank 2  sends float32 [29] to rank 1: all_to_all "), std::string::npos) << error;
  }
}

TEST(GlooFailure, ThrowingRankIsReportedPromptlyOnAllOthers) {
  for (const Kind kind : kKinds) {
    for (const int64_t count : {5, 400000}) {
      const auto took = notification_time([&] {
        std::vector<Clock::time_point> ends(3);
        Clock::time_point thrown;
        const std::vector<std::string> errors = try_backend_ranks(3, gloo_backend(), [&](Backend& backend, int rank) {
          if (rank == 2) {
            thrown = Clock::now();
            throw td::StateError("no disk");
          }
          Call call(kind, 3, count);
          try {
            run_collective(backend, call.collective);
          } catch (...) {
            ends[static_cast<size_t>(rank)] = Clock::now();
            throw;
          }
        });
        EXPECT_EQ(errors[0], " failed\n  rank 2: no disk");
        EXPECT_EQ(errors[1], " failed\n  rank 2: no disk");
        return std::max(ends[0], ends[1]) - thrown;
      });
      EXPECT_LT(took, kNotifiedWithin);
    }
  }
}

TEST(GlooFailure, RankFailingDuringLargeExchangeIsReported) {
  // Its signature matched, so the others transfer data when it leaves.
  constexpr int64_t kCount = td::testing::kThreadSanitizer ? 1000000 : 4000000;
  for (const Kind kind : kKinds) {
    if (kind == Kind::kBarrier) continue;
    std::vector<Call> calls(3, Call(kind, 3, 0));  // outlive the backends' use of the buffers
    const std::vector<std::string> errors = try_backend_ranks(3, gloo_backend(), [&](Backend& backend, int rank) {
      Call& call = calls[static_cast<size_t>(rank)];
      call = Call(kind, 3, kCount);
      if (rank == 0) {
        backend.do_start(call.collective);
        for (int i = 0; i < 20; ++i)
          backend.do_sleep([&] { return backend.do_advance() != Advance::kIdle; },
                           Clock::now() + std::chrono::milliseconds(100));
        throw td::StateError("no disk");
      }
      run_collective(backend, call.collective);
    });
    // A rank that needs no more data may have completed.
    for (const int rank : {1, 2}) {
      const std::string& error = errors[static_cast<size_t>(rank)];
      EXPECT_TRUE(error.empty() || error == " failed\n  rank 0: no disk") << to_string(kind) << error;
    }
  }
}

TEST(GlooFailure, RankLeavingWithoutErrorIsReported) {
  const std::vector<std::string> errors = try_backend_ranks(3, gloo_backend(), [&](Backend& backend, int rank) {
    if (rank == 1) return;
    Call call(Kind::kAllReduce, 3, 100000);
    run_collective(backend, call.collective);
  });
  EXPECT_EQ(errors[0], " failed\n  rank 1: left the group");
  EXPECT_EQ(errors[2], " failed\n  rank 1: left the group");
}

TEST(GlooFailure, RankThatLeftTheStoreStillNotifiesPeers) {
  // The rank waits only briefly until this is written; a loaded machine may be too slow.
  constexpr int kTimes = 8;
  int notified = 0;
  for (int i = 0; i < kTimes; ++i) {
    const std::vector<std::string> errors = try_backend_ranks(2, gloo_backend(), [&](Backend& backend, int rank) {
      if (rank == 0) return backend.do_notify_failure(-1, "rank 0 has left the job");
      float x[3];
      std::vector<P2pRequest> transfers(1);  // sends nothing, so it detects nothing by itself
      transfers[0].num_elements = 3;
      transfers[0].data = reinterpret_cast<std::byte*>(x);
      transfers[0].seq = 1;
      transfers[0].shape = {3};
      run_transfers(backend, transfers);
    });
    notified += errors[1] == " failed\n  rank 0: left the group";
  }
  EXPECT_GE(notified, kTimes - 2);
}

TEST(GlooFailure, AwaitedRanksAreIdentifiedDuringCollectives) {
  for (const Kind kind :
       {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll}) {
    std::latch looked(3);
    const std::vector<std::string> errors = try_backend_ranks(3, gloo_backend(), [&](Backend& backend, int rank) {
      Call call(kind, 3, 40000);
      if (kind == Kind::kBroadcast) call.collective.root = 2;
      backend.do_start(call.collective);
      const std::vector<int> wanted = {2};  // it starts the collective and then does nothing
      std::vector<int> awaited;
      const auto deadline = Clock::now() + std::chrono::seconds(60);
      while (rank != 2 && awaited != wanted && Clock::now() < deadline) {
        backend.do_sleep([&] { return backend.do_advance() != Advance::kIdle; },
                         Clock::now() + std::chrono::milliseconds(10));
        awaited = backend.do_awaited();
      }
      looked.arrive_and_wait();
      backend.do_abort(rank, "has seen it");
      if (rank != 2) {
        EXPECT_EQ(awaited, wanted) << to_string(kind);
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

/// The TCP connections of this process.
std::set<int> connections() {
  std::set<int> found;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.ss_family == AF_INET) found.insert(fd);
  }
  return found;
}

TEST(GlooFailure, ConnectionShutdownInAnyDirectionFailsGroup) {
  for (const int how : {SHUT_WR, SHUT_RD, SHUT_RDWR}) {
    const auto took = notification_time([&] {
      const std::set<int> before = connections();
      const ThreadRanks ranks{.world_size = 2, .backend = "gloo"};
      Clock::time_point closed;
      std::vector<Clock::time_point> ends(2);
      const std::vector<Thrown> thrown = run_all(ranks, [&](ProcessGroup& group) {
        const td::Tensor x = td::full({100000}, 1);
        group.all_reduce(x);
        group.barrier();
        if (group.rank() == 0) {
          closed = Clock::now();
          for (const int fd : connections()) {
            if (before.count(fd) > 0) continue;
            shutdown(fd, how);  // this process owns both ends; closes one
            break;
          }
        }
        try {
          group.all_reduce(x);
          group.all_reduce(x);
        } catch (...) {
          ends[static_cast<size_t>(group.rank())] = Clock::now();
          throw;
        }
      });
      for (const Thrown& error : thrown) {
        EXPECT_NE(error.text.find(" failed\n  rank "), std::string::npos) << error.text;
        EXPECT_NE(error.text.find(": died (its connection closed)"), std::string::npos) << error.text;
      }
      EXPECT_LT(Clock::now() - closed, std::chrono::seconds(5));  // includes goodbyes that are not received
      return std::max(ends[0], ends[1]) - closed;
    });
    EXPECT_LT(took, kNotifiedWithin);
  }
}

}  // namespace

// Ranks of the network backend that leave or do not continue, and connections that close, in the middle of operations.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <set>
#include <string>
#include <vector>

#include <tandem/distributed/backends/network/connection.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using Kind = CollectiveKind;
using Clock = std::chrono::steady_clock;

MakeBackend network_backend() {
  return [](const ProcessGroupOptions& options) { return network::make_network_backend(options); };
}

/// A collective of three ranks with its buffers.
struct Call {
  explicit Call(Kind kind) : input(3 * kCount, 1.0f), output(3 * kCount) {
    const auto bytes = [](std::vector<float>& values, int64_t begin) {
      return reinterpret_cast<std::byte*>(values.data() + begin);
    };
    collective.kind = kind;
    collective.seq = 1;
    collective.num_elements = kind == Kind::kAllToAll ? 0 : kind == Kind::kAllGather ? 3 * kCount : kCount;
    if (kind == Kind::kBroadcast) collective.root = 2;
    collective.input = bytes(input, 0);
    collective.output = bytes(kind == Kind::kBroadcast ? input : output, 0);
    for (int r = 0; r < 3; ++r) {
      collective.inputs.push_back({bytes(input, r * kCount), kCount, {kCount}});
      collective.outputs.push_back({bytes(output, r * kCount), kCount, {kCount}});
    }
  }

  static constexpr int64_t kCount = 40000;
  std::vector<float> input, output;
  Collective collective;
};

TEST(NetworkFailure, RankThatLeftTheStoreStillNotifiesPeers) {
  // The rank waits only briefly until this is written; a loaded machine may be too slow.
  constexpr int kTimes = 8;
  int notified = 0;
  for (int i = 0; i < kTimes; ++i) {
    const std::vector<std::string> errors =
        try_backend_ranks(2, network_backend(), [&](RankBackend& backend, int rank) {
          if (rank == 0) return backend.note_end(-1, "rank 0 has left the job");
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

TEST(NetworkFailure, AwaitedRanksAreIdentifiedDuringCollectives) {
  for (const Kind kind :
       {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll}) {
    std::latch looked(3);
    const std::vector<std::string> errors =
        try_backend_ranks(3, network_backend(), [&](RankBackend& backend, int rank) {
          Call call(kind);
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
          backend.fail(rank, "has seen it");
          if (rank != 2) {
            EXPECT_EQ(awaited, wanted) << to_string(kind);
          }
        });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(NetworkFailure, GoodbyeBehindUnwantedDataIsReadIfWritingFails) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  network::Connection a(FileDescriptor(ends[0]), 1, {}, 1000);
  network::Connection b(FileDescriptor(ends[1]), 0, {}, 1000);
  const std::vector<std::byte> data(1000);
  ASSERT_EQ(a.try_send_data(data.data(), 1000, 7, 0, 0), 1u);  // without memory for it
  a.cancel();
  std::vector<network::Frame> frames;
  b.receive(frames);
  EXPECT_EQ(b.ended(), "");
  shutdown(ends[1], SHUT_WR);
  b.send(network::FrameType::kSignature);
  b.receive(frames);
  EXPECT_EQ(b.ended(), "left the group");
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

TEST(NetworkFailure, ConnectionShutdownInAnyDirectionFailsGroup) {
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
          for (int i = 0; i < 100; ++i) group.all_reduce(x);  // data may still arrive for a moment
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

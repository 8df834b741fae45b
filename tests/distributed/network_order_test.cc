// The network backend's reads in their most adverse order: while it is between the frames and the failures of other
// ranks, a peer finishes its operation and leaves.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/backends/network/mesh.h>
#include <tandem/distributed/backends/network/messages.h>
#include <tandem/tests/distributed/backend_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

/// Called once, on the thread that sets it, when that thread has found no frame.
thread_local std::function<void()> on_empty_inbox;

/// Ranks that the calling thread addresses, and to which it sends no data.
thread_local int addressed = -1;
thread_local int refused = -1;

/// Adds no members, so each Connection can be used as one.
class HookedConnection : public Connection {
 public:
  template <class... Args>
  uint64_t try_send_data(const Args&... args) {
    return addressed == refused ? 0 : Connection::try_send_data(args...);
  }
};

/// Frames that arrive during on_empty_inbox are returned by the next take().
class HookedMesh : public Mesh {
 public:
  using Mesh::Mesh;

  HookedConnection& link(int peer) {
    addressed = peer;
    return static_cast<HookedConnection&>(Mesh::link(peer));
  }

  void take(std::vector<Frame>& frames, bool) {
    Mesh::take(late_, false);
    frames = std::exchange(late_, {});
    if (!frames.empty() || on_empty_inbox == nullptr) return;
    std::exchange(on_empty_inbox, nullptr)();
    while (late_.empty()) {
      sleep([&] { return Mesh::take(late_, false), !late_.empty(); }, Mesh::Clock::now() + std::chrono::minutes(1));
    }
  }

 private:
  std::vector<Frame> late_;
};

}}}  // namespace tandem::v0::distributed::network

// A second copy of the backend, over HookedMesh.
#define Connection HookedConnection
#define Mesh HookedMesh
#define NetworkBackend HookedNetworkBackend
#define make_network_backend make_hooked_network_backend
#include <tandem/distributed/backends/network/network_backend.cc>
#include <tandem/distributed/backends/network/plan.cc>
#include <tandem/distributed/backends/network/streams.cc>
#undef Connection
#undef Mesh
#undef NetworkBackend
#undef make_network_backend

namespace tandem { inline namespace v0 { namespace distributed { namespace {

TEST(NetworkOrder, OperationsCompletedByLeavingRankComplete) {
  for (const bool is_message : {false, true}) {
    std::latch is_between(1);
    run_backend_ranks(
        2, [](const ProcessGroupOptions& options) { return network::make_hooked_network_backend(options); },
        [&](RankBackend& backend, int rank) {
          Collective barrier;
          barrier.seq = 1;
          float value = 0;
          std::vector<P2pRequest> message(1);
          message[0].sends = rank == 1;
          message[0].peer = 1 - rank;
          message[0].num_elements = 1;
          message[0].data = reinterpret_cast<std::byte*>(&value);
          message[0].shape = {1};
          if (rank == 0) {
            is_between.wait();
          } else {
            network::on_empty_inbox = [&] {
              is_between.count_down();
              backend.note_end(0, "left the job");
            };
          }
          is_message ? run_transfers(backend, message) : run_collective(backend, barrier);
        });
  }
}

// Rank 0 has sent more than rank 1 receives before it reduces, and leaves. What rank 1 has not received is in its
// buffers, or, with large chunks, also in those of rank 0. Only then does rank 2 send to rank 1.
TEST(NetworkOrder, ReductionsCompletedByLeavingRankComplete) {
  for (const bool is_large : {false, true}) {
    const int64_t chunk = is_large ? 32 << 10 : 4 << 10;
    const int64_t n = 3 * 5 * chunk / 4;  // slices of 5 chunks; 4 are received before they are reduced
    std::latch is_complete(1);
    std::latch has_waited(1);
    std::vector<float> sum(static_cast<size_t>(n));
    run_backend_ranks(
        3,
        [&](const ProcessGroupOptions& options) {
          return network::make_hooked_network_backend(options, {.chunk_bytes = is_large ? 256 << 10 : chunk});
        },
        [&](RankBackend& backend, int rank) {
          const std::vector<float> values(sum.size(), static_cast<float>(rank + 1));
          Collective reduce;
          reduce.seq = 1;
          reduce.kind = CollectiveKind::kReduce;
          reduce.root = 1;
          reduce.num_elements = n;
          reduce.input = reinterpret_cast<const std::byte*>(values.data());
          reduce.output = reinterpret_cast<std::byte*>(sum.data());
          network::refused = rank == 2 ? 1 : -1;
          backend.do_start(reduce);
          if (rank == 1) {
            while (!is_complete.try_wait()) backend.do_advance();
            const auto advance_for = [&](std::chrono::milliseconds time) {
              for (const auto until = Backend::Clock::now() + time; Backend::Clock::now() < until;)
                backend.do_advance();
            };
            advance_for(std::chrono::seconds(1));  // the end of a connection is known after 0.5 s
            if (is_large) backend.note_end(0, "left the job");
            advance_for(std::chrono::milliseconds(700));
            has_waited.count_down();
          }
          while (rank == 2 && !has_waited.try_wait()) backend.do_advance();
          network::refused = -1;
          finish_collective(backend);
          if (rank == 0) is_complete.count_down();
        });
    EXPECT_EQ(sum, std::vector<float>(sum.size(), 6)) << is_large;
  }
}

}}}}  // namespace tandem::v0::distributed

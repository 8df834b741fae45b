// The network backend's reads in their most adverse order: while it is between the frames and the failures of other
// ranks, a peer finishes its operation and leaves.
#include <gtest/gtest.h>

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

/// Frames that arrive during on_empty_inbox are returned by the next take().
class HookedMesh : public Mesh {
 public:
  using Mesh::Mesh;

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
#define Mesh HookedMesh
#define NetworkBackend HookedNetworkBackend
#define make_network_backend make_hooked_network_backend
#include <tandem/distributed/backends/network/network_backend.cc>
#include <tandem/distributed/backends/network/plan.cc>
#include <tandem/distributed/backends/network/streams.cc>
#undef Mesh
#undef NetworkBackend
#undef make_network_backend

namespace tandem { inline namespace v0 { namespace distributed { namespace {

TEST(NetworkOrder, OperationsCompletedByLeavingRankComplete) {
  for (const bool is_message : {false, true}) {
    std::latch is_between(1);
    run_backend_ranks(
        2, [](const ProcessGroupOptions& options) { return network::make_hooked_network_backend(options); },
        [&](Backend& backend, int rank) {
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
              backend.do_notify_failure(0, "left the job");
            };
          }
          is_message ? run_transfers(backend, message) : run_collective(backend, barrier);
        });
  }
}

}}}}  // namespace tandem::v0::distributed

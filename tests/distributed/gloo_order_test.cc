// The gloo backend's reads in their most adverse order: while it is between the frames and the failures of other ranks,
// a peer finishes its operation and leaves.
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/backends/gloo/mesh.h>
#include <tandem/distributed/backends/gloo/messages.h>
#include <tandem/tests/distributed/backend_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

/// Called once, on the thread that sets it, when that thread has found no frame.
thread_local std::function<void()> on_empty_inbox;

/// Frames that arrive during on_empty_inbox are returned by the next take().
class HookedMesh {
 public:
  HookedMesh(const ProcessGroupOptions& options, const Tuning& tuning) : mesh_(options, tuning) {}
  operator Mesh&() { return mesh_; }
  Link& link(int peer) { return mesh_.link(peer); }
  HostLayout hosts() const { return mesh_.hosts(); }
  const std::string& interface_name() const { return mesh_.interface_name(); }
  std::optional<std::string> lost(int peer) const { return mesh_.lost(peer); }
  void poison(const std::string& payload) { mesh_.poison(payload); }
  void sleep(FunctionRef<bool()> changed, Mesh::Clock::time_point until) { mesh_.sleep(changed, until); }
  void wake() { mesh_.wake(); }
  void notify(const std::function<void()>& f) { mesh_.notify(f); }
  void expect_nothing_of(int job_rank) { mesh_.expect_nothing_of(job_rank); }

  void take(std::vector<Frame>& frames) {
    mesh_.take(late_);
    frames = std::exchange(late_, {});
    if (!frames.empty() || on_empty_inbox == nullptr) return;
    std::exchange(on_empty_inbox, nullptr)();
    while (late_.empty()) {
      sleep([&] { return mesh_.take(late_), !late_.empty(); }, Mesh::Clock::now() + std::chrono::minutes(1));
    }
  }

 private:
  Mesh mesh_;
  std::vector<Frame> late_;
};

}}}  // namespace tandem::v0::distributed::gloo

// A second copy of the backend, over HookedMesh.
#define Mesh HookedMesh
#define GlooBackend HookedGlooBackend
#define make_gloo_backend make_hooked_gloo_backend
#include <tandem/distributed/backends/gloo/gloo_backend.cc>
#include <tandem/distributed/backends/gloo/plan.cc>
#include <tandem/distributed/backends/gloo/streams.cc>
#undef Mesh
#undef GlooBackend
#undef make_gloo_backend

namespace tandem { inline namespace v0 { namespace distributed { namespace {

TEST(GlooOrder, OperationsCompletedByLeavingRankComplete) {
  for (const bool is_message : {false, true}) {
    std::latch is_between(1);
    run_backend_ranks(
        2, [](const ProcessGroupOptions& options) { return gloo::make_hooked_gloo_backend(options); },
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
            gloo::on_empty_inbox = [&] {
              is_between.count_down();
              backend.do_notify_failure(0, "left the job");
            };
          }
          is_message ? run_transfers(backend, message) : run_collective(backend, barrier);
        });
  }
}

}}}}  // namespace tandem::v0::distributed

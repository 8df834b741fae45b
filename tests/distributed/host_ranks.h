// Thread ranks on several simulated hosts: a HierarchicalBackend each, with MeetingBackend in place of the
// network.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/hierarchical/hierarchical_backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/rendezvous/host_layout.h>
#include <tandem/distributed/store.h>
#include <tandem/tests/distributed/meeting_backend.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The meetings of all groups, by name.
class Network {
 public:
  std::shared_ptr<Meeting> find(const std::string& name) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Meeting>& meeting = meetings_[name];
    if (meeting == nullptr) meeting = std::make_shared<Meeting>();
    return meeting;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;
};

/// Parameters of a HierarchicalBackend.
enum class HostPart { kFlat, kInside, kAcross };

struct HostRanks {
  std::string hosts = "aabb";  ///< one letter per rank: its host
  HostTuning tuning = {};
  std::chrono::milliseconds timeout{20000};
  int dawdle = 1;          ///< of the network
  bool shm_inside = true;  ///< false: MeetingBackend within hosts as well
  /// Called when a rank starts collective `number` of a MeetingBackend.
  std::function<void(int rank, HostPart part, int64_t number)> on_start = {};
  std::shared_ptr<Store> store = make_memory_store();
  std::shared_ptr<Network> network = std::make_shared<Network>();

  int world_size() const { return static_cast<int>(hosts.size()); }
  HostLayout layout() const {
    std::vector<std::string> identities;
    for (const char host : hosts) identities.emplace_back(1, host);
    return group_by_host(identities);
  }

  ProcessGroupOptions options_of(int rank) const { return {store, rank, world_size(), "default", timeout, true}; }

  std::unique_ptr<Backend> make_backend(int rank) const {
    const HostLayout all = layout();
    const ProcessGroupOptions options = options_of(rank);
    HostBackends backends;
    backends.flat = meet(rank, HostPart::kFlat, options, dawdle + rank % 2);
    const ProcessGroupOptions inside = options_inside(options, all);
    backends.local = shm_inside ? shm::make_shm_backend(inside) : meet(rank, HostPart::kInside, inside, 1);
    if (all.is_even() || all.local_rank(rank) == 0) {
      backends.cross = meet(rank, HostPart::kAcross, options_across(options, all), dawdle);
    }
    return std::make_unique<HierarchicalBackend>(options, all, std::move(backends), tuning);
  }

  std::shared_ptr<ProcessGroup> make(int rank) const {
    return ProcessGroupAccess::make(options_of(rank), make_backend(rank));
  }

  /// Runs f(group) on all ranks and returns their errors.
  std::vector<std::exception_ptr> run(const std::function<void(ProcessGroup&)>& f) const {
    return run_on_threads(
        world_size(), [this](int rank) { return make(rank); }, f);
  }
  /// Runs f(group) on all ranks; rethrows the error of the lowest rank.
  void run_well(const std::function<void(ProcessGroup&)>& f) const { rethrow_first(run(f)); }

  std::unique_ptr<Backend> meet(int rank, HostPart part, const ProcessGroupOptions& options, int slowness) const {
    std::function<void(int64_t)> notice;
    if (on_start) notice = [f = on_start, rank, part](int64_t number) { f(rank, part, number); };
    return std::make_unique<MeetingBackend>(options, network->find(options.name), slowness, std::move(notice));
  }
};

}}}  // namespace tandem::v0::distributed

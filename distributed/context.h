// The calling rank: number, device, process groups, stop requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct InitSession;

/// Options of Context::new_group and new_group.
struct NewGroupOptions {
  std::string backend = {};  ///< as ProcessGroupOptions::backend; empty: that of the default group
  std::optional<std::chrono::milliseconds> timeout = {};  ///< 0: no timeout; nullopt: that of the default group
  std::string name = {};                                  ///< shown in errors; empty: the members, as "ranks 0-3 7"
};

/// The calling rank: rank, world size, device and default group. Not thread-safe.
class TANDEM_API Context {
 public:
  /// Number of this rank in the job, 0 to world_size() - 1.
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }  ///< number of ranks of the job
  /// Number of this rank on its host.
  int local_rank() const { return local_rank_; }
  /// The device on which this rank computes.
  Device device() const { return device_; }
  /// The default group, of all ranks. Created by the first call, which is collective and throws as
  /// ProcessGroup::create.
  const std::shared_ptr<ProcessGroup>& group();
  const std::shared_ptr<Store>& store() const { return store_; }  ///< of the job
  /// Creates a group of the given ranks of the job. Only the members call it, and each of them passes the ranks of all
  /// members. Ranks in the group are assigned in ascending order of the ranks in the job.
  ///
  /// Does not block, so ranks may create their groups in different orders. The first operation of the group waits for
  /// the members. If not all have joined within the timeout, counted from this call, it throws CommError naming the
  /// missing ranks; if the operation's own timeout is shorter, its error does not name them. Other rendezvous failures
  /// are CommErrors of that operation too; peer() is then the failed rank, or -1.
  ///
  /// Calls are matched by members and name: the n-th call on one rank belongs to the n-th call on the others. The
  /// failure of a rank outside the group does not affect the group. Throws ValueError if this rank is not in `ranks`,
  /// or if `ranks` is empty, contains duplicates or ranks outside the job.
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});

  /// Whether all ranks have agreed to stop after this step, because one of them received SIGINT or SIGTERM or called
  /// request_stop(). Check it after each step of a training loop. With one rank: stop_requested().
  bool should_stop() const;
  /// Whether this rank received SIGINT or SIGTERM or called request_stop().
  bool stop_requested() const;
  /// Requests a stop as a signal does, for example at a time limit.
  void request_stop() { stop_requested_ = true; }
  /// Sets should_stop(). DistributedDataParallel calls it after it has exchanged the requests of all ranks.
  void set_stop_agreed() { stop_agreed_ = true; }

  /// The context of the calling thread. Throws StateError if the thread is not a rank of launch, spawn, run_threads or
  /// init_process_group.
  static Context& current();

 private:
  friend struct ContextAccess;
  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  Device device_;
  bool stop_requested_ = false;
  bool stop_agreed_ = false;
  std::chrono::milliseconds timeout_{300000};
  bool thread_ranks_ = false;
  std::string backend_ = "auto";
  std::string interface_;
  std::shared_ptr<InitSession> session_;  // set by init_process_group; null under launch, spawn and run_threads
  std::shared_ptr<Store> store_;
  std::shared_ptr<ProcessGroup> group_;
  std::mutex calls_mutex_;
  std::map<std::string, int64_t> calls_;  // of new_group, by members and name
};

}}}  // namespace tandem::v0::distributed

// What a rank's function gets.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct InitSession;

struct NewGroupOptions {
  std::string backend = {};                               ///< empty: the default group's
  std::optional<std::chrono::milliseconds> timeout = {};  ///< 0 = none; not given: the default group's
  std::string name = {};                                  ///< shown in errors; empty: the members, "ranks 0-3 7"
};

/// The typed view of the calling rank: who it is, its device, its default group.
class TANDEM_API Context {
 public:
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  int local_rank() const { return local_rank_; }
  Device device() const { return device_; }
  /// The group of all ranks; made on first use (collective) and shared by all users of this context.
  const std::shared_ptr<ProcessGroup>& group();
  const std::shared_ptr<Store>& store() const { return store_; }
  /// Makes a group of some ranks of the job.  Called by those ranks alone, each naming all of them; ranks of the group are
  /// numbered by their numbers in the job.  Returns at once, so that each rank makes its groups in an order of its own:
  /// the first operation waits for the members to come, and throws CommError naming the missing when they have not by the
  /// deadline, which runs from this call; its own, where that is shorter, only tells that not all have come.  All else that
  /// goes wrong in coming together is a CommError of that operation too; where it went wrong here, peer() is this rank, or
  /// nobody.  Members' calls belong together by ranks and name: the n-th call of each joins the n-th of the others, so that
  /// those of the same ranks and name are made one after another.  Other ranks' deaths do not concern it.  Throws ValueError
  /// where this rank is not among `ranks`, one appears twice in ranks or is not in the job.
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const NewGroupOptions& options = {});

  /// Whether all ranks have agreed to stop after this step (SIGINT or SIGTERM on any of them).  Training loops ask it
  /// after each step; in a world of one rank it is the signal itself.
  bool should_stop() const;
  /// Whether a signal arrived on this rank, or it called request_stop().
  bool stop_requested() const;
  /// As if a signal had arrived on this rank: for a time limit, say.
  void request_stop() { stop_requested_ = true; }
  /// Called by whoever exchanged the request among the ranks.
  void set_stop_agreed() { stop_agreed_ = true; }

  /// The calling thread's context; throws StateError outside launch, spawn and run_threads, and before
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
  std::shared_ptr<InitSession> session_;  // of init_process_group; null where somebody else ends the job
  std::shared_ptr<Store> store_;
  std::shared_ptr<ProcessGroup> group_;
};

}}}  // namespace tandem::v0::distributed

// Why a group cannot go on, and which operations that ends. Private to distributed/.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/tensor/tensor.h>  // HookHandle

namespace tandem { inline namespace v0 { namespace distributed {

/// The failure of a group.
struct Failure {
  int culprit = -1;  ///< rank in the job; -1: the store's host, or not known
  std::string reason;
  bool is_mismatch = false;  ///< `reason` shows two calls that do not match
  /// The rank of the group that failed first, and the first collective that it did not complete: earlier collectives
  /// still complete on all ranks. 0: none does.
  int member = -1;
  int64_t first_failed = 0;

  // Known only to the rank that has set the failure.
  bool is_joining = false;  ///< the rank could not join; `reason` is the complete error
  bool is_of_gpu = false;   ///< found by NCCL
  std::string headline = {};
  int missing = -1;  ///< rank in the job for which an operation waited that failed at its deadline

  /// Its error for an operation. `after_label` follows the operation's label.
  GroupError error(const char* after_label = " failed") const;
};

/// The failure of one group as one of its ranks knows it, and the members that have ended. Thread-safe.
///
/// The first failure of any rank is the failure of the group: a rank offers its own to the store under one key, and the
/// store pushes that key's value to all ranks. The store also pushes the ends of ranks.
class FailureLatch {
 public:
  using Clock = Backend::Clock;

  struct End {
    std::string reason;
    bool has_left = false;  ///< its function has returned
    Clock::time_point when;
  };
  struct Known {
    uint64_t version = 0;  ///< changes whenever the rest changes
    std::optional<Failure> failure;
    Clock::time_point failed_at;
    std::optional<End> store;               ///< its host is lost
    std::vector<std::optional<End>> ended;  ///< by rank of the group, without this rank
    bool has_own_ended = false;             ///< this rank has announced its own failure
    bool has_failed_operation = false;      ///< an operation of this rank has failed

    bool is_empty() const { return version <= 1; }
    /// Why operations may fail: the failure, or else the loss of the store, or the first end. Null also if members have
    /// only left.
    std::optional<Failure> cause(const ProcessGroupOptions& options) const;
  };

  explicit FailureLatch(const ProcessGroupOptions& options);

  /// Calls f(what is known), on any thread, after each change, and before the next change.
  void listen(std::function<void(const Known&)> f);
  /// From now on there are no changes from the store, and no listeners. Waits for a running listener.
  void close();
  /// Notes that a rank of the job has ended; -1: the host of the store. Listeners of the store call it.
  void note_end(int culprit, const std::string& reason);
  /// Sets the failure unless it is set, and offers it to the other ranks. On this rank an error of joining replaces the
  /// failure of another rank. `is_of_operation`: an operation of this rank fails.
  void set(const Failure& failure, bool is_of_operation = false);

  /// Copies what is known, if it is newer.
  void read(Known& known) const;
  std::optional<Failure> cause() const;
  bool is_failing() const { return cause().has_value(); }

 private:
  void change(const std::function<void(Known&)>& f);
  std::string key() const;

  ProcessGroupOptions options_;  // the store is guarded by mutex_
  std::vector<HookHandle> handles_;
  std::recursive_mutex listening_;  // orders changes and listeners; recursive: a listener may fail the group
  std::vector<std::function<void(const Known&)>> listeners_;
  mutable std::mutex mutex_;  // guards known_
  Known known_;
  std::atomic<uint64_t> version_{1};  // of known_
};

/// What an operation that makes no progress waits for.
struct Waiting {
  int64_t number = 0;  ///< of the collective; 0: messages
  /// Whether it waits for data of that rank of the group, or for its participation.
  FunctionRef<bool(int rank)> needs;
};

/// The failure that ends an operation which has made no progress since `known` and the ends of connections were read;
/// null if it may still complete. If time alone can change the result, `again` is at most that time.
///
/// An operation fails if the group has failed before the operation was complete on the first failed rank, or if it
/// needs a rank that has ended and everything that this rank sent before has been received.
std::optional<Failure> still_needed(const Waiting& operation, const FailureLatch::Known& known, Backend& backend,
                                    const ProcessGroupOptions& options, Backend::Clock::time_point now,
                                    Backend::Clock::time_point& again);

}}}  // namespace tandem::v0::distributed

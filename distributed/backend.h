// What moves the bytes of a ProcessGroup.  Private to distributed/.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <tandem/base/function_ref.h>
#include <tandem/distributed/collective.h>
#include <tandem/distributed/process_group.h>

namespace tandem::inline v0::distributed {

/// A failure that makes the group unusable: the error of this rank, and what its peers should hear.
class GroupError : public CommError {
 public:
  GroupError(const std::string& what, std::string reason, int rank, int culprit, int64_t seq)
      : CommError(what, rank, culprit, seq), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

/// Who has reached a collective.
struct Progress {
  std::string text;        ///< "reached #1873: ranks 0 1 2.  missing: rank 3 (last reached #1860, 31.2 s ago)"
  int first_missing = -1;  ///< -1: none
};

/// What do_advance has come to.
enum class Advance : uint8_t { kIdle, kMoved, kDone };

/// The transport of one group, seen by one of its ranks.
///
/// The front (ProcessGroup) checks, numbers, signs and times; a backend runs one collective at a time, in the order of
/// their numbers: do_start, then do_advance until it returns kDone.  It publishes the signature, and touches nobody's
/// data before all signatures are known to be equal.  Only do_sleep, do_wake, do_abort, do_hear_failure and do_allocate
/// are called beside another member function.
class Backend {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Backend() = default;

  /// Shown in errors: "shm".
  virtual const char* name() const = 0;
  /// Whether a blocked caller may spin for a moment: every rank has a core of its own.
  virtual bool may_spin() const = 0;

  /// Publishes the collective; `collective` lives until it has completed or failed.
  virtual void do_start(const Collective& collective) = 0;
  /// Goes as far as it can without waiting, or part of the way.  Throws GroupError when the signatures differ or a
  /// rank that is needed has failed.
  virtual Advance do_advance() = 0;
  /// Sleeps until something may have changed or `until` has passed; not at all if `changed` returns true, which is
  /// called once after changes have begun to be noticed.
  virtual void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) = 0;
  /// Ends this rank's do_sleep.
  virtual void do_wake() = 0;
  /// Tells the peers, and this rank's waiters, that this rank takes part no longer, for what `culprit` did.
  virtual void do_abort(int culprit, const std::string& reason) = 0;
  /// Tells this rank's waiters that `culprit` takes part no longer; what it has finished still completes.
  virtual void do_hear_failure(int culprit, const std::string& reason) = 0;
  /// Memory that the backend moves best.
  virtual RefPtr<Storage> do_allocate(int64_t num_bytes) = 0;
  virtual Progress do_describe_progress(int64_t seq) const = 0;
};

/// Makes a group on a given backend; for ProcessGroup::create and for tests that choose a backend's tuning.
struct ProcessGroupAccess {
  static std::shared_ptr<ProcessGroup> make(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend);
};

}  // namespace tandem::inline v0::distributed

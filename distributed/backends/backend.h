// What moves the bytes of a ProcessGroup. Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/distributed/backends/collective.h>
#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A failure that makes the group unusable: what follows the operation's label ("[rank 2 of 4] all_reduce #7") in this
/// rank's error, and the text for its peers. Ranks in texts, and `culprit`, are numbers in the job. With a headline
/// this rank's error is a MissingRanksError.
class GroupError : public Error {
 public:
  GroupError(const std::string& after_label, std::string reason, int culprit, std::string headline = {})
      : Error(after_label), reason_(std::move(reason)), culprit_(culprit), headline_(std::move(headline)) {}
  const std::string& reason() const { return reason_; }
  int culprit() const { return culprit_; }
  const std::string& headline() const { return headline_; }

 private:
  std::string reason_;
  int culprit_;
  std::string headline_;
};

/// What a rank started last, as far as this rank knows.
struct LastStarted {
  int64_t seq = 0;  ///< 0: nothing
  std::chrono::nanoseconds ago{0};
  std::string what = {};  ///< "all_reduce 'bucket 3 of 7'"
};

/// What do_advance has come to.
enum class Advance : uint8_t { kIdle, kMoved, kDone };

/// The transport of one group, seen by one of its ranks.
///
/// The front (ProcessGroup) checks, numbers, signs and times; a backend runs one collective at a time, in the order of
/// their numbers: do_start, then do_advance until it returns kDone; and, beside it, any number of transfers. It
/// publishes the signature, and uses nobody's data before all signatures are known to be equal. Numbers may have gaps
/// (the front of a composed backend skips some); members agree on them. Only do_sleep, do_wake, do_abort,
/// do_hear_failure and do_last_started are called beside another member function.
///
/// Rank arguments are ranks of the group; `culprit` and what texts show are numbers in the job.
class Backend {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Backend() = default;

  /// Shown in errors: "shm", "gloo".
  virtual const char* name() const = 0;
  /// Shown once when the group is made, after its name: "1 host x 4: shm between processes", "2 hosts x 1: gloo over
  /// eth0".
  virtual std::string describe() const = 0;
  /// False while members are still to come, and where they cannot: then it knows nothing of them.
  virtual bool has_members() const { return true; }
  /// Whether a blocked caller may spin for a moment: every rank has a core of its own.
  virtual bool may_spin() const = 0;

  /// Publishes the collective; `collective` lives until it has completed or failed.
  virtual void do_start(const Collective& collective) = 0;
  /// Tells the peers, if the backend can, that `next` will be started after the running collective and those announced
  /// before; false where it cannot, or not yet. Only while a collective runs; `next` may not be read after the call.
  /// Its input may be, and until it has completed or do_abort has returned, if `input_is_ready`: nothing will change it
  /// but, maybe, what the collectives before write. Nothing else of its tensors may.
  virtual bool do_announce(const Collective& next, bool input_is_ready) {
    (void)next, (void)input_is_ready;
    return false;
  }
  /// Goes as far as it can without waiting, or part of the way. Throws GroupError when the signatures differ or a
  /// rank that is needed has failed.
  virtual Advance do_advance() = 0;
  /// Begins a message; `transfer` lives until it is done or has failed.
  virtual void do_start_transfer(Transfer& transfer) = 0;
  /// Takes all begun messages as far as they go without waiting, and sets `done`; kMoved if anything happened, else
  /// kIdle. Throws GroupError as do_advance; then all messages have failed, and those that caused it have `failed`
  /// set. Not called again after do_abort.
  virtual Advance do_advance_transfers() = 0;
  /// Sleeps until something may have changed or `until` has passed; not at all if `changed` returns true, which is
  /// called once after changes have begun to be noticed.
  virtual void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) = 0;
  /// Ends this rank's do_sleep.
  virtual void do_wake() = 0;
  /// Tells the peers, and this rank's waiters, that this rank takes part no longer, for what `culprit` did.
  virtual void do_abort(int culprit, const std::string& reason) = 0;
  /// Tells this rank's waiters that member `culprit` (-1: the store's host) takes part no longer; what it has finished
  /// still completes.
  virtual void do_hear_failure(int culprit, const std::string& reason) = 0;
  virtual LastStarted do_last_started(int rank) const = 0;
  /// Of the ranks that have started the running collective, those that keep it waiting, as far as this rank can tell;
  /// maybe none.
  virtual std::vector<int> do_awaited() = 0;
  /// Calls `wake` from now on, on any thread, wherever it would end do_sleep: for a backend made of several, whose
  /// ranks sleep in one of them. Called once, before the first collective. Not every backend can.
  virtual void do_notify(const std::function<void()>& wake);
};

/// Whether the group has NCCL for tensors on GPUs.
bool moves_gpu_tensors(const ProcessGroupOptions& options);
/// What moves its CPU tensors: "auto", "shm", "gloo", or what else the options have.
std::string cpu_backend(const ProcessGroupOptions& options);

/// What a rank of the group called, as describe_call gives it.
struct RankCall {
  int rank;
  std::string call;
};
/// Throws the GroupError of two calls that do not fit each other.
[[noreturn]] void throw_disagreement(const ProcessGroupOptions& options, RankCall one, RankCall other);
/// Throws that of an all_to_all in which `sender` sends another shape to `receiver` than that expects.
[[noreturn]] void throw_parts_disagree(const ProcessGroupOptions& options, DType dtype, const RankCall& sender,
                                       const ShownShape& sent, const RankCall& receiver, const ShownShape& expected);

}}}  // namespace tandem::v0::distributed

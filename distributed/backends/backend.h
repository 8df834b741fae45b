// Interface of the transports of a ProcessGroup. Private to distributed/.
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

/// A failure that makes the group unusable. `after_label` follows the operation's label ("[rank 2 of 4] all_reduce #7")
/// in this rank's error; `reason` is the text for its peers. Ranks in texts, and `culprit`, are ranks in the job. If
/// `headline` is not empty, this rank's error is a MissingRanksError.
class GroupError : public Error {
 public:
  GroupError(const std::string& after_label, std::string reason, int culprit, std::string headline = {},
             bool is_mismatch = false)
      : Error(after_label),
        reason_(std::move(reason)),
        culprit_(culprit),
        headline_(std::move(headline)),
        is_mismatch_(is_mismatch) {}
  const std::string& reason() const { return reason_; }
  int culprit() const { return culprit_; }
  const std::string& headline() const { return headline_; }
  bool is_mismatch() const { return is_mismatch_; }  ///< the reason shows two calls that do not match

 private:
  std::string reason_;
  int culprit_;
  std::string headline_;
  bool is_mismatch_;
};

/// The last collective that a rank is known to have started.
struct LastStarted {
  int64_t seq = 0;  ///< 0: no collective
  std::chrono::nanoseconds ago{0};
  std::string what = {};  ///< "all_reduce 'bucket 3 of 7'"
};

/// Result of do_advance.
enum class Advance : uint8_t { kIdle, kMoved, kDone };

/// The transport of one group, as used by one of its ranks.
///
/// ProcessGroup checks the arguments, numbers the collectives, creates their signatures and checks deadlines. A backend
/// runs one collective at a time, in the order of the numbers: do_start, then do_advance until it returns kDone. It
/// runs any number of transfers concurrently. It publishes the signature, and uses data of other ranks only after all
/// signatures are known to be equal. Numbers may have gaps (a composed backend skips some), but all members agree on
/// them. Only do_sleep, do_wake, do_cancel and do_last_started may be called concurrently with another member function.
///
/// Failures. A backend knows nothing of failures but the ends of its connections: the queue decides which operations
/// they end (still_needed). Rank arguments are ranks of the group; ranks in texts are ranks in the job.
class Backend {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Backend() = default;

  /// Shown in errors: "shm", "gloo".
  virtual const char* name() const = 0;
  /// Shown once when the group is made, after its name: "1 host x 4: shm between processes", "2 hosts x 1: gloo over
  /// eth0".
  virtual std::string describe() const = 0;
  /// How many times a blocked caller polls before it sleeps: once, or, if every rank has its own core, for about 50 us,
  /// which is longer than the skew between ranks in step, and shorter than a time slice.
  virtual int max_polls() const = 0;

  /// Publishes the collective. `collective` must live until it has completed or failed.
  virtual void do_start(const Collective& collective) = 0;
  /// Sends the signature of `next` to the peers early. `next` will start after the running collective and after the
  /// collectives of earlier calls. Returns false if the backend cannot do this, or not yet. Call it only while a
  /// collective runs; `next` must not be read after the call. If `input_is_ready`, its input may be read until `next`
  /// has completed or do_cancel has returned; only the collectives before it may still write that input. The backend
  /// must not access the other tensors of `next`.
  virtual bool do_prefetch_signature(const Collective& /*next*/, bool /*input_is_ready*/) { return false; }
  /// Makes progress without waiting, but not necessarily all possible progress. Throws GroupError when the signatures
  /// differ, or a peer sends what does not belong to the collective.
  virtual Advance do_advance() = 0;
  /// Starts a message. `transfer` must live until it is done or has failed.
  virtual void do_start_p2p(P2pRequest& transfer) = 0;
  /// Advances all started messages without waiting, and sets `done`. Returns kMoved if anything happened, else kIdle.
  /// Throws GroupError like do_advance; then all messages have failed, and the messages that caused the error have
  /// `failed` set. Not called again after do_cancel.
  virtual Advance do_advance_p2p() = 0;
  /// Sleeps until something may have changed or `until` has passed. Calls `changed` once, after it has begun to detect
  /// changes, and does not sleep if the result is true.
  virtual void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) = 0;
  /// Wakes this rank's do_sleep.
  virtual void do_wake() = 0;
  /// This rank no longer participates. When it has returned, memory of callers is not used any more. Ends the
  /// connections to the peers, after what was sent before.
  virtual void do_cancel() = 0;
  /// The end of the connection to a rank.
  struct PeerEnd {
    bool has_left = false;  ///< the rank has cancelled or destroyed its backend
    std::string why;        ///< "left the group", "died (its connection closed)"
    Clock::time_point when;
  };
  /// Null while data of `rank` may arrive. Otherwise do_advance can process all data that the rank has sent.
  virtual const PeerEnd* do_peer_end(int /*rank*/) { return nullptr; }
  /// `rank` has ended, or will soon: receives what it has sent, even if no memory is posted for it. Returns whether
  /// nothing more can arrive.
  virtual bool do_drain(int /*rank*/) { return true; }
  /// How long data of a rank that has died may still arrive.
  virtual std::chrono::milliseconds arrival_time() const { return std::chrono::milliseconds(500); }
  /// Whether the running collective needs more of `rank` than has arrived.
  virtual bool do_needs(int rank) = 0;
  /// Whether a message that is not complete needs more of `rank` than has arrived.
  virtual bool do_needs_p2p(int rank) = 0;
  virtual LastStarted do_last_started(int rank) const = 0;
  /// Ranks that started the running collective and for whose data this rank waits. Empty if this rank cannot tell.
  virtual std::vector<int> do_awaited() = 0;
  /// From now on calls `wake`, on any thread, whenever it would wake do_sleep. For a composed backend, whose rank
  /// sleeps in one of its parts. Called once, before the first collective. Throws StateError if the backend does not
  /// support it.
  virtual void do_notify(const std::function<void()>& wake);
};

/// Whether the group uses NCCL for GPU tensors.
bool moves_gpu_tensors(const ProcessGroupOptions& options);
/// The backend of the group's CPU tensors: "auto", "shm", "gloo", or another value of the options.
std::string cpu_backend(const ProcessGroupOptions& options);

/// Joins the ranks of `options` by MPI; collective. Null in programs that do not link //distributed/backends/mpi.
/// `make_flat` creates the backend that compares the calls and transfers the messages. If a rank cannot use MPI,
/// returns null where options.backend is "auto", and otherwise throws CommError on all ranks.
[[gnu::weak]] std::unique_ptr<Backend> make_mpi_backend(const ProcessGroupOptions& options,
                                                        FunctionRef<std::unique_ptr<Backend>()> make_flat);

/// Throws the GroupError for a rank that has sent what it should not.
[[noreturn]] void throw_peer_error(const ProcessGroupOptions& options, int rank, const std::string& reason);
/// A call of one rank of the group, formatted by describe_call.
struct RankCall {
  int rank;
  std::string call;
};
/// Throws the GroupError for two calls that do not match.
[[noreturn]] void throw_call_mismatch(const ProcessGroupOptions& options, RankCall one, RankCall other);
/// Throws the GroupError for an all_to_all in which `sender` sends a shape that `receiver` does not expect.
[[noreturn]] void throw_parts_disagree(const ProcessGroupOptions& options, DType dtype, const RankCall& sender,
                                       const ShownShape& sent, const RankCall& receiver, const ShownShape& expected);

}}}  // namespace tandem::v0::distributed

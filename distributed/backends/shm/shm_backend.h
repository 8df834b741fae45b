// Collectives of ranks that share memory: processes of one host, or threads of one process, by the same code. Private
// to distributed/.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/shm/bells.h>
#include <tandem/distributed/backends/shm/cache_trials.h>
#include <tandem/distributed/backends/shm/messages.h>
#include <tandem/distributed/backends/shm/segment.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// The backend of one rank.
///
/// Data up to Tuning::slot_bytes is written into the rank's slot beside its record; once all records are there, each
/// rank reads the slots that it needs: one round of flags. A slot is used again two collectives later; a rank completes
/// a collective only after it has seen everybody's record, and posts one only after completing the one before, so by
/// then all have read it.
///
/// Larger data travels through rings, in rounds, so that ranks rarely wait and the bytes on the way are few.
/// - all_reduce between two ranks, up to Tuning::whole_bytes: both send all their data and reduce all of it.
///   There is a ring for odd numbers and one for even, for the reason above.
/// - all_reduce in slices: a round has one block per rank, and block j is reduced by rank j. Once all have arrived, a
///   rank stages the others' blocks of its input in one ring, reduces its own block of everybody's input into its
///   tensor and into a second ring, and copies the others' results out of theirs.
/// - all others: once all have arrived, ranks that have something for others send it, a block that all of them read or
///   one for each, and those that get something copy or reduce it.
/// A slot of a ring is written again when all who read it have said that they consumed the round before in it.
class ShmBackend final : public Backend {
 public:
  ShmBackend(const ProcessGroupOptions& options, const Tuning& tuning);

  const char* name() const override { return "shm"; }
  std::string describe() const override;
  bool may_spin() const override { return may_spin_; }
  void do_start(const Collective& collective) override;
  Advance do_advance() override;
  void do_start_transfer(Transfer& transfer) override;
  Advance do_advance_transfers() override;
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override;
  void do_wake() override;
  void do_abort(int culprit, const std::string& reason) override;
  void do_hear_failure(int culprit, const std::string& reason) override;
  LastStarted do_last_started(int rank) const override;
  std::vector<int> do_awaited() override;

 private:
  SegmentHeader& own() const { return mapping_->header(rank_); }
  SegmentHeader& header(int rank) const { return mapping_->header(rank); }
  const Record& record(int rank) const { return header(rank).records[parity_]; }
  std::byte* segment(int rank) const { return mapping_->segments[static_cast<size_t>(rank)]; }
  std::byte* slot(int rank) const;
  /// What the rank sends to all others in an all_to_all, by rank, then what it expects from them.
  const PostedPart* parts(int rank) const;

  /// Whether all peers' counters have passed `rounds` rounds of this collective.
  bool peers_passed(std::atomic<int64_t> Counters::*counter, int64_t rounds) const;

  void post_parts();
  void choose_path();
  /// Copies into a ring of this rank's, in that round.
  void put(int64_t round, std::byte* out, const std::byte* in, int64_t num_bytes) const;
  Advance step();
  bool match_records();
  /// For a rank that hears of a failure while it waits for a record: it may have been a difference, which this rank can
  /// show as well.
  void look_for_mismatch() const;
  void match_parts() const;
  [[noreturn]] void throw_mismatch(int peer) const;
  std::string describe_record(int rank) const;

  using Stage = CacheTrials::Stage;

  // Who moves what: a function of the signature (and the counts), the same on all ranks.
  bool contributes(int rank) const;
  bool sends(int rank) const;
  bool takes(int rank) const;
  bool combines() const;
  bool sends_to_each() const;
  int64_t part_bytes(int from, int to) const;
  const std::byte* outgoing(int to) const;
  std::byte* incoming(int from) const;

  int64_t slot_offset(int from, int to) const;
  void send_to_slot();
  void finish_slots();
  /// Whether the ways into the rings are compared in this collective: all ranks send and receive as many bytes.
  bool is_tried() const {
    using Kind = CollectiveKind;
    return fills_rings_ && (call_->kind == Kind::kAllReduce || call_->kind == Kind::kReduceScatter);
  }
  /// Does a stage of that round.
  void run(CacheTrials::Stage stage, int64_t round, FunctionRef<void()> body);
  Advance step_whole();
  Advance step_slices();
  Advance step_exchange();
  void stage(int64_t round);
  void reduce_whole(int64_t round);
  void reduce_round(int64_t round);
  void copy_results(int64_t round);
  void send_round(int64_t round);
  void take_round(int64_t round);
  bool is_missing(int rank) const;
  /// Whether the rank could go on, as its and the others' counters are.
  bool can_move(int rank) const;
  /// Throws where a rank has failed (`poisoned`, or one of those heard of) and the operation cannot do without it.
  void fail_if_needed(int poisoned, size_t num_notified, FunctionRef<bool(int)> is_needed);
  [[noreturn]] void fail(int culprit, const std::string& reason) const;

  /// The ways described above; kNothing: signatures are compared, and that is all.
  enum class Path : uint8_t { kNothing, kSlots, kWhole, kSlices, kExchange };

  /// Some bytes of a part; none past its end.
  struct Block {
    int64_t begin;
    int64_t num_bytes;
  };
  Block block(int64_t index, int64_t num_bytes) const;
  std::byte* staging(int rank, int64_t round, int reducer) const;
  std::byte* whole(int rank, int64_t round) const;
  std::byte* results(int rank, int64_t round) const;
  std::byte* exchanged(int from, int to, int64_t round) const;
  /// Whether the rank's counter has passed `rounds` rounds of this collective; this rank's always has.
  bool passed(int rank, std::atomic<int64_t> Counters::*counter, int64_t rounds) const;

  /// What was heard of other ranks' ends.
  struct Failure {
    int culprit;
    std::string reason;
  };

  const ProcessGroupOptions options_;
  const int rank_;
  const int size_;
  const Tuning tuning_;
  const Layout layout_;
  std::shared_ptr<Mapping> mapping_;
  const Bells bells_;
  Messages messages_;
  bool may_spin_ = false;

  std::mutex failures_mutex_;
  std::vector<Failure> failures_;
  std::atomic<size_t> num_failures_{0};

  // The running collective.
  const Collective* call_ = nullptr;
  int64_t number_ = 0;  // of the collectives run here, from 1
  int parity_ = 0;
  CollectiveKind last_kind_ = CollectiveKind::kBarrier;
  std::string last_name_;
  Path path_ = Path::kSlots;
  int64_t num_bytes_ = 0;  // of Signature::num_elements
  int matched_ = 0;        // peers [0, matched_) have posted an equal record
  int64_t block_bytes_ = 0;
  int64_t rounds_ = 0;
  int64_t staged_ = 0;  // rounds done of the three stages
  int64_t produced_ = 0;
  int64_t consumed_ = 0;
  bool fills_rings_ = false;
  std::vector<const std::byte*> inputs_;

  CacheTrials trials_;
};

/// Joins the ranks of `options`; collective.
std::unique_ptr<Backend> make_shm_backend(const ProcessGroupOptions& options, const Tuning& tuning = {});

}}}  // namespace tandem::v0::distributed::shm

// Collectives between ranks that share memory: processes of one host or threads of one process, with the same code.
// Private to distributed/.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/shm/messages.h>
#include <tandem/distributed/backends/shm/notifier.h>
#include <tandem/distributed/backends/shm/segment.h>
#include <tandem/distributed/backends/shm/streaming_store_tuner.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// The shm backend of one rank.
///
/// Data up to Tuning::slot_bytes is written into the rank's slot before its signature. When all signatures are posted,
/// each rank reads the slots that it needs: one round of flags. A slot is reused two collectives later. A rank
/// completes a collective only after it has seen the signatures of all ranks, and posts a signature only after it has
/// completed the previous collective. So all ranks have read the slot by then.
///
/// Larger data is sent through rings, in rounds, so that ranks rarely wait and few bytes are in flight.
/// - one-shot all_reduce (two ranks, up to Tuning::one_shot_bytes): both ranks send all their data and reduce all data.
///   Collectives with odd and even numbers use separate rings, for the reason above.
/// - two-shot all_reduce: a round has one block per rank, and rank j reduces block j. When all ranks have arrived, a
///   rank stages the blocks of its input for the other ranks in one ring, reduces its own block of all inputs into its
///   tensor and into a second ring, and copies the results of the other ranks from their rings.
/// - all other collectives: when all ranks have arrived, each sending rank writes one block for all receivers or one
///   block for each receiver. Each receiving rank copies or reduces the blocks.
/// A slot of a ring is reused when all its readers have consumed the previous round in it.
class ShmBackend final : public Backend {
 public:
  ShmBackend(const ProcessGroupOptions& options, const Tuning& tuning);

  const char* name() const override { return "shm"; }
  std::string describe() const override;
  int max_polls() const override { return max_polls_; }
  void do_start(const Collective& collective) override;
  Advance do_advance() override;
  void do_start_p2p(P2pRequest& transfer) override { messages_.start(transfer); }
  Advance do_advance_p2p() override {
    return messages_.any() && messages_.advance() ? Advance::kMoved : Advance::kIdle;
  }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override;
  void do_wake() override { notifier_.notify(rank_); }
  void do_cancel() override;
  const PeerEnd* do_peer_end(int rank) override;
  bool do_needs(int rank) override { return header(rank).finished.load(std::memory_order_acquire) < number_; }
  bool do_needs_p2p(int rank) override { return messages_.any_with(rank); }
  LastStarted do_last_started(int rank) const override;
  std::vector<int> do_awaited() override;

 private:
  SegmentHeader& own() const { return mapping_->header(rank_); }
  SegmentHeader& header(int rank) const { return mapping_->header(rank); }
  const SignatureSlot& signature_slot(int rank) const { return header(rank).signatures[buffer_index_]; }
  std::byte* segment(int rank) const { return mapping_->segments[static_cast<size_t>(rank)]; }
  std::byte* slot(int rank) const;
  /// The parts that the rank sends in an all_to_all, by receiver, then the parts that it expects, by sender.
  const PostedPart* parts(int rank) const;

  void post_parts();
  void choose_path();
  /// Copies into a ring of this rank, with cached or non-temporal stores.
  void put(int64_t round, std::byte* out, const std::byte* in, int64_t num_bytes) const;
  Advance step();
  bool match_signatures();
  void match_parts() const;
  std::string describe_signature(int rank) const;

  using Stage = StreamingStoreTuner::Stage;
  using Counter = std::atomic<int64_t> Counters::*;

  // Data flow: depends only on the signature (and the counts), so it is equal on all ranks.
  bool sends(int rank) const;
  bool sends_to_each() const;
  int64_t part_bytes(int from, int to) const;

  int64_t slot_offset(int from, int to) const;
  void send_to_slot();
  void finish_slots();
  /// Whether this collective can be part of a trial of cached stores: all ranks send and receive equally many bytes.
  bool is_tried() const {
    using Kind = CollectiveKind;
    return fills_rings_ && (call_->kind == Kind::kAllReduce || call_->kind == Kind::kReduceScatter);
  }
  /// Runs the next round of that counter, and measures it if is_tried().
  void run(Stage stage, Counter counter, FunctionRef<void(int64_t round)> body);
  Advance step_rounds();
  void stage(int64_t round);
  void reduce_round(int64_t round);
  void copy_results(int64_t round);
  void send_round(int64_t round);
  void take_round(int64_t round);
  /// Rounds of this collective that the rank has completed.
  int64_t rounds_of(int rank, Counter counter) const;
  /// Whether all other ranks that take part have completed `rounds` rounds.
  bool others_passed(int rank, Counter counter, int64_t rounds, bool (Collective::*takes_part)(int) const) const;
  // Whether the rank can complete its next round of a counter, according to the counters of all ranks.
  bool can_stage(int rank) const;
  bool can_produce(int rank) const;
  bool can_consume(int rank) const;
  /// Whether the rank can make progress.
  bool can_move(int rank) const;
  /// Whether the rank has not slept for longer than a waiting rank would: it is stopped, dead, or does other work.
  bool is_silent(int rank) const;
  /// Finds ranks whose processes have ended.
  void detect_deaths();

  /// The algorithms described above; kNothing: only signatures are compared.
  enum class Path : uint8_t { kNothing, kSlots, kOneShot, kTwoShot, kExchange };

  /// A range of bytes of a part; empty past its end.
  struct Block {
    int64_t begin;
    int64_t num_bytes;
  };
  Block block(int64_t index, int64_t num_bytes) const;
  std::byte* staging(int rank, int64_t round, int reducer) const;
  std::byte* results(int rank, int64_t round) const;
  std::byte* exchanged(int from, int to, int64_t round) const;

  const ProcessGroupOptions options_;
  const int rank_;
  const int size_;
  const Tuning tuning_;
  const Layout layout_;
  std::shared_ptr<Mapping> mapping_;
  const Notifier notifier_;
  P2pMatcher messages_;
  int max_polls_ = 1;

  std::vector<std::atomic<int64_t>> death_ns_;  // by rank: when its death was detected, or 0
  std::vector<std::optional<PeerEnd>> ends_;

  // The running collective.
  const Collective* call_ = nullptr;
  int64_t number_ = 0;  // number of the running collective on this backend, from 1
  int buffer_index_ = 0;
  Path path_ = Path::kSlots;
  int64_t num_bytes_ = 0;  // bytes of Signature::num_elements
  int matched_ = 0;        // peers [0, matched_) have posted an equal signature
  int64_t block_bytes_ = 0;
  int64_t rounds_ = 0;
  bool fills_rings_ = false;
  std::vector<const std::byte*> inputs_;

  StreamingStoreTuner store_tuner_;
};

/// Joins the ranks of `options`; collective.
std::unique_ptr<Backend> make_shm_backend(const ProcessGroupOptions& options, const Tuning& tuning = {});

}}}  // namespace tandem::v0::distributed::shm

// Collectives of ranks that reach each other over a network. Private to distributed/.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/gloo/mesh.h>
#include <tandem/distributed/backends/gloo/messages.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

/// The backend of one rank.
///
/// Every collective begins with a signature from each rank to each other. Between two ranks each has up to two streams
/// of bytes to the other: the first carries inputs, the second results or what is passed on. A first stream of few
/// bytes travels inside the signature; all else is sent, in chunks from the caller's memory, once all signatures are
/// known to be equal, so that whoever receives can always take it at once. Large all_reduces that are queued behind
/// the running one send their signatures already, and the next its inputs too, once all of the running one is sent:
/// there is no pause on the link between two.
/// - all_reduce between two ranks, or of few bytes: all send everything and reduce everything.
/// - else: slice j of the tensor goes to rank j, which reduces chunk after chunk and sends each at once to all others;
///   reduce the same, with results to the root alone.
/// - broadcast from one to several: each of the others gets a slice, and passes it on.
/// - the others: to each its part.
/// Reductions read the slots of the links and this rank's input, host by host. A collective is complete
/// when all has arrived here and all that was sent has arrived there.
class GlooBackend final : public Backend {
 public:
  GlooBackend(const ProcessGroupOptions& options, const Tuning& tuning);

  const char* name() const override { return "gloo"; }
  std::string describe() const override { return str(layout_.describe(), ": ", link_name()); }
  /// "gloo over eth0".
  std::string link_name() const;
  // Whoever spins takes the core from the threads that receive.
  bool may_spin() const override { return false; }
  void do_start(const Collective& collective) override;
  bool do_announce(const Collective& next, bool input_is_ready) override;
  Advance do_advance() override;
  void do_start_transfer(Transfer& transfer) override;
  Advance do_advance_transfers() override;
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override { mesh_.sleep(changed, until); }
  void do_wake() override { mesh_.wake(); }
  void do_abort(int culprit, const std::string& reason) override;
  void do_hear_failure(int culprit, const std::string& reason) override;
  LastStarted do_last_started(int rank) const override;
  std::vector<int> do_awaited() override;
  void do_notify(const std::function<void()>& wake) override { mesh_.notify(wake); }

 private:
  static constexpr int kStreams = 2;
  static constexpr int kAhead = kStreams;  ///< the first stream of the next collective
  static constexpr size_t kMaxAnnounced = 8;
  static constexpr int64_t kUnit = 64;  ///< slices begin at multiples of so many bytes

  /// What this rank sends to one other.
  struct Outgoing {
    const std::byte* base = nullptr;
    int64_t total = 0;
    int64_t ready = 0;  ///< bytes that may be sent by now
    int64_t sent = 0;
    int64_t arrived = 0;
    int64_t ring = 0;       ///< not 0: base holds only the last so many bytes
    bool ack_each = false;  ///< every chunk's arrival is waited for
  };
  /// What one other sends to this rank.
  struct Incoming {
    std::byte* base = nullptr;  ///< null: it is reduced
    int64_t total = 0;
    int64_t arrived = 0;
    int64_t done = 0;  ///< of what is copied
  };
  /// What is reduced here.
  struct Reduction {
    const std::byte* own = nullptr;
    std::byte* out = nullptr;
    int64_t total = 0;
    int64_t done = 0;
    int64_t ring = 0;       ///< as in Outgoing
    bool in_place = false;  ///< out is also what is sent: no chunk is written before it has arrived
  };
  /// Data frames that have not arrived yet.
  struct Flight {
    uint64_t index;  ///< of the link
    int stream;
    int64_t num_bytes;
  };
  struct Peer {
    std::deque<SignatureFrame> signatures;  ///< the first is of the running collective, or of one that will run
    bool matched = false;
    std::deque<Frame> held;  ///< chunks that wait to be reduced
    std::deque<Frame> data;  ///< of the running collective, until all signatures match
    Outgoing out[kStreams + 1];
    Incoming in[kStreams];
    std::deque<Flight> flights;
    std::optional<PoisonFrame> poison;
  };
  struct Announced {
    SignatureFrame frame;
    const std::byte* input;  ///< null: not there before its turn
  };
  struct Failure {
    int culprit;
    std::string reason;
  };
  struct Slice {
    int64_t begin;
    int64_t num_bytes;
  };

  // gloo_backend.cc
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  Link& link(int rank) { return mesh_.link(rank); }
  bool is_peer(int rank) const { return rank != rank_; }
  static SignatureFrame make_signature(const Collective& collective, uint64_t number);
  void post_signature(int to, SignatureFrame& frame);
  bool dispatch();
  void take_frame(Frame& frame);
  void note_started(int rank, const SignatureFrame& frame);
  bool match_signatures();
  void check_parts();
  bool is_missing(int rank);
  /// Which links are gone; read before the frames, because what a rank sent before it failed still counts.
  std::vector<uint8_t> lost_links() const;
  /// Throws where a rank that `is_needed` has failed. Poison counts always where `poison_always`, else unless the rank
  /// has completed the running collective.
  void check_failures(const std::vector<uint8_t>& lost, bool poison_always, FunctionRef<bool(int rank)> is_needed);
  [[noreturn]] void fail(int culprit, const std::string& reason) const;
  bool is_aborted();

  // plan.cc: who sends what to whom
  void plan();
  void plan_reduction(bool to_all);
  void plan_broadcast();
  void plan_parts();
  void plan_own_part(const std::byte* from, std::byte* to, int64_t num_bytes);
  /// What of a tensor of `total` bytes lies in one of `count` parts.
  static Slice slice(int64_t total, int index, int count);
  /// What of an all_reduce's input goes to `rank` in the first stream.
  Slice input_of(int rank, int64_t total) const;
  void finish_alone();

  // streams.cc: moving it
  void open_streams();
  /// Bytes of a stream's frames. Short streams have several too, so that reducing one goes beside sending the next.
  int64_t chunk_bytes(int64_t total) const;
  bool move();
  bool note_arrivals();
  bool take_data(int from);
  void accept(int from, Frame frame);
  bool reduce_chunks();
  bool send_chunks();
  bool send_chunk(int to, int stream);
  void look_ahead();
  bool is_complete();

  const ProcessGroupOptions options_;
  const int rank_;
  const int size_;
  const Tuning tuning_;

  std::mutex failures_mutex_;
  std::vector<Failure> failures_;
  std::atomic<size_t> num_failures_{0};
  bool aborted_ = false;  // guarded by failures_mutex_

  mutable std::mutex last_mutex_;
  struct Last {
    int64_t seq = 0;
    Clock::time_point when = {};
    std::string what = {};
  };
  std::vector<Last> last_;

  // The running collective.
  const Collective* call_ = nullptr;
  uint64_t number_ = 0;                // of the collectives run here, from 1
  std::deque<Announced> announced_;    // those after the running one, in their order
  bool sends_ahead_ = false;           // inputs of the first of them
  std::atomic<uint64_t> finished_{0};  // completed ones
  SignatureFrame own_;
  std::vector<Peer> peers_;
  int unmatched_ = 0;
  bool streaming_ = false;
  bool parts_disagree_ = false;  // those of two other ranks, which fail the collective
  Reduction reduction_;
  int forwards_from_ = -1;  // second streams carry what comes from there, or (-1) results
  std::vector<std::byte> scratch_;
  const std::byte* own_part_ = nullptr;  // copied to own_target_
  std::byte* own_target_ = nullptr;
  int64_t own_bytes_ = 0;
  std::vector<const std::byte*> inputs_;
  std::vector<Frame> frames_;

  Mesh mesh_;  // after what its threads use
  const HostLayout layout_;
  const bool sums_by_host_;  // which is another order than that of the ranks
  std::vector<std::byte> partial_results_;
  Messages messages_;
};

/// Joins the ranks of `options`; collective.
std::unique_ptr<Backend> make_gloo_backend(const ProcessGroupOptions& options, const Tuning& tuning = {});

}}}  // namespace tandem::v0::distributed::gloo

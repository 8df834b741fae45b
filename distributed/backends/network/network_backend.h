// Collectives between ranks that are connected by a network. Private to distributed/.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/network/mesh.h>
#include <tandem/distributed/backends/network/messages.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

/// The network backend of one rank. Users and error texts name it "gloo", as in PyTorch.
///
/// Every collective begins with a signature from each rank to each other rank. Between two ranks there are up to two
/// streams of bytes in each direction: the first stream carries inputs, the second carries results or forwarded data. A
/// small first stream is sent inside the signature. All other data is sent in chunks from the caller's memory after all
/// signatures are known to be equal, so the receiver can always process it immediately. Large collectives that are
/// queued behind the running one send their signatures early. A queued all_reduce also sends its inputs, after all data
/// of the running collective is sent. So the link is not idle between two collectives.
/// - all_reduce, reduce and broadcast between two ranks, or of few bytes, and all other kinds: each rank sends its data
///   directly to the ranks that take it, and these reduce it if necessary.
/// - other all_reduces: slice j of the tensor is sent to rank j. Rank j reduces it chunk by chunk and sends each result
///   immediately to all other ranks. reduce works in the same way, but sends the results only to the root.
/// - broadcast from one rank to several: each of the other ranks receives one slice from the root and forwards it.
/// Reductions read chunks of the other ranks from ring buffers, and this rank's input, grouped by host. A collective is
/// complete on a rank when the rank has received all data, and the kernel has taken all data that it sends.
class NetworkBackend final : public Backend {
 public:
  NetworkBackend(const ProcessGroupOptions& options, const Tuning& tuning);

  const char* name() const override { return "gloo"; }
  std::string describe() const override { return str(layout_.describe(), ": ", link_name()); }
  /// "gloo over eth0".
  std::string link_name() const;
  int max_polls() const override { return mesh_.max_polls(); }
  void do_start(const Collective& collective) override;
  bool do_prefetch_signature(const Collective& next, bool input_is_ready) override;
  Advance do_advance() override;
  void do_start_p2p(P2pRequest& transfer) override { messages_.start(transfer); }
  Advance do_advance_p2p() override;
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override { mesh_.sleep(changed, until); }
  void do_wake() override { mesh_.wake(); }
  void do_cancel() override;
  const PeerEnd* do_peer_end(int rank) override { return mesh_.end(rank); }
  bool do_drain(int rank) override;
  bool do_needs(int rank) override { return is_missing(rank, true); }
  bool do_needs_p2p(int rank) override { return messages_.waits_for(rank); }
  LastStarted do_last_started(int rank) const override;
  std::vector<int> do_awaited() override;
  void do_notify(const std::function<void()>& wake) override { mesh_.notify(wake); }

 private:
  static constexpr int kStreams = 2;
  static constexpr int kAhead = kStreams;  ///< index of the first stream of the next collective
  static constexpr size_t kMaxPrefetched = 8;
  static constexpr int64_t kUnit = 64;               ///< slices begin at multiples of this many bytes
  static constexpr int kWindow = 4;                  ///< chunks that are received before they are reduced
  static constexpr int64_t kLongTransfer = 3 << 20;  ///< bytes; the receiving thread takes part

  /// A stream from this rank to one other rank.
  struct Outgoing {
    const std::byte* base = nullptr;
    int64_t total = 0;
    int64_t ready = 0;  ///< bytes that may be sent now
    int64_t sent = 0;
    int64_t taken = 0;  ///< by the kernel: this memory may change
    int64_t ring = 0;   ///< if not 0: `base` is a ring buffer of this many bytes
  };
  /// A stream from one other rank to this rank.
  struct Incoming {
    std::byte* base = nullptr;  ///< null before open_streams(): the data is reduced
    int64_t total = 0;
    int64_t posted = 0;  ///< bytes whose memory the connection has
    int64_t arrived = 0;
    int64_t ring = 0;  ///< as in Outgoing
  };
  /// The reduction that this rank computes.
  struct Reduction {
    const std::byte* own = nullptr;
    std::byte* out = nullptr;
    int64_t total = 0;
    int64_t done = 0;
    int64_t ring = 0;       ///< as in Outgoing
    bool in_place = false;  ///< `out` is also sent: a chunk is overwritten only after it was sent
  };
  /// A data frame that the kernel has not taken yet.
  struct InFlightChunk {
    uint64_t index;  ///< number of the frame on the connection
    int stream;
    int64_t num_bytes;
  };
  struct Peer {
    std::deque<SignatureFrame> signatures;  ///< the first belongs to the running collective or a later one
    bool matched = false;
    Outgoing out[kStreams + 1];
    Incoming in[kStreams];
    std::deque<InFlightChunk> in_flight;
    std::unique_ptr<std::byte[]> window;  ///< ring buffer of data that is reduced; allocated when first used
    int64_t window_bytes = 0;
  };
  struct Prefetched {
    SignatureFrame frame;
    const std::byte* input;  ///< null: not ready before the collective starts
  };
  struct Slice {
    int64_t begin;
    int64_t num_bytes;
  };

  // network_backend.cc
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  Connection& link(int rank) { return mesh_.link(rank); }
  bool is_peer(int rank) const { return rank != rank_; }
  static SignatureFrame make_signature(const Collective& collective, uint64_t number);
  void post_signature(int to, SignatureFrame& frame);
  bool dispatch();
  void take_frame(Frame& frame);
  void note_started(int rank, const SignatureFrame& frame);
  bool match_signatures();
  void check_parts();
  /// Whether this rank waits for data of `rank`, or `rank` has not taken data. If the rank `has_ended`, data that has
  /// arrived and has no memory yet is not missing.
  bool is_missing(int rank, bool has_ended = false);

  // plan.cc: which data each rank sends to each other rank
  void plan();
  void plan_exchange();
  void plan_reduction();
  void plan_broadcast();
  /// Whether an all_reduce, reduce or broadcast of so many bytes has one step.
  bool is_exchanged(int64_t total) const { return size_ <= 2 || total <= static_cast<int64_t>(kInlineBytes); }
  /// The part with number `index` when a tensor of `total` bytes is divided into `count` parts.
  static Slice slice(int64_t total, int index, int count);
  /// The part of an all_reduce's input that is sent to `rank` in the first stream.
  Slice input_of(int rank, int64_t total) const;
  /// A lower bound of the bytes of a first stream that is not empty; 0 for kinds whose signatures are not sent early.
  int64_t smallest_first_stream(const Collective& collective) const;

  // streams.cc: the transfer
  void open_streams();
  /// Chunk size of a stream. Short streams also have several chunks, so that reducing one chunk overlaps with sending
  /// the next.
  int64_t chunk_bytes(int64_t total) const;
  bool move();
  bool note_sent();
  void note_arrived(int from, int stream, int64_t num_bytes);
  void post_window(int from);
  bool reduce_chunks();
  bool send_chunks();
  bool send_chunk(int to, int stream);
  void look_ahead();
  bool is_complete();

  const ProcessGroupOptions options_;
  const int rank_;
  const int size_;
  const Tuning tuning_;

  std::atomic<bool> is_cancelled_{false};
  bool drains_ = false;  // do_drain was called

  mutable std::mutex last_mutex_;
  std::vector<std::pair<LastStarted, Clock::time_point>> last_;  // by rank

  // The running collective.
  const Collective* call_ = nullptr;
  uint64_t number_ = 0;                // number of the running collective on this backend, from 1
  std::deque<Prefetched> prefetched_;  // collectives after the running one, in order
  bool sends_ahead_ = false;           // the inputs of prefetched_.front() are being sent
  std::atomic<uint64_t> finished_{0};  // number of the last completed collective
  SignatureFrame own_;
  std::vector<Peer> peers_;      // by rank
  std::vector<int> peer_ranks_;  // without this one
  int unmatched_ = 0;
  bool streaming_ = false;
  bool parts_disagree_ = false;  // the parts of two other ranks do not match; these two ranks fail the collective
  Reduction reduction_;
  int forwards_from_ = -1;  // rank whose data the second streams forward; -1: they carry results
  std::vector<std::byte> scratch_;
  std::optional<std::pair<std::byte*, int64_t>> own_part_;  // where this rank's data for itself is still to be copied
  std::vector<const std::byte*> inputs_;
  std::vector<Frame> frames_;

  Mesh mesh_;  // declared after the members that its threads use
  const HostLayout layout_;
  const bool sums_by_host_;  // the order of sums is reduce_by_hosts()'s
  std::vector<std::byte> partial_results_;
  P2pMatcher messages_;
};

/// Joins the ranks of `options`; collective.
std::unique_ptr<Backend> make_network_backend(const ProcessGroupOptions& options, const Tuning& tuning = {});

}}}  // namespace tandem::v0::distributed::network

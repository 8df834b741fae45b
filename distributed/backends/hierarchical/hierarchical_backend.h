// Collectives of a group on several hosts with several ranks each. Private to distributed/.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/rendezvous/host_layout.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Sizes that all ranks of a group must agree on. Results do not depend on them.
struct HostTuning {
  /// Up to this size only one rank per host (its leader) sends the data of an all_reduce to other hosts, and the flat
  /// backend runs the other collectives.
  int64_t leader_bytes = 64 << 10;
  int64_t chunk_bytes = 4 << 20;  ///< of a chunk; the phases of a chunk overlap those of the next chunk
  int ahead = 3;                  ///< chunks that are prepared inside the host before the first one was delivered
};

/// The backends that a HierarchicalBackend consists of, on one rank.
struct HostBackends {
  std::unique_ptr<Backend> flat;   ///< connects all ranks
  std::unique_ptr<Backend> local;  ///< connects the ranks of this host
  /// Connects the ranks of all hosts that have the same local rank. If the hosts have different numbers of ranks, it
  /// connects only the lowest rank of each host, and is null on all other ranks.
  std::unique_ptr<Backend> cross;
  std::string link;  ///< for describe(): "gloo over eth0"
};

/// The backend of one rank, composed of three backends.
///
/// The flat backend compares all signatures, and runs the collectives that are small or have no phases below. The
/// others are cut into chunks. Each chunk passes three phases: it is prepared inside the host, crosses the link between
/// ranks with the same local rank, and is delivered inside the host.
///
///     kind            prepare                   cross                      deliver
///     all_reduce      reduce-scatter            all_reduce of one slice    all-gather
///     reduce          reduce-scatter            reduce of one slice        root's host: the slices to the root
///     broadcast       root's host: broadcast    broadcast of one slice     other hosts: all-gather
///     reduce_scatter  reduce-scatter per host   reduce-scatter             -
///     all_gather      -                         all-gather                 all-gather per host
///
/// So every host sends each byte once, in as many flows as it has ranks, and the network transfers one chunk while the
/// next is prepared and the previous is delivered. If hosts have different numbers of ranks, and for a small
/// all_reduce, there is one flow between the lowest ranks of the hosts (leaders): the only slice is the whole chunk.
/// Then a reduce_scatter is one reduce to each rank, and an all_gather one broadcast from each rank. All variants
/// reduce in the same order: the ranks of each host, then the hosts.
///
/// Until all signatures are known to be equal, reductions use only memory of this backend, and the other kinds wait.
class HierarchicalBackend final : public Backend {
 public:
  HierarchicalBackend(const ProcessGroupOptions& options, const HostLayout& layout, HostBackends backends,
                      const HostTuning& tuning = {});

  const char* name() const override { return "shm and gloo"; }
  std::string describe() const override;
  int max_polls() const override;
  void do_start(const Collective& collective) override;
  bool do_prefetch_signature(const Collective& next, bool input_is_ready) override;
  Advance do_advance() override;
  void do_start_p2p(P2pRequest& transfer) override { flat_->do_start_p2p(transfer); }
  Advance do_advance_p2p() override { return flat_->do_advance_p2p(); }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override { local_->do_sleep(changed, until); }
  void do_wake() override { local_->do_wake(); }
  void do_cancel() override;
  const PeerEnd* do_peer_end(int rank) override;
  bool do_drain(int rank) override;
  bool do_needs(int rank) override;
  bool do_needs_p2p(int rank) override { return flat_->do_needs_p2p(rank); }
  LastStarted do_last_started(int rank) const override { return flat_->do_last_started(rank); }
  std::vector<int> do_awaited() override;

 private:
  /// Elements [begin, begin + count) of a tensor or chunk.
  struct Range {
    int64_t begin;
    int64_t count;
  };
  // The rank's number in local_ and in cross_; -1: it is not one of their ranks.
  int rank_in_local(int rank) const { return is_on_this_host(rank) ? layout_.local_rank(rank) : -1; }
  int rank_in_cross(int rank) const {
    return cross_ != nullptr && layout_.local_rank(rank) == local_rank_ ? layout_.host_of(rank) : -1;
  }
  /// One chunk of the running collective.
  struct Piece : Range {
    int root;            ///< -1: none
    Part input, output;  ///< unless each rank has parts
  };
  /// Bytes of the tensor that all ranks together send or receive.
  int64_t total_bytes(const Collective& c) const {
    return c.num_bytes() * (c.kind == CollectiveKind::kReduceScatter ? options_.world_size : 1);
  }
  bool has_phases(const Collective& collective) const;
  Piece piece(int64_t index) const;
  /// The slice of a chunk of `count` elements that the flow of local rank `local` transfers between the hosts. All
  /// slices have the same length, so the last ones may overlap.
  Range slice(int64_t count, int local) const;
  /// The part of slice(count, local) that no lower local rank has.
  Range own_part(int64_t count, int local) const;
  /// Elements of a chunk of `count` elements (a reduce_scatter: for each rank) that one flow reduces.
  int64_t width(int64_t count) const { return kind_ == CollectiveKind::kReduceScatter ? count : slice(count, 0).count; }
  /// The range of a part, which may be shorter.
  Part cut(const Part& part, Range range) const;
  Part part_of(const std::vector<Part>& parts, int host, int local, Range range) const;
  bool is_on_this_host(int rank) const { return layout_.host_of(rank) == host_; }
  const std::vector<int>& members(int host) const { return layout_.hosts[static_cast<size_t>(host)]; }

  bool advance_local();
  bool advance_cross();
  /// Starts local call number `step` of the phase. Returns false if the phase has no further call on this host.
  bool start_prepare(const Piece& piece, int step);
  bool start_deliver(const Piece& piece, int step);
  Collective cross_call(int64_t index) const;
  /// What other ranks compare of `collective`, without its data.
  static Collective signature_of(Collective collective);
  Collective inner(CollectiveKind kind, DType dtype, int64_t num_elements) const;
  std::byte* slot(int64_t index) const { return slots_->data() + index % tuning_.ahead * slot_bytes_; }

  const ProcessGroupOptions options_;
  const HostLayout layout_;
  const std::string link_;
  const HostTuning tuning_;
  const int host_;
  const int local_rank_;
  const int local_size_;

  // Buffers, kept for the next collective. The backends may still use them while they are destroyed.
  int64_t slot_bytes_ = 0;
  RefPtr<Storage> slots_;  // tuning_.ahead partial results
  RefPtr<Storage> wide_;   // a chunk of half type, as float32

  // Threads of the other backends wake local_, so it is destroyed last.
  const std::unique_ptr<Backend> local_;
  const std::unique_ptr<Backend> flat_;
  const std::unique_ptr<Backend> cross_;

  // The running collective.
  const Collective* call_ = nullptr;
  Collective flat_call_;
  Collective local_call_;
  Collective cross_call_;
  bool has_phases_ = false;                           // else the flat backend runs the whole call
  bool matched_ = false;                              // all signatures are equal
  std::exception_ptr failed_;                         // error of a phase; a signature mismatch takes precedence
  CollectiveKind kind_ = CollectiveKind::kAllReduce;  // of the phases: differs from the call's for one flow
  DType partial_ = kFloat32;                          // dtype of the data between hosts
  int flows_ = 1;
  bool crosses_ = false;  // this rank has a flow to other hosts
  int num_roots_ = 1;     // more than 1: chunk i has the root i % num_roots_
  int64_t longest_ = 0;   // elements of the longest tensor that is cut into chunks
  int64_t chunk_elements_ = 0;
  int64_t num_chunks_ = 0;
  int64_t cross_seq_ = 0;  // of the last call of cross_ before this collective: each chunk has its own
  int64_t prepared_ = 0;   // chunks that have completed each phase
  int64_t crossed_ = 0;
  int64_t delivered_ = 0;
  int step_ = 0;  // local calls that the phase of the next chunk has started
  bool local_runs_ = false;
  bool cross_runs_ = false;
};

}}}  // namespace tandem::v0::distributed

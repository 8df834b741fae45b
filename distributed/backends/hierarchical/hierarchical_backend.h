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
  int64_t leader_bytes = 64 << 10;  ///< up to this size only one rank per host (its leader) sends to other hosts
  int64_t chunk_bytes = 4 << 20;    ///< of a chunk; the phases of a chunk overlap those of the next chunk
  int ahead = 3;                    ///< chunks that are reduced inside the host before the first one has returned
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
/// The flat backend compares all signatures and runs all collectives except all_reduce. An all_reduce is cut into
/// chunks. Each chunk passes three phases: reduce-scatter inside the host, all_reduce of this rank's slice between
/// ranks with the same local rank, all-gather inside the host. So every host sends each byte once, in as many flows as
/// it has ranks, and the network transfers one chunk while the next is reduced and the previous is gathered. If hosts
/// have different numbers of ranks, and for small tensors, there is one flow between the lowest ranks of the hosts
/// (leaders): reduce, all_reduce, broadcast. Both variants reduce in the same order: the ranks of each host, then the
/// hosts.
///
/// The phases use only memory of this backend until all signatures are known to be equal. Only then is the output
/// written.
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
  void do_abort(int culprit, const std::string& reason) override;
  void do_notify_failure(int culprit, const std::string& reason) override;
  LastStarted do_last_started(int rank) const override { return flat_->do_last_started(rank); }
  std::vector<int> do_awaited() override;
  void do_throw_failure() override { flat_->do_throw_failure(); }

 private:
  /// Elements [begin, begin + count) of a tensor or chunk.
  struct Range {
    int64_t begin;
    int64_t count;
  };
  Range chunk(int64_t index) const;
  /// The slice of a chunk of `count` elements that the flow of local rank `local` reduces between the hosts. All slices
  /// have the same length, so the last ones may overlap.
  Range slice(int64_t count, int local) const;
  /// The part of slice(count, local) that no lower local rank has.
  Range own_part(int64_t count, int local) const;

  bool advance_local();
  bool advance_cross();
  void start_reduce();
  void start_gather();
  void start_cross();
  Collective inner(CollectiveKind kind, DType dtype, int64_t num_elements) const;
  std::byte* slot(int64_t chunk_index) const;

  const ProcessGroupOptions options_;
  const HostLayout layout_;
  const std::string link_;
  const HostTuning tuning_;
  const std::vector<int> inside_;  // ranks in the job of the ranks of this host
  const int local_rank_;
  const int local_size_;
  std::vector<int> across_;  // ranks in the job of the ranks of cross_

  // Buffers, kept for the next collective. The backends may still use them while they are destroyed.
  int64_t slot_bytes_ = 0;
  RefPtr<Storage> slots_;   // tuning_.ahead partial results
  RefPtr<Storage> wide_;    // a chunk of half type, as float32
  RefPtr<Storage> narrow_;  // a slice of half type

  // Threads of the other backends wake local_, so it is destroyed last.
  const std::unique_ptr<Backend> local_;
  const std::unique_ptr<Backend> flat_;
  const std::unique_ptr<Backend> cross_;

  // The running collective.
  const Collective* call_ = nullptr;
  Collective flat_call_;
  Collective local_call_;
  Collective cross_call_;
  bool matched_ = false;       // all signatures are equal
  std::exception_ptr failed_;  // error of a phase; a signature mismatch takes precedence
  DType partial_ = kFloat32;   // dtype of the data between hosts
  int flows_ = 1;
  bool crosses_ = false;  // this rank has a flow to other hosts
  int64_t chunk_elements_ = 0;
  int64_t num_chunks_ = 0;
  int64_t reduced_ = 0;  // chunks that have completed each phase
  int64_t crossed_ = 0;
  int64_t gathered_ = 0;
  enum class Phase : uint8_t { kNone, kReduce, kGather };
  Phase local_phase_ = Phase::kNone;
  bool cross_runs_ = false;
};

}}}  // namespace tandem::v0::distributed

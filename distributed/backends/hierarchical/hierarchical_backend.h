// Collectives of a group on several hosts with several ranks each. Private to distributed/.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/rendezvous/host_layout.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Sizes that all ranks of a group agree on; results do not depend on them.
struct HostTuning {
  int64_t leader_bytes = 64 << 10;  ///< up to this size only the leaders exchange between hosts
  int64_t chunk_bytes = 4 << 20;    ///< of a tensor, whose phases overlap those of the next
  int ahead = 3;                    ///< chunks that are combined inside the host before one has come back
};

/// The parts that a HierarchicalBackend is made of, for one rank.
struct HostBackends {
  std::unique_ptr<Backend> flat;   ///< of all ranks
  std::unique_ptr<Backend> local;  ///< of this host's
  /// Of the ranks with this one's number in their hosts; where hosts have different numbers of ranks, of the lowest of
  /// each host only, and null elsewhere.
  std::unique_ptr<Backend> cross;
  std::string link;  ///< shown: "gloo over eth0"
};

/// The backend of one rank, made of three.
///
/// The flat one compares all signatures and moves everything but all_reduce. An all_reduce is cut into chunks, and
/// each goes through three phases: reduce-scatter inside the host, all_reduce of the own slice between the ranks of
/// equal number in their hosts, all-gather inside the host. So every host sends each byte once, in as many flows as
/// it has ranks, and the link works on one chunk while the next is combined and the one before handed out. Where
/// hosts have different numbers of ranks, and for small tensors, there is one flow between the hosts' lowest ranks
/// (leaders): reduce, all_reduce, broadcast. Both combine in the same order: ascending ranks inside a host, then hosts
/// ascending.
///
/// The phases run in memory of this backend until all signatures have been found equal; only then is anything written
/// to the output.
class HierarchicalBackend final : public Backend {
 public:
  HierarchicalBackend(const ProcessGroupOptions& options, const HostLayout& layout, HostBackends backends,
                      const HostTuning& tuning = {});

  const char* name() const override { return "shm and gloo"; }
  std::string describe() const override;
  bool may_spin() const override;
  void do_start(const Collective& collective) override;
  bool do_announce(const Collective& next, bool input_is_ready) override;
  Advance do_advance() override;
  void do_start_transfer(Transfer& transfer) override { flat_->do_start_transfer(transfer); }
  Advance do_advance_transfers() override { return flat_->do_advance_transfers(); }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override { local_->do_sleep(changed, until); }
  void do_wake() override { local_->do_wake(); }
  void do_abort(int culprit, const std::string& reason) override;
  void do_hear_failure(int culprit, const std::string& reason) override;
  LastStarted do_last_started(int rank) const override { return flat_->do_last_started(rank); }
  std::vector<int> do_awaited() override;

 private:
  /// Elements [begin, begin + count) of a tensor or chunk.
  struct Range {
    int64_t begin;
    int64_t count;
  };
  Range chunk(int64_t index) const;
  /// Of a chunk of `count` elements, what the flow of local rank `local` combines between the hosts. All are equally
  /// long, so the last ones may overlap.
  Range slice(int64_t count, int local) const;
  /// The part of slice(count, local) that no rank before has.
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
  const std::vector<int> inside_;  // numbers in the job of the ranks of this host
  const int local_rank_;
  const int local_size_;
  std::vector<int> across_;  // and of those of cross_

  // Memory that the backends may still use while they end, kept for the next collective.
  int64_t slot_bytes_ = 0;
  RefPtr<Storage> slots_;   // tuning_.ahead partial results
  RefPtr<Storage> wide_;    // a chunk of half type, as float32
  RefPtr<Storage> narrow_;  // a slice of half type

  // The others' threads ring the local one, so it goes last.
  const std::unique_ptr<Backend> local_;
  const std::unique_ptr<Backend> flat_;
  const std::unique_ptr<Backend> cross_;

  // The running collective.
  const Collective* call_ = nullptr;
  Collective flat_call_;
  Collective local_call_;
  Collective cross_call_;
  bool matched_ = false;       // all signatures are equal
  std::exception_ptr failed_;  // of a phase; what the signatures say goes before
  DType partial_ = kFloat32;   // of what travels between hosts
  int flows_ = 1;
  bool crosses_ = false;  // this rank has a flow
  int64_t chunk_elements_ = 0;
  int64_t num_chunks_ = 0;
  int64_t reduced_ = 0;  // chunks that have passed each phase
  int64_t crossed_ = 0;
  int64_t gathered_ = 0;
  enum class Phase : uint8_t { kNone, kReduce, kGather };
  Phase local_phase_ = Phase::kNone;
  bool cross_runs_ = false;
};

}}}  // namespace tandem::v0::distributed

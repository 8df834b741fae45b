// Collectives among a group of ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/base/future.h>
#include <tandem/base/macros.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::distributed {

enum class ReduceOp : uint8_t { kSum, kAvg, kProduct, kMin, kMax };

/// How a collective is shown in errors and traces, and its deadline.
struct CollectiveOptions {
  std::string name = {};                 ///< what is exchanged, e.g. "bucket 3 of 7: 'fc1.weight' .. 'fc2.bias'"
  std::chrono::milliseconds timeout{0};  ///< 0 = the group's
  std::source_location where = std::source_location::current();
};

struct ProcessGroupOptions {
  std::shared_ptr<Store> store;
  int rank = 0;
  int world_size = 1;
  std::string name = "default";  ///< must be the same on all ranks and new in this job
  std::chrono::milliseconds timeout{300000};
  bool thread_ranks = false;  ///< ranks are threads of this process
};

/// Ranks that exchange tensors.
///
/// A group is a FIFO queue and a lock: operations run in the order in which they were started, which must be the same
/// on all ranks.  The blocking forms run on the caller's thread where nothing is queued; the _async forms queue and
/// return a Work.  Every operation carries a number and a signature (kind, operator, dtype, count, root, name); ranks
/// compare them before data is touched, and a difference throws CommError on every rank, with both sides.  An operation
/// that misses its deadline, a rank that dies or calls abort, poison the group: this and all later operations throw
/// CommError. Safe from many threads.  CPU tensors only.
class TANDEM_API ProcessGroup {
 public:
  /// Joins the ranks of `options`.  Collective; throws CommError when not all have joined by the deadline.
  static std::shared_ptr<ProcessGroup> create(ProcessGroupOptions options);
  /// Operations still queued fail, and poison the group: wait for them first.
  ~ProcessGroup();

  int rank() const;
  int size() const;
  const std::string& name() const;

  /// tensor = reduction over all ranks' tensors (same shape and dtype), in place; any strides.  Sums run in ascending
  /// rank order; half types are summed in float32 and rounded once.  kAvg: floating dtypes, divided once after the sum;
  /// for bool kSum is "or" and kProduct "and".
  void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, CollectiveOptions options = {});
  Work all_reduce_async(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, CollectiveOptions options = {});
  /// tensor = root's tensor.
  void broadcast(const Tensor& tensor, int root, CollectiveOptions options = {});
  Work broadcast_async(const Tensor& tensor, int root, CollectiveOptions options = {});
  /// output [size(), ...] = the inputs [...] of all ranks, stacked in rank order.
  void all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options = {});
  Work all_gather_async(const Tensor& output, const Tensor& input, CollectiveOptions options = {});
  /// Returns when all ranks have called it.
  void barrier(CollectiveOptions options = {});

  /// Runs the head of the queue as far as it goes without waiting; returns whether anything is left.  For hooks.
  bool progress();
  /// Poisons the group: peers' operations throw CommError with this rank and reason.
  void abort(const std::string& reason);
  /// Memory of `num_bytes` that the group moves best.  Collective: all ranks allocate the same sizes in the same order.
  RefPtr<Storage> allocate(int64_t num_bytes);

 private:
  friend struct ProcessGroupAccess;
  class Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::distributed

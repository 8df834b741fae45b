// Collectives and messages among a group of ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/base/future.h>
#include <tandem/base/macros.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/tensor/reduce_op.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

using v0::ReduceOp;

/// How an operation is shown in errors and traces, and its deadline.
struct CollectiveOptions {
  std::string name = {};                 ///< what is exchanged, e.g. "bucket 3 of 7: 'fc1.weight' .. 'fc2.bias'"
  std::chrono::milliseconds timeout{0};  ///< 0 = the group's
  std::source_location where = std::source_location::current();
};

/// One message of batch_isend_irecv.
struct P2POp {
  enum class Kind : uint8_t { kSend, kRecv };
  Kind kind = Kind::kSend;
  Tensor tensor;
  int peer = 0;
  int tag = 0;
};

/// Ranks that exchange tensors.
///
/// A group is a FIFO queue and a lock: collectives run in the order in which they were started, which must be the same
/// on all ranks.  The blocking forms run on the caller's thread where nothing is queued; the _async forms queue and
/// return a Work.  Every collective carries a number and a signature (kind, operator, dtype, shape, root, name); ranks
/// compare them before data is used, and a difference throws CommError on every rank, with both sides.  Shapes are compared as
/// they are, also of tensors without elements: [2, 3] fits neither [3, 2] nor [6], and [] does not fit [1].  Where flat data is
/// meant, pass `tensor.view({-1})` on every rank.  Strides may differ between ranks.  A collective
/// that misses its deadline, a member that dies or calls abort, poison the group: this and all later operations throw
/// CommError.  After five seconds of waiting the group logs one line: who is missing, and what they did last; and again
/// each time the wait has doubled.
///
/// `root`, `src`, `dst` and the order of parts are ranks of this group; errors name ranks by their numbers in the job.
/// Safe from many threads.  Tensors of every dtype and any strides, all of a call of one dtype and device.  What is not row-major is
/// copied once, when the operation begins and at its end.  Outputs must not be expanded, nor share memory with each other or with
/// what is read, unless stated.  For bool kSum is "or" and kProduct "and"; kAvg is of floating dtypes.
///
/// CPU tensors: sums run in one order that the group's layout fixes (docs/determinism.md); half types are summed in float32 and
/// rounded once; kAvg divides once after the sum.
///
/// Tensors of the rank's one GPU, where the group has NCCL (ProcessGroupOptions::backend): a collective begins when what the
/// caller's current stream holds is done, and the tensors are kept and not used again until the GPU is done with them.  wait()
/// returns when all ranks have started the same, and puts what the waiter's current stream is given next behind the results; the
/// host does not wait for the GPU.  NCCL makes links when it first takes one of its algorithms, which depends on kind and size;
/// such a call returns, in the _async forms too, when all ranks have made it.  Sums have NCCL's order and rounding: kAvg multiplies
/// by 1 / ranks, rounded to the dtype, which in half types is off by up to 0.2 % where the number of ranks is no power of two; kMin
/// and kMax leave NaN out, where CPU tensors pass it on.  Bitwise operators of integers are a DTypeError.  Collectives of groups
/// that share GPUs must be started in one order on all ranks.  A group of one rank copies on the caller's current stream.
///
/// Arguments are checked before anything is sent: StateError for undefined tensors, and DeviceError, DTypeError,
/// ShapeError and ValueError leave the tensors as they were, and the group usable where all ranks throw them.
class TANDEM_API ProcessGroup {
 public:
  using Options = CollectiveOptions;

  /// Joins the ranks of `options`.  Collective; throws CommError when not all have joined by the deadline.
  static std::shared_ptr<ProcessGroup> create(ProcessGroupOptions options);
  /// Operations still queued fail, and poison the group: wait for them first.
  ~ProcessGroup();

  int rank() const;
  int size() const;
  const std::string& name() const;
  /// Numbers of the members in the job, by rank of this group.
  const std::vector<int>& ranks() const;

  /// tensor = reduction over all ranks' tensors (same shape and dtype), in place.
  void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work all_reduce_async(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, Options options = {});
  /// output = reduction over all ranks' inputs; inputs are unchanged.  Both may be the same.
  void all_reduce(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work all_reduce_async(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum, Options options = {});

  /// On root: tensor = reduction over all ranks' tensors (same shape and dtype).  The other ranks' tensors are unchanged.
  void reduce(const Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work reduce_async(const Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum, Options options = {});

  /// tensor = root's tensor (same shape and dtype on all ranks).
  void broadcast(const Tensor& tensor, int root, Options options = {});
  Work broadcast_async(const Tensor& tensor, int root, Options options = {});

  /// On root: output [size(), ...], or outputs [...] by rank, = the inputs [...], of one shape, of all ranks; its own part may
  /// be its input.  Elsewhere the output is an undefined tensor, or an empty list.
  void gather(const Tensor& output, const Tensor& input, int root, Options options = {});
  Work gather_async(const Tensor& output, const Tensor& input, int root, Options options = {});
  void gather(const std::vector<Tensor>& outputs, const Tensor& input, int root, Options options = {});
  Work gather_async(const std::vector<Tensor>& outputs, const Tensor& input, int root, Options options = {});

  /// output [size(), ...] = the inputs [...], of one shape, of all ranks, stacked in rank order.  output[rank()] may be the input.
  void all_gather(const Tensor& output, const Tensor& input, Options options = {});
  Work all_gather_async(const Tensor& output, const Tensor& input, Options options = {});
  /// outputs[r] = rank r's input.  Shapes may differ between ranks: every rank states all of them by its outputs, and the
  /// signature compares them.  outputs[rank()] may be the input.
  void all_gather(const std::vector<Tensor>& outputs, const Tensor& input, Options options = {});
  Work all_gather_async(const std::vector<Tensor>& outputs, const Tensor& input, Options options = {});

  /// output [...], of one shape on all ranks, = row, or element, `rank()` of root's input [size(), ...], or inputs [...]; on root
  /// the output may be that row or element.  Elsewhere than on root the input is an undefined tensor, or an empty list.
  void scatter(const Tensor& output, const Tensor& input, int root, Options options = {});
  Work scatter_async(const Tensor& output, const Tensor& input, int root, Options options = {});
  void scatter(const Tensor& output, const std::vector<Tensor>& inputs, int root, Options options = {});
  Work scatter_async(const Tensor& output, const std::vector<Tensor>& inputs, int root, Options options = {});

  /// output [...], of one shape on all ranks, = reduction over all ranks of row, or element, `rank()` of their inputs [size(), ...],
  /// or [...].  The output may be that row or element.
  void reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum,
                            Options options = {});
  void reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = ReduceOp::kSum,
                      Options options = {});
  Work reduce_scatter_async(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = ReduceOp::kSum,
                            Options options = {});

  /// output[r] = rank r's input[rank()], both [size(), ...].
  void all_to_all(const Tensor& output, const Tensor& input, Options options = {});
  Work all_to_all_async(const Tensor& output, const Tensor& input, Options options = {});
  /// outputs[r] = rank r's inputs[rank()]; shapes may differ between pairs, and both sides of a pair must state the same.
  void all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, Options options = {});
  Work all_to_all_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, Options options = {});
  /// The same on parts of dimension 0: of input, input_splits[r] rows go to rank r; of output, output_splits[r] come from
  /// it.  A part is [rows, ...], also where it has one row, or none.
  void all_to_all(const Tensor& output, const Tensor& input, const std::vector<int64_t>& output_splits,
                  const std::vector<int64_t>& input_splits, Options options = {});
  Work all_to_all_async(const Tensor& output, const Tensor& input, const std::vector<int64_t>& output_splits,
                        const std::vector<int64_t>& input_splits, Options options = {});

  /// Messages between two ranks.  They run beside the collectives and beside each other; those of one pair and tag arrive
  /// in the order in which they were started, those of different tags in any.  A send completes when the receiver has
  /// agreed to it (same dtype, shape and name) and has the data; a difference throws CommError on both sides.  Tags are
  /// 0 or more; a rank sends nothing to itself.  A GPU's tensor goes through the host's memory, whatever the other side has: the
  /// call waits for the caller's current stream, and what is received is there when the message is done.
  void send(const Tensor& tensor, int dst, int tag = 0, Options options = {});
  Work isend(const Tensor& tensor, int dst, int tag = 0, Options options = {});
  void recv(const Tensor& tensor, int src, int tag = 0, Options options = {});
  Work irecv(const Tensor& tensor, int src, int tag = 0, Options options = {});
  /// Starts all of them, in whatever order the ranks list theirs; returns their handles.
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops, Options options = {});

  /// Returns when all ranks have called it.
  void barrier(Options options = {});
  Work barrier_async(Options options = {});
  /// A barrier through the store, beside whatever is queued: where ranks are missing when the first deadline passes it
  /// throws CommError naming all of them, on every rank that came or comes later, and the group stays usable.  A member
  /// that failed or left the job before it came is an error at once.
  void monitored_barrier(Options options = {});

  /// Several tensors in one operation per dtype; element i of each rank's list corresponds.  Ranks compare the dtypes and
  /// shapes of all elements.  The stacked lists are as for all_gather and reduce_scatter: [size(), ...] of [...].
  void all_reduce_coalesced(const std::vector<Tensor>& tensors, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work all_reduce_coalesced_async(const std::vector<Tensor>& tensors, ReduceOp op = ReduceOp::kSum,
                                  Options options = {});
  void broadcast_coalesced(const std::vector<Tensor>& tensors, int root, Options options = {});
  Work broadcast_coalesced_async(const std::vector<Tensor>& tensors, int root, Options options = {});
  void all_gather_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                            Options options = {});
  Work all_gather_coalesced_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                  Options options = {});
  void reduce_scatter_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                ReduceOp op = ReduceOp::kSum, Options options = {});
  Work reduce_scatter_coalesced_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                      ReduceOp op = ReduceOp::kSum, Options options = {});

  /// The mean over all ranks' values, each counting `weight` (of samples, say) times; for metrics.  A value of weight 0
  /// may be anything; NaN where all weights are zero.
  double reduce_mean(double value, double weight = 1, Options options = {});
  /// The mean of a tensor, of one shape on all ranks, a new tensor; integers and bool become float64.
  Tensor reduce_mean(const Tensor& tensor, Options options = {});

  /// Runs what is queued as far as it goes without waiting; returns whether anything is left.  For hooks.
  bool progress();
  /// Poisons the group: operations of all ranks throw CommError with this rank and reason.
  void abort(const std::string& reason);

 private:
  friend struct ProcessGroupAccess;
  class Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::distributed

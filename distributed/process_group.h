// Collectives and point-to-point communication among a group of ranks.
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
using v0::Work;

/// Options of one operation.
struct CollectiveOptions {
  std::string name = {};                 ///< shown in errors and traces; must be equal on all ranks
  std::chrono::milliseconds timeout{0};  ///< 0: the timeout of the group
  std::source_location where = std::source_location::current();  ///< shown in errors: where the operation was called
};

/// One operation of batch_isend_irecv.
struct P2POp {
  /// Direction of the message.
  enum class Kind : uint8_t { kSend, kRecv };
  Kind kind = Kind::kSend;  ///< send or receive
  Tensor tensor;            ///< sent, or received into
  int peer = 0;             ///< rank of the other side in the group
  int tag = 0;              ///< as in send and recv
};

/// A group of ranks that communicate, as torch.distributed.ProcessGroup.
///
/// Order. Collectives run in FIFO order, which must be the same on all ranks. Blocking calls run on the calling
/// thread if the queue is empty; calls with suffix _async enqueue and return a Work. `root`, `src`, `dst` and list
/// indices are ranks of this group; error messages use ranks of the job.
///
/// Thread safety: all methods may be called concurrently; the order between threads is then unspecified, so use one
/// thread per group, or synchronize.
///
/// Tensors: any dtype and any strides. All tensors of one collective are on one device and, except in the coalesced
/// forms, have one dtype. Non-contiguous tensors are copied once at the beginning and once at the end. Outputs must not
/// be expanded and must not share memory with each other or with inputs, unless stated. For bool, kSum means logical OR
/// and kProduct means logical AND. kAvg requires a floating dtype.
///
/// Consistency check. Each collective has a sequence number and a signature (kind, operator, dtype, shape, root,
/// name). Ranks compare signatures before data is used; a mismatch throws CommError on every rank, showing both sides.
/// Shapes must be equal even without elements: [2, 3] does not match [3, 2] or [6], and [] does not match [1]. For
/// flat data pass tensor.view({-1}) on every rank. Strides may differ.
///
/// Failures. If a collective times out, or a member dies or calls abort, the group is poisoned: this operation and all
/// later ones throw CommError. After five seconds of waiting, and each time the wait has doubled, one log line names
/// the missing ranks and their last operations.
///
/// CPU tensors: the order of summation depends only on the layout of the group (docs/determinism.md). Half types are
/// accumulated in float32 and rounded once; kAvg divides once after the sum.
///
/// CUDA tensors (NCCL, see ProcessGroupOptions::backend; one GPU per rank): a collective starts after all work on the
/// caller's current stream, and keeps its tensors alive until it is complete. Work::wait() returns when all ranks have
/// started the same collective, and makes the caller's current stream wait for the result; it does not block the host
/// until the transfer completes. NCCL chooses an algorithm by the kind and size of a collective. The first call that
/// needs a new algorithm opens connections and blocks until all ranks have called, even in the _async forms. Summation
/// order and rounding are NCCL's: kAvg multiplies by 1 / size() rounded to the dtype, an error of up to 0.2 % in half
/// types if size() is not a power of two; kMin and kMax ignore NaN, while CPU tensors propagate it. Bitwise operators
/// and reductions of int16 throw DTypeError. Collectives of different groups that share GPUs must be started in the
/// same order on all ranks. A group of one rank copies on the caller's current stream.
///
/// Arguments are checked before anything is sent: undefined tensors throw StateError; other invalid arguments throw
/// DeviceError, DTypeError, ShapeError or ValueError. In this case tensors are unchanged, and the group stays usable if
/// all ranks throw.
class TANDEM_API ProcessGroup {
 public:
  /// Type of the options of one operation.
  using Options = CollectiveOptions;

  /// Creates a group. Collective. Throws ValueError or StateError for invalid options, and CommError naming the
  /// missing ranks if the rendezvous times out or fails.
  static std::shared_ptr<ProcessGroup> create(ProcessGroupOptions options);
  /// Wait for asynchronous operations before the destruction: operations that are still queued fail, and poison the
  /// group on all ranks.
  ~ProcessGroup();

  int rank() const;                 ///< of this process or thread in the group
  int size() const;                 ///< number of ranks
  const std::string& name() const;  ///< shown in errors and traces
  /// Ranks of the members in the job, indexed by rank of this group.
  const std::vector<int>& ranks() const;

  /// tensor = reduction of `tensor` over all ranks, in place. Equal shape and dtype on all ranks.
  void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work all_reduce_async(const Tensor& tensor, ReduceOp op = ReduceOp::kSum, Options options = {});
  /// output = reduction of `input` over all ranks. `output` may be `input`.
  void all_reduce(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work all_reduce_async(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum, Options options = {});

  /// On root: tensor = reduction of `tensor` over all ranks. On other ranks `tensor` is unchanged. Equal shape and
  /// dtype on all ranks.
  void reduce(const Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work reduce_async(const Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum, Options options = {});

  /// tensor = the tensor of root. Equal shape and dtype on all ranks.
  void broadcast(const Tensor& tensor, int root, Options options = {});
  Work broadcast_async(const Tensor& tensor, int root, Options options = {});

  /// On root: output[r] = input of rank r. input [...] has equal shapes on all ranks; output is [size(), ...], or a
  /// list of size() tensors [...]. output[root] may be the input of root. On other ranks pass an undefined tensor or
  /// an empty list.
  void gather(const Tensor& output, const Tensor& input, int root, Options options = {});
  Work gather_async(const Tensor& output, const Tensor& input, int root, Options options = {});
  void gather(const std::vector<Tensor>& outputs, const Tensor& input, int root, Options options = {});
  Work gather_async(const std::vector<Tensor>& outputs, const Tensor& input, int root, Options options = {});

  /// output[r] = input of rank r. input [...] has equal shapes on all ranks; output is [size(), ...]. output[rank()]
  /// may be `input`.
  void all_gather(const Tensor& output, const Tensor& input, Options options = {});
  Work all_gather_async(const Tensor& output, const Tensor& input, Options options = {});
  /// outputs[r] = input of rank r. Shapes may differ between ranks; the shapes of all outputs are part of the
  /// consistency check. outputs[rank()] may be `input`.
  void all_gather(const std::vector<Tensor>& outputs, const Tensor& input, Options options = {});
  Work all_gather_async(const std::vector<Tensor>& outputs, const Tensor& input, Options options = {});

  /// output = input[rank()] of root. output [...] has equal shapes on all ranks; input is [size(), ...], or a list of
  /// size() tensors [...]. On root the output may be input[root]. On other ranks pass an undefined tensor or an empty
  /// list.
  void scatter(const Tensor& output, const Tensor& input, int root, Options options = {});
  Work scatter_async(const Tensor& output, const Tensor& input, int root, Options options = {});
  void scatter(const Tensor& output, const std::vector<Tensor>& inputs, int root, Options options = {});
  Work scatter_async(const Tensor& output, const std::vector<Tensor>& inputs, int root, Options options = {});

  /// output = reduction of input[rank()] over all ranks. output [...] has equal shapes on all ranks; input is [size(),
  /// ...], or a list of size() tensors [...]. The output may be input[rank()].
  void reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum, Options options = {});
  Work reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum,
                            Options options = {});
  void reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = ReduceOp::kSum,
                      Options options = {});
  Work reduce_scatter_async(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = ReduceOp::kSum,
                            Options options = {});

  /// output[r] = input[rank()] of rank r; both [size(), ...].
  void all_to_all(const Tensor& output, const Tensor& input, Options options = {});
  Work all_to_all_async(const Tensor& output, const Tensor& input, Options options = {});
  /// outputs[r] = inputs[rank()] of rank r. Shapes may differ between pairs of ranks, but must match within a pair.
  void all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, Options options = {});
  Work all_to_all_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs, Options options = {});
  /// Splits dimension 0: sends input_splits[r] rows of `input` to rank r and receives output_splits[r] rows of `output`
  /// from it, in rank order. Splits may be 0.
  void all_to_all(const Tensor& output, const Tensor& input, const std::vector<int64_t>& output_splits,
                  const std::vector<int64_t>& input_splits, Options options = {});
  Work all_to_all_async(const Tensor& output, const Tensor& input, const std::vector<int64_t>& output_splits,
                        const std::vector<int64_t>& input_splits, Options options = {});

  /// Point-to-point communication. Runs concurrently with collectives and other messages. Messages with equal ranks
  /// and tag are matched in order; messages with different tags are independent. A send completes when the receiver
  /// has matched it (dtype, shape and name) and received the data; a mismatch throws CommError on both ranks. Tags are
  /// non-negative; `dst` and `src` must not be the calling rank.
  ///
  /// CUDA tensors: a message starts after all work on the caller's current stream, and keeps its tensor alive until it
  /// is complete. If both tensors are CUDA tensors, NCCL transfers the data from GPU to GPU. The message completes when
  /// both ranks have called; Work::wait(), send() and recv() then make the caller's current stream wait for the
  /// transfer. If one tensor is a CPU tensor, or both are on one GPU, the data is copied through host memory, and the
  /// message completes when the data has arrived. A group uses one GPU per rank; a tensor on another one is a
  /// DeviceError.
  void send(const Tensor& tensor, int dst, int tag = 0, Options options = {});
  Work isend(const Tensor& tensor, int dst, int tag = 0, Options options = {});
  void recv(const Tensor& tensor, int src, int tag = 0, Options options = {});
  Work irecv(const Tensor& tensor, int src, int tag = 0, Options options = {});
  /// Starts all operations and returns their handles. Ranks may list the operations in different orders, or start them
  /// in separate calls. Messages between two GPUs are transferred by one NCCL call if both ranks start them together.
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops, Options options = {});

  /// Returns when all ranks have called it.
  void barrier(Options options = {});
  Work barrier_async(Options options = {});
  /// A barrier that uses the store and is independent of queued operations. If ranks are missing at the earliest
  /// deadline of the ranks that have called, throws CommError naming all missing ranks, on every rank that has called
  /// or calls it later. The group stays usable. Throws immediately if a missing member failed or left the job.
  void monitored_barrier(Options options = {});

  /// Collectives on lists, with one operation per dtype. Elements with the same index on all ranks are reduced or
  /// exchanged together; the dtypes and shapes of all elements are part of the consistency check. Shapes are those of
  /// the single-tensor forms: [size(), ...] and [...].
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

  /// sum(weight * value) / sum(weight) over all ranks, for metrics; `weight` is for example a number of samples.
  /// Values of weight 0 are ignored. NaN if all weights are 0. Throws ValueError for a negative or non-finite weight.
  double reduce_mean(double value, double weight = 1, Options options = {});
  /// The mean of `tensor` over all ranks as a new tensor; integers and bool are converted to float64. Equal shapes on
  /// all ranks.
  Tensor reduce_mean(const Tensor& tensor, Options options = {});

  /// Advances queued operations without blocking. Returns whether operations are left.
  bool progress();
  /// Poisons the group: current and later operations of all ranks throw CommError with this rank and `reason`.
  void abort(const std::string& reason);

 private:
  friend struct ProcessGroupAccess;
  class Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::distributed

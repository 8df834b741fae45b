// Messages (send, recv) of tensors on GPUs. Private to distributed/.
//
// The CPU backend matches each message and compares its arguments. If both tensors are on GPUs, the message is direct:
// NCCL transfers the data between the GPUs. Otherwise it is staged: the data is copied through host memory.
//
// NCCL has no tags: on a communicator the sends and receives of two ranks match in the order of their launches. So each
// pair of ranks that exchanges direct messages has a communicator and a stream of its own, and the lower rank of the
// pair, its leader, decides the order. When messages are matched, it launches them as one NCCL call and sends their
// list to the other rank, the follower, as an internal message. The follower launches the same list.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <tandem/base/future.h>
#include <tandem/distributed/backends/nccl/nccl_backend.h>
#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A thread that runs functions one after another. It is started by the first function.
class SerialThread {
 public:
  SerialThread() = default;
  /// As close().
  ~SerialThread() { close(); }
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;

  /// Throws ResourceError if no thread can be started. `f` must not throw; an empty `f` ends the thread.
  void post(std::function<void()> f);
  /// Returns when all functions have returned. None of them calls it.
  void close();

 private:
  void run();

  std::mutex mutex_;  // guards functions_
  std::condition_variable changed_;
  std::deque<std::function<void()>> functions_;
  std::thread thread_;
};

/// Reserves thread blocks of a GPU for NCCL's message kernels of one pair of ranks, until the result is destroyed. The
/// number of blocks is a quarter of the free ones, rounded down to a power of two, and at least one. Returns null if no
/// block is free. Also returns null if NCCL orders all communicators of the GPU (NCCL_LAUNCH_ORDER_IMPLICIT), because a
/// message could then wait for another one that its peer has not launched. Reservations use at most half of the GPU, so
/// that every launched NCCL kernel can run.
std::shared_ptr<const int> reserve_blocks(Device device);
/// Limit of the thread blocks of collectives.
int max_collective_blocks(Device device);

struct GpuPair;
class GpuMessages;

/// Work of another thread for messages: the copy of a staged message, which has a null result, or the launch of direct
/// messages.
using GpuTask = Future<std::shared_ptr<GpuWork>>;

/// The part of a Message with a GPU tensor that other threads use too. Members are used by the group's executor (the
/// thread that runs the queue), unless stated.
struct GpuMessage {
  using Clock = Operation::Clock;
  enum class Phase : uint8_t {
    kTransferring,  ///< the backend matches it and, if it is staged, transfers it
    kCopyingOut,    ///< staged: the data is copied to host memory, from which the backend sends it
    kEnding,        ///< staged: the data is copied to the GPU; direct: to be launched by both ranks
  };

  GpuMessage(const Tensor& tensor_, Message& message, std::byte* data);
  /// Makes the calling thread's current stream wait for a direct message. Any thread, after completion.
  void join() const;
  /// The failure of a copy or launch, or null.
  std::exception_ptr error() const { return task.valid() ? task.exception() : nullptr; }

  Tensor tensor;       ///< released when a direct message is launched, or a staged one is complete
  MessageBatch batch;  ///< of this message alone; moved to the batch that is launched
  // Constant after the message was queued.
  GpuMessages* owner = nullptr;
  GpuPair* pair = nullptr;
  /// Messages of the same batch_isend_irecv to and from the same rank that may be direct and are not matched yet. The
  /// leader launches these messages together if it can.
  std::shared_ptr<int> num_unmatched;

  Phase phase = Phase::kTransferring;
  Tensor host;
  GpuTask task;                          ///< the last one posted; not valid: none
  int64_t key = 0;                       ///< of a matched direct message: equal on both ranks
  Clock::time_point matched = {};        ///< time at which it was matched
  std::shared_ptr<Message> list;         ///< on a leader: the list with this message, which is sent first
  std::atomic<bool> is_complete{false};  ///< task is final; read by any thread
};

/// The GPU messages of a group on one rank.
class GpuMessages {
 public:
  using Clock = NcclBackend::Clock;
  /// `nccl`: options of all communicators of this rank. wake(): the executor must look at the messages again; may be
  /// called from any thread until close() has returned.
  GpuMessages(const ProcessGroupOptions& options, NcclBackend::Options nccl, std::function<void()> wake);
  /// As close().
  ~GpuMessages();
  GpuMessages(const GpuMessages&) = delete;
  GpuMessages& operator=(const GpuMessages&) = delete;

  // --- thread-safe ---
  Device device() const { return nccl_options_.device; }
  /// Completes the description of messages before they are queued. They belong to one batch. Some may have no GPU.
  void prepare(std::span<const std::shared_ptr<Message>> messages);
  std::vector<std::shared_ptr<NcclBackend>> nccl_backends();
  /// Ends all threads and communicators. Call it when no message is queued.
  void close();

  // --- for the executor ---
  /// Advances the messages that the backend has matched. Appends internal messages, which are to be started. Returns
  /// whether anything has happened.
  bool advance(std::vector<std::shared_ptr<Message>>& active);
  /// When advance() must be called again although nothing has happened.
  Clock::time_point wake_at() const { return wake_at_; }

 private:
  using Matched = std::vector<std::shared_ptr<GpuMessage>>;

  void stage(Message& message);
  void copy(const std::shared_ptr<GpuMessage>& message);
  GpuTask post(SerialThread& thread, std::function<std::shared_ptr<GpuWork>()> f);
  bool advance_one(Message& message);
  bool lead(GpuPair& pair, std::vector<std::shared_ptr<Message>>& added);
  bool follow(GpuPair& pair, std::vector<std::shared_ptr<Message>>& added);
  std::shared_ptr<Message> list_message(const GpuPair& pair, bool sends, const Tensor& list) const;
  void launch(GpuPair& pair, const Matched& messages);
  void connect(GpuPair& pair, std::chrono::milliseconds timeout);

  const ProcessGroupOptions options_;
  const NcclBackend::Options nccl_options_;
  const std::function<void()> wake_;
  const uint64_t identity_;  // of the GPU, as in P2pRequest::gpu
  SerialThread copies_;      // copies staged data; may wait for the GPU, but never for other ranks' calls

  std::mutex mutex_;  // guards the members below
  std::map<int, std::unique_ptr<GpuPair>> pairs_;
  std::vector<std::shared_ptr<NcclBackend>> nccl_backends_;

  Clock::time_point wake_at_ = Clock::time_point::max();  // used by the executor
};

}}}  // namespace tandem::v0::distributed

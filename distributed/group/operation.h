// One call on a group, from its start to its completion. Private to distributed/.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/future.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/collective.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A copy between a caller's tensor and the row-major memory that replaces it.
struct CopyStep {
  Tensor from;
  Tensor to;
};

struct CollectiveOperation;
using Collectives = std::vector<std::shared_ptr<CollectiveOperation>>;

/// Common part of collectives and messages.
struct Operation {
  using Clock = Backend::Clock;
  virtual ~Operation() = default;

  /// "all_reduce #7", "recv from rank 3 tag 7".
  virtual std::string title() const = 0;
  /// CollectiveOptions::name.
  virtual const std::string& name() const = 0;
  /// Shown in timeout errors: "1024 float32 (4.0 KiB)"; may be empty.
  virtual std::string payload() const = 0;
  virtual int64_t num_bytes() const = 0;
  /// Number of the collective in its group, -1 for messages.
  virtual int64_t number() const = 0;
  /// Name in traces.
  virtual std::string shown_name() const = 0;

  TensorList kept;               ///< memory that the operation reads and writes
  std::vector<CopyStep> before;  ///< copies made when it begins
  std::vector<CopyStep> after;   ///< copies made at the end, unless it failed
  std::function<void()> at_end;  ///< called after these copies; of a collective on a GPU, when it is complete there
  std::chrono::milliseconds timeout{0};
  std::exception_ptr error;
  std::optional<Promise<void>> promise;  ///< asynchronous form
  std::function<void()> join;            ///< join action of the promise
  /// Collectives on the same device that the same call starts before this one. The call fails with the first error, in
  /// their order.
  Collectives earlier;
  const char* trace_category = "comm";
  bool ends_on_gpu = false;  ///< a consistency check before a collective on the GPU
  bool is_internal = false;  ///< started by the group itself: neither reported nor traced, and without a deadline
  int64_t record = 0;        ///< number in the flight recorder, from 1; 0: not recorded
  bool done = false;         ///< guarded by the group's mutex

  // Used only by the thread that runs the group.
  bool started = false;
  bool ended = false;
  int64_t trace_begin_ns = 0;
  Clock::time_point began = {};
  Clock::time_point deadline = Clock::time_point::max();
  Clock::time_point next_report = Clock::time_point::max();  ///< time of the next stall report
  int num_reports = 0;
  bool is_report_delayed = false;  ///< next_report was delayed, so that a lower rank may report first
  bool is_extended = false;        ///< the deadline was extended once, see OperationWatch::find_late()

 protected:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
};

using Operations = std::vector<std::shared_ptr<Operation>>;

struct CollectiveOperation final : Operation {
  Collective collective;

  CollectiveOperation() { collective.kept = &kept; }
  std::string title() const override;
  const std::string& name() const override { return collective.name; }
  std::string payload() const override;
  int64_t num_bytes() const override;
  int64_t number() const override { return collective.seq; }
  std::string shown_name() const override;
};

struct GpuMessage;

struct Message final : Operation {
  P2pRequest transfer;
  int shown_peer = 0;               ///< rank in the job
  std::shared_ptr<GpuMessage> gpu;  ///< if the tensor is on a GPU and has elements, else null

  /// Whether the data is sent or received; of a direct message: whether its transfer is queued on the GPU.
  bool is_complete() const;

  std::string title() const override;
  const std::string& name() const override { return transfer.name; }
  std::string payload() const override;
  int64_t num_bytes() const override { return transfer.num_bytes(); }
  int64_t number() const override { return -1; }
  std::string shown_name() const override;
};

/// A message between two GPUs, from the view of one rank.
struct GpuTransfer {
  bool sends = false;
  std::byte* data = nullptr;  ///< row-major memory of the GPU
  int64_t num_elements = 0;
  DType dtype = kFloat32;
  cuda::Event
      ready;  ///< end of the earlier work that writes the data to send, or uses the memory of the data to receive
};

/// Messages between two GPUs in one NCCL call. `kept`, `before` and `after` are those of all messages.
struct MessageBatch final : Operation {
  std::vector<GpuTransfer> transfers;
  std::string shown_title, shown;

  std::string title() const override { return shown_title; }
  const std::string& name() const override { return shown; }
  std::string payload() const override { return {}; }
  int64_t num_bytes() const override;
  int64_t number() const override { return -1; }
  std::string shown_name() const override { return shown; }
};

/// "has started nothing yet", or "last: all_gather #1860 'control record', 31.2 s ago".
std::string describe_last(const LastStarted& last, const char* last_word = "last:");

}}}  // namespace tandem::v0::distributed

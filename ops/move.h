// Moves of tensors between devices.  They are the only operations, with those of comm.h, that cross from one to another.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/future.h>
#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// How a transfer is cut and what is told of it.
struct TransferOptions {
  int64_t chunk_bytes = int64_t{4} << 20;  ///< of the result, at most; never less than one element
  int max_in_flight = 2;                   ///< chunks that travel at the same time, each carried by one thread
  /// [optional] Called after each chunk, one call at a time, on any thread; not to wait for this transfer itself.  What it
  /// throws ends the transfer, whose results are dropped.
  std::function<void(int64_t num_bytes, int64_t total_bytes)> progress = {};
};

/// What a transfer takes from a device's memory.
struct MemoryNeed {
  Device device;              ///< whose memory is used
  int64_t result_bytes = 0;   ///< of the results that come to be there, as the device's account counts them
  int64_t staging_bytes = 0;  ///< of the chunks in flight, at most
  int64_t free_bytes = 0;     ///< see free_memory; less what the needs before take of memory that devices share
  bool fits() const { return result_bytes + staging_bytes <= free_bytes; }  ///< whether both are free
};

/// A transfer before it is made.
struct MovePlan {
  int64_t num_bytes = 0;                      ///< that cross from one device to another
  int64_t num_chunks = 0;                     ///< copied one by one
  std::vector<MemoryNeed> needs;              ///< the target first
  std::chrono::nanoseconds expected_time{0};  ///< by device_bandwidth
  bool fits() const;                          ///< whether every device has room
};
/// One line for the bytes and the time, then one for each device.
TANDEM_API std::string to_string(const MovePlan& plan);

/// input on `device`, row-major; `input` itself where it is there.  Blocks until the data is there, with all threads of the
/// rank.  Gradient: moved back.  Throws DeviceError, OutOfMemory (nothing is moved then).
TANDEM_OP Tensor to(const Tensor& input, Device device);

/// The same, beside the program: returns at once.
///
/// The data is copied in chunks, a bounded number in flight, each to its place in the result; input is kept alive, and where it
/// is not contiguous each chunk is packed on its own device first.  Whoever waits for the future copies too.  The result
/// is seen whole or not at all: a failure, a cancellation (`Future::cancel`, ends in CancelledError) or a change of input
/// in place that is over before the move is (StateError, naming the operation that changed it) drops it.  Do not write to input
/// before the move is complete: a change that overlaps its end may go unnoticed.  Recorded: gradient moved back.
/// Throws DeviceError, and OutOfMemory with the plan's numbers, before anything is started.
TANDEM_OP Future<Tensor> to_async(const Tensor& input, Device device, const TransferOptions& options = {});

/// All tensors on `device`, in their order; those that are there as they are.
///
/// The copies overlap, chunk by chunk.  All or none: where the results do not fit together OutOfMemory gives the plan's
/// numbers before anything is moved.  Blocks.  Gradients: moved back.  Throws DeviceError, ValueError, OutOfMemory.
TANDEM_OP std::vector<Tensor> gather_to(Device device, const std::vector<Tensor>& tensors,
                                        const TransferOptions& options = {});

/// What gather_to(device, tensors, options), or to_async of a single one, would take.  Moves nothing; measures
/// device_bandwidth where that was not done yet.  Throws DeviceError, ValueError.
TANDEM_API MovePlan plan_move(const std::vector<Tensor>& tensors, Device device, const TransferOptions& options = {});

/// A device as the place where `tensors` could meet.
struct DeviceChoice {
  Device device;                ///< the candidate
  MovePlan plan;                ///< of moving all tensors to it
  double bytes_per_second = 0;  ///< of the slowest way to it that would be used; 0 = nothing to move, or not known
};

/// What suggest_device returns.
struct DeviceSuggestion {
  std::vector<DeviceChoice> choices;  ///< in the order of the candidates
  /// Where everything fits and is soonest (fewest bytes where no time is known, the first of equals); none where it fits nowhere.
  std::optional<Device> best;
};
/// A table: device, free, needed, to move, bandwidth, time; the suggestion marked.
TANDEM_API std::string to_string(const DeviceSuggestion& suggestion);

/// Compares devices as targets of gather_to.  A suggestion: nothing is moved, and no function of tandem takes it by itself.
/// `candidates`: default all CPU devices and GPUs.  Throws DeviceError, ValueError.
TANDEM_API DeviceSuggestion suggest_device(const std::vector<Tensor>& tensors,
                                           const std::vector<Device>& candidates = {},
                                           const TransferOptions& options = {});

}}  // namespace tandem::v0

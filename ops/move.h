// Copies of tensors between devices. Only these operations, comm.h and addmm_split.h use more than one device.
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

/// Options of transfers between devices.
struct TransferOptions {
  int64_t chunk_bytes = int64_t{4} << 20;  ///< maximum bytes of the result per chunk; at least one element
  int max_in_flight = 2;                   ///< chunks copied concurrently, each by one thread
  /// [optional] Called after each chunk, one call at a time, on any thread. Must not wait for the same transfer. An
  /// exception ends the transfer; its results are dropped.
  std::function<void(int64_t num_bytes, int64_t total_bytes)> progress = {};
};

/// Memory that a transfer needs on one device.
struct MemoryRequirement {
  Device device;              ///< device whose memory is used
  int64_t result_bytes = 0;   ///< memory of the results on this device, in size classes of the allocator
  int64_t staging_bytes = 0;  ///< maximum memory of the chunks in flight
  int64_t free_bytes = 0;     ///< see free_memory; minus the memory of earlier requirements if devices share memory
  bool fits() const { return result_bytes + staging_bytes <= free_bytes; }  ///< whether both are free
};

/// The cost of a transfer.
struct MovePlan {
  int64_t num_bytes = 0;                        ///< bytes that are copied to another device
  int64_t num_chunks = 0;                       ///< number of chunks; up to max_in_flight are copied concurrently
  std::vector<MemoryRequirement> requirements;  ///< target device first
  std::chrono::nanoseconds expected_time{0};    ///< estimated from device_bandwidth
  bool fits() const;                            ///< whether every device has enough free memory
};
/// One line for bytes and time, then one line per device.
TANDEM_API std::string to_string(const MovePlan& plan);

/// input on `device`, row-major; `input` itself if it is on `device`. Blocks until the copy is complete, using all
/// threads of the rank. Gradient: copied back. Throws DeviceError, or OutOfMemory before anything is copied.
TANDEM_OP Tensor to(const Tensor& input, Device device);

/// `to` in the background: returns at once.
///
/// The data is copied in chunks, a bounded number in flight, directly into the result. input is kept alive; if it is
/// not contiguous, each chunk is first packed on input's device. A thread that waits for the future also copies chunks.
/// The future has either the complete result or an error: a failure, cancellation (`Future::cancel`, which gives
/// CancelledError), or an in-place change of input that finished before the copy (StateError naming the operation that
/// changed it). Do not write to input before the copy is complete: a change that overlaps its end may not be detected.
/// Gradient: copied back. Throws DeviceError and OutOfMemory (with the bytes of the plan) before anything is started.
TANDEM_OP Future<Tensor> to_async(const Tensor& input, Device device, const TransferOptions& options = {});

/// All tensors on `device`, in list order; tensors that are on `device` are returned as they are.
///
/// The copies overlap, chunk by chunk. If the results together do not fit, OutOfMemory, with the bytes of the plan, is
/// thrown before anything is copied. Blocks. Gradients: copied back. Throws DeviceError, ValueError, OutOfMemory.
TANDEM_OP std::vector<Tensor> gather_to(Device device, const std::vector<Tensor>& tensors,
                                        const TransferOptions& options = {});

/// The cost of gather_to(device, tensors, options), or of to_async for a single tensor. Copies nothing, but measures
/// device_bandwidth if that has not been done. Throws DeviceError, ValueError.
TANDEM_API MovePlan plan_move(const std::vector<Tensor>& tensors, Device device, const TransferOptions& options = {});

/// The cost of a device as target of gather_to.
struct DeviceChoice {
  Device device;                ///< the candidate
  MovePlan plan;                ///< plan to move all tensors to it
  double bytes_per_second = 0;  ///< bandwidth of the slowest link used; 0 = nothing to copy, or unknown
};

/// Result of suggest_device.
struct DeviceSuggestion {
  std::vector<DeviceChoice> choices;  ///< in the order of the candidates
  /// The device on which all tensors fit and arrive first (fewest bytes if times are unknown; the first one if equal);
  /// empty if they fit on no device.
  std::optional<Device> best;
};
/// A table: device, free, needed, to move, bandwidth, time; the suggested device is marked.
TANDEM_API std::string to_string(const DeviceSuggestion& suggestion);

/// Compares devices as targets of gather_to. Copies nothing; tandem never moves tensors because of a suggestion.
/// `candidates`: by default all CPU devices and GPUs. Throws DeviceError, ValueError.
TANDEM_API DeviceSuggestion suggest_device(const std::vector<Tensor>& tensors,
                                           const std::vector<Device>& candidates = {},
                                           const TransferOptions& options = {});

}}  // namespace tandem::v0

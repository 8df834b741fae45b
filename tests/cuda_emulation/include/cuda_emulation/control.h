// Functions of the emulation for tests, in addition to the CUDA API.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace cuda_emulation {

/// The text of the newest error in a kernel or of a rejected call; empty after reset().
std::string last_report();

/// Clears the failed state of all devices and the report. Tasks of failed devices are dropped; memory, streams and
/// events remain valid.
void reset();

/// Fails a device as an illegal access of a kernel does, with `text` as last_report().
void fail(int device, const std::string& text);

/// Sets the order: "lazy", "eager" or "random:SEED"; initially TANDEM_EMULATED_ORDER. Returns false for any other text.
bool set_order(const std::string& order);

/// Enables or disables access checks of instrumented kernels; initially by TANDEM_EMULATED_CHECKS.
void set_checks(bool on);

/// Bytes in live blocks of a device; -1 is pinned host memory.
size_t live_bytes(int device);

/// Queues work() as a task of the stream, as a CUDA library would: it runs on the CPU with access to the device's
/// memory.
void run_on_device(cudaStream_t stream, std::function<void()> work);

/// The names of the calls of cuBLASLt, cuDNN and NCCL since the process started or the last forget_library_calls().
std::vector<std::string> library_calls();

/// Clears library_calls(), and the calls of fail_library_call() that were not made.
void forget_library_calls();

/// Makes a call return `status`, with no other effect: the one with this name in library_calls() that `occurrence` others precede.
void fail_library_call(const std::string& name, size_t occurrence, int status);

/// Number of queued tasks in all streams.
size_t num_queued_tasks();

/// Numbers of calls since the process started.
struct CallCounts {
  int64_t kernels = 0;       ///< launched, those of captured streams included
  int64_t memory_tasks = 0;  ///< asynchronous copies, fills and tasks of run_on_device
  int64_t event_records = 0;
  int64_t event_waits = 0;  ///< of streams
  int64_t graph_launches = 0;
  int64_t synchronizations = 0;  ///< waits of the host: for streams, events, devices and copies to pageable memory
};
CallCounts call_counts();

/// Whether queued kernels, and the computations of libraries, run. With false they are checked and queued but do nothing, for tests
/// that count calls: their results are undefined.
/// The value of CUDA_MODULE_LOADING at the first call of the process; empty if it was not set.
std::string module_loading();

/// Whether queued kernels run. With false a kernel is checked and queued but does nothing, for tests that count calls: its results
/// are undefined.
void set_kernels_run(bool on);

/// Of each later kernel only the first `count` blocks run, for tests with more elements than the CPU can compute.
void set_max_blocks(uint64_t count);

}  // namespace cuda_emulation

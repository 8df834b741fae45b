// Functions of the emulation for tests, in addition to the CUDA API.
#pragma once

#include <array>
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

/// Sets the order: "lazy" or "random:SEED"; initially TANDEM_EMULATED_ORDER. Returns false for any other text.
bool set_order(const std::string& order);

/// Enables or disables access checks of instrumented kernels; initially by TANDEM_EMULATED_CHECKS.
void set_checks(bool on);

/// Queues work() as a task of the stream, as a CUDA library would: it runs on the CPU with access to the device's
/// memory.
void run_on_device(cudaStream_t stream, std::function<void()> work);

/// The names of the calls of cuBLASLt, cuDNN and NCCL since the process started or the last forget_library_calls().
std::vector<std::string> library_calls();

/// Clears library_calls(), and the calls of fail_library_call() that were not made.
void forget_library_calls();

/// Makes one call return `status`, with no other effect: the call with this `name` (as in library_calls()) after
/// `occurrence` calls with the same name.
void fail_library_call(const std::string& name, size_t occurrence, int status);

/// Number of queued tasks in all streams.
size_t num_queued_tasks();

/// Numbers of calls since the process started.
struct CallCounts {
  int64_t kernels = 0;       ///< launched, including launches on captured streams
  int64_t memory_tasks = 0;  ///< asynchronous copies, fills and tasks of run_on_device
  int64_t event_records = 0;
  int64_t event_waits = 0;  ///< waits of streams
  int64_t graph_launches = 0;
  int64_t synchronizations = 0;  ///< waits of the host: for streams, events, devices and copies to pageable memory
};
CallCounts call_counts();

/// The value of CUDA_MODULE_LOADING at the first call of the process; empty if it was not set.
std::string module_loading();

/// Sets whether queued kernels and computations of libraries run. With false they are checked and queued but do
/// nothing, for tests that count calls: their results are undefined.
void set_kernels_run(bool on);

/// Of each later kernel only the first `count` blocks run, for tests with more elements than the CPU can compute.
void set_max_blocks(uint64_t count);

/// Reads or writes of global memory. A request is all accesses of one instruction of a warp.
struct AccessCounts {
  int64_t requests = 0;
  int64_t sectors = 0;        ///< sectors of 32 bytes that the caches transfer: the distinct ones of each request
  int64_t bytes = 0;          ///< bytes that threads load or store
  int64_t least_sectors = 0;  ///< distinct sectors of each launch
};

/// Memory accesses of a launch, or their sums over several launches.
struct KernelTraffic {
  std::string kernel;  ///< without namespaces and parameters: "copy_kernel<float>"
  int64_t launches = 0;
  int64_t blocks = 0;  ///< blocks of the largest launch
  AccessCounts reads, writes;
  std::array<int64_t, 5> widths{};  ///< number of threads' accesses of 1, 2, 4, 8 and 16 bytes
  int64_t wavefronts = 0;           ///< of shared memory: with bank conflicts a request takes several
  int64_t least_wavefronts = 0;     ///< without bank conflicts: 1 per request; 2 or 4 for accesses of 8 or 16 bytes

  int64_t traffic_bytes() const { return 32 * (reads.sectors + writes.sectors); }
  int64_t least_bytes() const { return 32 * (reads.least_sectors + writes.least_sectors); }
  void add(const KernelTraffic& other);
};

/// Starts to count the accesses of kernels that run from now on, if access checks are enabled.
void start_counting();

/// Stops counting; returns one record per launch, in the order in which they ran. Queued launches that have not run are
/// not included.
std::vector<KernelTraffic> stop_counting();

}  // namespace cuda_emulation

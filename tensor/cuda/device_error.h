// Errors detected by kernels, such as an index out of range. For *.cu files and tensor/cuda.
//
// Kernels cannot throw. On invalid data a kernel writes one error record to pinned host memory and continues with a
// safe value; the next synchronization (cuda::synchronize, a copy to the CPU, item) throws it. The GPU stays usable.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// The record of an error. By default an IndexError "<op>: <what> <value> at position <position> is outside
/// [<low>, <size>)"; `raise` overrides this.
struct DeviceErrorRecord {
  int32_t raised = 0;
  const char* op = nullptr;  ///< string literals of the host
  const char* what = nullptr;
  int64_t value = 0;
  int64_t position = 0;
  int64_t size = 0;
  int64_t low = 0;
  double number = 0;
  /// Host function that throws a different error from these numbers; its text must end with `suffix`.
  void (*raise)(const DeviceErrorRecord& found, const std::string& suffix) = nullptr;
  int32_t ready = 0;  ///< 1 once all fields are written; `raised` only claims the record for one thread
};

/// The device's record, in pinned host memory that its kernels can write.
DeviceErrorRecord* device_error_record(Device device);
/// If the device has a deferred host error or an error record, removes and throws it. Call after the work that may
/// report it.
void throw_device_error(Device device);
/// Defers an error detected by the host (a failed collective) to the device's next synchronization. Only the first is
/// kept.
void defer_error(Device device, const void* owner, std::exception_ptr error);
/// Removes the deferred error of `owner` if it has not been thrown.
void cancel_deferred_error(Device device, const void* owner);

#if defined(__CUDACC__) || defined(TANDEM_CUDA_EMULATED)
__device__ inline void report_device_error(DeviceErrorRecord* record, const DeviceErrorRecord& found) {
  if (atomicCAS(&record->raised, 0, 1) != 0) return;
  record->op = found.op;
  record->what = found.what;
  record->value = found.value;
  record->position = found.position;
  record->size = found.size;
  record->low = found.low;
  record->number = found.number;
  record->raise = found.raise;
  __threadfence_system();
  *static_cast<volatile int32_t*>(&record->ready) = 1;
}
__device__ inline void report_device_error(DeviceErrorRecord* record, const char* op, const char* what, int64_t value,
                                           int64_t position, int64_t size, int64_t low = 0) {
  report_device_error(record, DeviceErrorRecord{0, op, what, value, position, size, low});
}
#endif

}}}  // namespace tandem::v0::cuda

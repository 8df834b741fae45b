// Calls of CUDA's runtime.  For *.cu files, tensor/cuda and distributed/nccl.
#pragma once

#include <cuda_runtime.h>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem::inline v0::cuda {

/// Throws BackendError with the call, its status and what that means.
TANDEM_API void check(cudaError_t status, const char* call);
#define TANDEM_CUDA_CHECK(call) ::tandem::cuda::check((call), #call)

/// Makes a GPU the calling thread's until destroyed: what has no stream goes to it, and a stream is used from its own GPU alone.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    TANDEM_CUDA_CHECK(cudaGetDevice(&previous_));
    if (previous_ != device.index) TANDEM_CUDA_CHECK(cudaSetDevice(device.index));
    changed_ = previous_ != device.index;
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

/// The calling thread's current stream of the device.
TANDEM_API cudaStream_t stream_of(Device device);

}  // namespace tandem::inline v0::cuda

// Calls of CUDA's runtime.  For *.cu files, tensor/cuda and distributed/nccl.
#pragma once

#include <cuda_runtime.h>

#include <new>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Throws BackendError with the call, its status and what that means.
TANDEM_API void check(cudaError_t status, const char* call);
#define TANDEM_CUDA_CHECK(call) ::tandem::cuda::check((call), #call)

/// Whether this process uses the GPU already: it has a context there, some hundred megabytes of the GPU's memory.
TANDEM_API bool has_context(Device device) noexcept;

/// Makes a GPU the calling thread's until destroyed: what has no stream goes to it, and a stream is used from its own GPU alone.
/// Around every call but those that only ask about devices: a call makes a context on the thread's GPU, which is the first one until
/// something else is said.  For the same reason a GPU that the process does not use is not made the thread's again.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) { check(enter(device), "cudaSetDevice"); }
  /// Where nothing may be thrown: what fails here fails in the calls that follow too.
  DeviceGuard(Device device, std::nothrow_t) noexcept { static_cast<void>(enter(device)); }
  ~DeviceGuard() {
    if (changed_ && has_context(Device::cuda(previous_))) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  cudaError_t enter(Device device) noexcept {
    cudaError_t status = cudaGetDevice(&previous_);
    if (status != cudaSuccess || previous_ == device.index) return status;
    status = cudaSetDevice(device.index);
    changed_ = status == cudaSuccess;
    return status;
  }

  int previous_ = 0;
  bool changed_ = false;
};

/// The calling thread's current stream of the device.
TANDEM_API cudaStream_t stream_of(Device device);

}}}  // namespace tandem::v0::cuda

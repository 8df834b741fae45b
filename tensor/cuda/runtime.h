// Helpers for calls of the CUDA runtime. For *.cu files, tensor/cuda and distributed/backends/nccl.
#pragma once

#include <cuda_runtime.h>

#include <new>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Throws BackendError with the call, its status and CUDA's description unless `status` is cudaSuccess.
TANDEM_API void check(cudaError_t status, const char* call);
#define TANDEM_CUDA_CHECK(call) ::tandem::cuda::check((call), #call)

/// Whether this process has a CUDA context on the GPU, which takes some hundred megabytes of its memory.
TANDEM_API bool has_context(Device device) noexcept;

/// Makes a GPU the calling thread's current device until destroyed. Required around all CUDA calls except device
/// queries: calls without a stream use the current device, and any call creates a context on it, by default on GPU 0.
/// For the same reason the destructor does not restore a device on which the process has no context.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) { check(enter(device), "cudaSetDevice"); }
  /// For noexcept code: if this fails, the following calls fail too.
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

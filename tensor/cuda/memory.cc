#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_memory.h>

namespace tandem { inline namespace v0 { namespace cuda {

void* system_allocate(Device device, int64_t num_bytes) {
  const DeviceGuard guard(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(num_bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check(status, "cudaMalloc");
  return data;
}

void wait_for_work(Device device) noexcept {
  const DeviceGuard guard(device, std::nothrow);
  cudaDeviceSynchronize();  // errors are reported by the caller's next synchronization
}

void system_free(Device device, void* data) noexcept {
  const DeviceGuard guard(device, std::nothrow);
  cudaFree(data);  // an error is from earlier work, and is reported elsewhere
}

int64_t available_bytes(Device device) {
  const DeviceGuard guard(device);
  size_t free = 0, total = 0;
  TANDEM_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

}}}  // namespace tandem::v0::cuda

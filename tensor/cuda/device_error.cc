#include <tandem/tensor/cuda/device_error.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

struct DeviceErrors {
  std::mutex mutex;
  DeviceErrorRecord** records = new DeviceErrorRecord*[static_cast<size_t>(device_count())]();
  struct DeferredError {
    const void* owner = nullptr;
    std::exception_ptr error;
  };
  std::vector<DeferredError> errors = std::vector<DeferredError>(static_cast<size_t>(device_count()));
};

DeviceErrors& device_errors() {
  static DeviceErrors* const instance = new DeviceErrors;
  return *instance;
}

}  // namespace

DeviceErrorRecord* device_error_record(Device device) {
  check_device(device);
  std::lock_guard lock(device_errors().mutex);
  DeviceErrorRecord*& record = device_errors().records[device.index];
  if (record == nullptr) {
    const DeviceGuard guard(device);
    void* memory = nullptr;
    TANDEM_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(DeviceErrorRecord), cudaHostAllocPortable | cudaHostAllocMapped));
    record = new (memory) DeviceErrorRecord();
  }
  return record;
}

void defer_error(Device device, const void* owner, std::exception_ptr error) {
  check_device(device);
  std::lock_guard lock(device_errors().mutex);
  DeviceErrors::DeferredError& record = device_errors().errors[static_cast<size_t>(device.index)];
  if (!record.error) record = {owner, std::move(error)};
}

void cancel_deferred_error(Device device, const void* owner) {
  std::lock_guard lock(device_errors().mutex);
  DeviceErrors::DeferredError& record = device_errors().errors[static_cast<size_t>(device.index)];
  if (record.owner == owner) record = {};
}

void throw_device_error(Device device) {
  std::unique_lock lock(device_errors().mutex);
  if (DeviceErrors::DeferredError& deferred = device_errors().errors[static_cast<size_t>(device.index)];
      deferred.error) {
    std::rethrow_exception(std::exchange(deferred, {}).error);
  }
  DeviceErrorRecord* record = device_errors().records[device.index];
  // Kernels on other streams may be writing a record now.
  if (record == nullptr || std::atomic_ref(record->ready).load(std::memory_order_acquire) == 0) [[likely]]
    return;
  const DeviceErrorRecord found = *record;
  record->ready = 0;
  std::atomic_ref(record->raised).store(0, std::memory_order_release);  // kernels may claim the record again
  lock.unlock();
  const std::string suffix = str("; detected on ", device, ", reported at this synchronization");
  if (found.raise != nullptr) found.raise(found, suffix);
  throw IndexError(str(found.op, ": ", found.what, " ", found.value, " at position ", found.position, " is outside [",
                       found.low, ", ", found.size, ")", suffix));
}

}}}  // namespace tandem::v0::cuda

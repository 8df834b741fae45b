#include <tandem/tensor/cuda/complaints.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

struct Places {
  std::mutex mutex;
  Complaint** of = new Complaint*[static_cast<size_t>(device_count())]();
  struct Left {
    const void* owner = nullptr;
    std::exception_ptr error;
  };
  std::vector<Left> errors = std::vector<Left>(static_cast<size_t>(device_count()));
};

Places& places() {
  static Places* const instance = new Places;
  return *instance;
}

}  // namespace

Complaint* complaint_of(Device device) {
  check_device(device);
  std::lock_guard lock(places().mutex);
  Complaint*& place = places().of[device.index];
  if (place == nullptr) {
    const DeviceGuard guard(device);
    void* memory = nullptr;
    TANDEM_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(Complaint), cudaHostAllocPortable | cudaHostAllocMapped));
    place = new (memory) Complaint();
  }
  return place;
}

void leave_error(Device device, const void* owner, std::exception_ptr error) {
  check_device(device);
  std::lock_guard lock(places().mutex);
  Places::Left& place = places().errors[static_cast<size_t>(device.index)];
  if (!place.error) place = {owner, std::move(error)};
}

void take_error_back(Device device, const void* owner) {
  std::lock_guard lock(places().mutex);
  Places::Left& place = places().errors[static_cast<size_t>(device.index)];
  if (place.owner == owner) place = {};
}

void throw_complaint(Device device) {
  std::unique_lock lock(places().mutex);
  if (Places::Left& left = places().errors[static_cast<size_t>(device.index)]; left.error) {
    std::rethrow_exception(std::exchange(left, {}).error);
  }
  Complaint* place = places().of[device.index];
  // Kernels on other streams may be writing a record now.
  if (place == nullptr || std::atomic_ref(place->ready).load(std::memory_order_acquire) == 0) [[likely]]
    return;
  const Complaint found = *place;
  place->ready = 0;
  std::atomic_ref(place->raised).store(0, std::memory_order_release);  // kernels may claim the record again
  lock.unlock();
  const std::string told = str("; detected on ", device, ", reported at this synchronization");
  if (found.raise != nullptr) found.raise(found, told);
  throw IndexError(str(found.op, ": ", found.what, " ", found.value, " at position ", found.position,
                       " is outside [0, ", found.size, ")", told));
}

}}}  // namespace tandem::v0::cuda

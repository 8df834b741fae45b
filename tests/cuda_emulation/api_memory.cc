// Memory: blocks, copies, fills.
#include <cstdint>
#include <cstring>
#include <vector>

#include <tandem/tests/cuda_emulation/runtime.h>

namespace cuda_emulation { namespace {

/// Common start of all calls of this file.
cudaError_t state_of_current(Runtime& runtime) {
  if (inside_host_function()) {
    return cudaErrorNotPermitted;
  }
  return runtime.num_devices() == 0 ? cudaErrorNoDevice : runtime.device(current_device()).failed;
}

struct Place {
  Device* device = nullptr;  // owner of the memory
  bool pinned = false;
  bool valid = true;

  bool pageable() const { return device == nullptr && !pinned; }
  unsigned int arenas() const { return device != nullptr ? 1U << device->id : kNoArenas; }
};

Place place_of(Runtime& runtime, const void* p, size_t num_bytes) {
  Place place;
  place.device = runtime.device_of(p);
  place.pinned = runtime.pinned().contains(p);
  if (place.device != nullptr) {
    place.valid = place.device->memory.live(p, num_bytes);
  } else if (place.pinned) {
    place.valid = runtime.pinned().live(p, num_bytes);
  } else {
    place.valid = p != nullptr;
  }
  return place;
}

bool kind_fits(cudaMemcpyKind kind, const Place& to, const Place& from) {
  const bool to_device = to.device != nullptr, from_device = from.device != nullptr;
  switch (kind) {
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    // Pinned memory also has a device address.
    case cudaMemcpyDeviceToDevice: return (to_device || to.pinned) && (from_device || from.pinned);
    case cudaMemcpyDefault: return true;
  }
  return false;
}

cudaError_t check_copy(Runtime& runtime, const void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                       Place& to, Place& from) {
  to = place_of(runtime, destination, bytes);
  from = place_of(runtime, source, bytes);
  if (!to.valid || !from.valid || !kind_fits(kind, to, from)) {
    return cudaErrorInvalidValue;
  }
  for (const Place& place : {to, from}) {
    if (place.device != nullptr && place.device->failed != cudaSuccess) {
      return place.device->failed;
    }
  }
  return cudaSuccess;
}

cudaError_t copy_async(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess) {
    return error;
  }
  const auto stream = runtime.find(handle);
  if (stream == nullptr) {
    runtime.refuse("an asynchronous copy into no stream: the default stream is not emulated");
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->device->failed != cudaSuccess || bytes == 0) {
    return stream->device->failed;
  }
  Place to, from;
  if (const cudaError_t error = check_copy(runtime, destination, source, bytes, kind, to, from); error != cudaSuccess) {
    return error;
  }
  Task task{Task::Kind::kMemory, to.arenas() | from.arenas(), [=] { std::memmove(destination, source, bytes); },
            nullptr};
  if (from.pageable() && !to.pageable()) {  // reads the bytes during the call
    const auto* const first = static_cast<const char*>(source);
    const auto staged = std::make_shared<const std::vector<char>>(first, first + bytes);
    task.work = [=] { std::memcpy(destination, staged->data(), bytes); };
  }
  if (to.pageable() && spoils_capture(*stream)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  const uint64_t ticket = runtime.enqueue(call.lock(), stream, std::move(task));
  if (to.pageable()) {
    ++runtime.counts.synchronizations;
    runtime.force(call.lock(), *stream, ticket);
  }
  return stream->device->failed;
}

}}  // namespace cuda_emulation

using cuda_emulation::Call;
using cuda_emulation::current_device;
using cuda_emulation::Place;
using cuda_emulation::place_of;
using cuda_emulation::result;
using cuda_emulation::Runtime;
using cuda_emulation::state_of_current;
using cuda_emulation::Task;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  Call call;
  if (const cudaError_t error = state_of_current(call.runtime()); error != cudaSuccess || pointer == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  *pointer = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  *pointer = call.runtime().device(current_device()).memory.allocate(bytes);
  return result(*pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess || pointer == nullptr) {
    return result(error);
  }
  auto* device = runtime.device_of(pointer);
  if (device == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  runtime.synchronize(call.lock(), *device);
  if (device->failed != cudaSuccess) {
    return result(device->failed);
  }
  runtime.set_open(cuda_emulation::kNoArenas);
  return result(device->memory.release(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  Call call;
  if (const cudaError_t error = state_of_current(call.runtime());
      error != cudaSuccess || pointer == nullptr || flags > 7) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  *pointer = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  *pointer = call.runtime().pinned().allocate(bytes);
  return result(*pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* pointer) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess || pointer == nullptr) {
    return result(error);
  }
  for (int i = 0; i < runtime.num_devices(); ++i) {
    runtime.synchronize(call.lock(), runtime.device(i));
  }
  return result(runtime.pinned().release(pointer) ? runtime.device(current_device()).failed : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return result(cuda_emulation::copy_async(destination, source, bytes, kind, stream));
}

cudaError_t cudaMemcpyPeerAsync(void* destination, int destination_device, const void* source, int source_device,
                                size_t bytes, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  for (const int device : {destination_device, source_device}) {
    if (device < 0 || device >= runtime.num_devices()) {
      return result(cudaErrorInvalidDevice);
    }
  }
  if (runtime.device_of(destination) != &runtime.device(destination_device) ||
      runtime.device_of(source) != &runtime.device(source_device)) {
    return result(cudaErrorInvalidValue);
  }
  return result(cuda_emulation::copy_async(destination, source, bytes, cudaMemcpyDefault, stream));
}

// Waits for no stream: all are created with cudaStreamNonBlocking.
cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess || bytes == 0) {
    return result(error);
  }
  Place to, from;
  if (const cudaError_t error = check_copy(runtime, destination, source, bytes, kind, to, from); error != cudaSuccess) {
    return result(error);
  }
  runtime.set_open(to.arenas() | from.arenas());
  std::memmove(destination, source, bytes);
  return cudaSuccess;
}

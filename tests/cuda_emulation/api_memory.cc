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

struct Copy {
  void* destination;
  size_t destination_pitch;
  const void* source;
  size_t source_pitch;
  size_t width;
  size_t height;

  bool nothing() const { return width == 0 || height == 0; }
  size_t num_bytes() const { return width * height; }
  size_t destination_span() const { return (height - 1) * destination_pitch + width; }
  size_t source_span() const { return (height - 1) * source_pitch + width; }
  void run() const {
    if (height == 1) {
      std::memmove(destination, source, width);
      return;
    }
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(destination) + row * destination_pitch,
                   static_cast<const char*>(source) + row * source_pitch, width);
    }
  }
};

bool kind_fits(cudaMemcpyKind kind, const Place& to, const Place& from) {
  const bool to_device = to.device != nullptr, from_device = from.device != nullptr;
  switch (kind) {
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    // Pinned memory also has a device address.
    case cudaMemcpyDeviceToDevice: return (to_device || to.pinned) && (from_device || from.pinned);
    case cudaMemcpyDefault: return true;
  }
  return false;
}

cudaError_t check_copy(Runtime& runtime, const Copy& copy, cudaMemcpyKind kind, Place& to, Place& from) {
  if (copy.height > 1 && (copy.width > copy.destination_pitch || copy.width > copy.source_pitch)) {
    return cudaErrorInvalidPitchValue;
  }
  to = place_of(runtime, copy.destination, copy.destination_span());
  from = place_of(runtime, copy.source, copy.source_span());
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

cudaError_t copy_async(const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle) {
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
  if (stream->device->failed != cudaSuccess || copy.nothing()) {
    return stream->device->failed;
  }
  Place to, from;
  if (const cudaError_t error = check_copy(runtime, copy, kind, to, from); error != cudaSuccess) {
    return error;
  }
  Task task{Task::Kind::kMemory, to.arenas() | from.arenas(), [copy] { copy.run(); }, nullptr};
  if (from.pageable() && !to.pageable()) {  // reads the bytes during the call
    auto bytes = std::make_shared<std::vector<char>>(copy.source_span());
    std::memcpy(bytes->data(), copy.source, bytes->size());
    task.work = [copy, bytes] {
      Copy staged = copy;
      staged.source = bytes->data();
      staged.run();
    };
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
using cuda_emulation::Copy;
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

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Call call;
  if (const cudaError_t error = state_of_current(call.runtime()); error != cudaSuccess || attributes == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  const Place place = place_of(call.runtime(), pointer, 1);
  auto* p = const_cast<void*>(pointer);
  if (place.device != nullptr && place.valid) {
    *attributes = {cudaMemoryTypeDevice, place.device->id, p, nullptr};
  } else if (place.pinned && place.valid) {
    *attributes = {cudaMemoryTypeHost, current_device(), p, p};
  } else {
    *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, p};
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return result(cuda_emulation::copy_async({destination, bytes, source, bytes, bytes, 1}, kind, stream));
}

cudaError_t cudaMemcpy2DAsync(void* destination, size_t destination_pitch, const void* source, size_t source_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return result(
      cuda_emulation::copy_async({destination, destination_pitch, source, source_pitch, width, height}, kind, stream));
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
  return result(cuda_emulation::copy_async({destination, bytes, source, bytes, bytes, 1}, cudaMemcpyDefault, stream));
}

// As on the legacy default stream: runs after all streams that were created without cudaStreamNonBlocking.
cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess || bytes == 0) {
    return result(error);
  }
  const Copy copy{destination, bytes, source, bytes, bytes, 1};
  Place to, from;
  if (const cudaError_t error = check_copy(runtime, copy, kind, to, from); error != cudaSuccess) {
    return result(error);
  }
  for (auto* device : {&runtime.device(current_device()), to.device, from.device}) {
    if (device != nullptr) {
      runtime.synchronize_blocking_streams(call.lock(), *device);
      if (device->failed != cudaSuccess) {
        return result(device->failed);
      }
    }
  }
  runtime.set_open(to.arenas() | from.arenas());
  copy.run();
  return cudaSuccess;
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess || bytes == 0) {
    return result(error);
  }
  const Place place = place_of(runtime, pointer, bytes);
  if (!place.valid || place.pageable()) {
    return result(cudaErrorInvalidValue);
  }
  auto& device = place.device != nullptr ? *place.device : runtime.device(current_device());
  runtime.synchronize_blocking_streams(call.lock(), device);
  if (device.failed != cudaSuccess) {
    return result(device.failed);
  }
  runtime.set_open(place.arenas());
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t handle) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of_current(runtime); error != cudaSuccess) {
    return result(error);
  }
  const auto stream = runtime.find(handle);
  if (stream == nullptr) {
    runtime.refuse("cudaMemsetAsync into no stream: the default stream is not emulated");
    return result(cudaErrorInvalidResourceHandle);
  }
  if (stream->device->failed != cudaSuccess || bytes == 0) {
    return result(stream->device->failed);
  }
  const Place place = place_of(runtime, pointer, bytes);
  if (!place.valid || place.pageable()) {
    return result(cudaErrorInvalidValue);
  }
  runtime.enqueue(call.lock(), stream,
                  {Task::Kind::kMemory, place.arenas(), [=] { std::memset(pointer, value, bytes); }, nullptr});
  return result(stream->device->failed);
}

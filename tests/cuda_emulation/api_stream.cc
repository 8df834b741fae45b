// Streams, events, host functions, launches.
#include <string>

#include <tandem/tests/cuda_emulation/runtime.h>

namespace cuda_emulation {
namespace {

cudaError_t state_of(Runtime& runtime, int device) {
  if (inside_host_function()) {
    return cudaErrorNotPermitted;
  }
  return runtime.num_devices() == 0 ? cudaErrorNoDevice : runtime.device(device).failed;
}

/// The stream of a handle; nullptr and the error to return if it does not exist.
std::shared_ptr<Stream> stream_of(Runtime& runtime, cudaStream_t handle, const char* what, cudaError_t& error) {
  error = inside_host_function() ? cudaErrorNotPermitted : cudaSuccess;
  auto stream = runtime.find(handle);
  if (error == cudaSuccess && stream == nullptr) {
    runtime.refuse(std::string(what) + ": no such stream; the default stream is not emulated");
    error = cudaErrorInvalidResourceHandle;
  } else if (error == cudaSuccess) {
    error = stream->device->failed;
  }
  return error == cudaSuccess ? stream : nullptr;
}

Runtime::Event* event_of(Runtime& runtime, cudaEvent_t handle) {
  const auto it = runtime.events.find(handle);
  return it == runtime.events.end() ? nullptr : it->second.get();
}

/// Prepares the stream to wait for the event: a stream that waits for a captured event joins the capture. Returns
/// CUDA's error, and invalidates the capture, if that is not possible.
cudaError_t join_capture(const std::shared_ptr<Stream>& stream, const Record* record) {
  if (record == nullptr || !record->is_captured) {
    return record != nullptr && spoils_capture(*stream) ? cudaErrorStreamCaptureIsolation : cudaSuccess;
  }
  const auto graph = record->graph.lock();
  if (graph == nullptr || !graph->is_capturing) {
    spoils_capture(*stream);
    return cudaErrorCapturedEvent;
  }
  if (stream->capture != nullptr && stream->capture != graph) {
    stream->capture->spoiled = graph->spoiled = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (stream->capture == nullptr) {
    stream->capture = graph;
    graph->add(stream);
  }
  return cudaSuccess;
}

bool is_captured(const std::shared_ptr<Record>& record) { return record != nullptr && record->is_captured; }

bool is_size(dim3 v) { return v.x != 0 && v.y != 0 && v.z != 0; }

cudaError_t check_shape(const cudaLaunchConfig_t& config) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const bool block_fits = block.x <= kMaxThreads && block.y <= kMaxThreads && block.z <= 64 &&
                          uint64_t{block.x} * block.y * block.z <= kMaxThreads;
  if (!is_size(grid) || !is_size(block) || !block_fits || grid.x > 0x7FFFFFFFU || grid.y > 65535 || grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  return config.dynamicSmemBytes > kMaxDynamicShared ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, std::unique_ptr<const KernelCall> kernel) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of(runtime, current_device()); error != cudaSuccess) {
    return result(error);
  }
  cudaError_t error = cudaSuccess;
  const auto stream = stream_of(runtime, config.stream, "a kernel's launch", error);
  if (stream == nullptr) {
    return result(error);
  }
  if (stream->device->id != current_device()) {
    runtime.refuse("a kernel's launch: the stream belongs to cuda:" + std::to_string(stream->device->id) +
                   ", the current device is cuda:" + std::to_string(current_device()));
    return result(cudaErrorInvalidResourceHandle);
  }
  if (error = check_shape(config); error != cudaSuccess) {
    return result(error);
  }
  Device& device = *stream->device;
  const std::shared_ptr<const KernelCall> shared = std::move(kernel);
  runtime.enqueue(call.lock(), stream,
                  {Task::Kind::kKernel, 1U << device.id,
                   [&runtime, &device, config, shared] { runtime.run_kernel(device, config, *shared); }, nullptr});
  return result(device.failed);
}

}  // namespace cuda_emulation

using cuda_emulation::Call;
using cuda_emulation::current_device;
using cuda_emulation::event_of;
using cuda_emulation::is_captured;
using cuda_emulation::join_capture;
using cuda_emulation::Record;
using cuda_emulation::result;
using cuda_emulation::Runtime;
using cuda_emulation::spoils_capture;
using cuda_emulation::state_of;
using cuda_emulation::Stream;
using cuda_emulation::stream_of;
using cuda_emulation::Task;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned int flags, int) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of(runtime, current_device());
      error != cudaSuccess || handle == nullptr || flags != cudaStreamNonBlocking) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  auto stream = std::make_shared<Stream>();
  stream->device = &runtime.device(current_device());
  *handle = reinterpret_cast<cudaStream_t>(stream.get());
  runtime.streams[*handle] = stream;
  runtime.add(stream);
  return cudaSuccess;
}

// Queued tasks still run when needed.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Call call;
  return result(call.runtime().streams.erase(handle) != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Call call;
  cudaError_t error = cudaSuccess;
  const auto stream = stream_of(call.runtime(), handle, "cudaStreamSynchronize", error);
  if (stream == nullptr) {
    return result(error);
  }
  if (spoils_capture(*stream)) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  ++call.runtime().counts.synchronizations;
  call.runtime().force(call.lock(), *stream, stream->num_queued);
  return result(stream->device->failed);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Call call;
  cudaError_t error = cudaSuccess;
  const auto stream = stream_of(call.runtime(), handle, "cudaStreamQuery", error);
  if (stream == nullptr) {
    return result(error);
  }
  if (spoils_capture(*stream)) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  call.runtime().advance(call.lock(), *stream);
  if (stream->device->failed != cudaSuccess) {
    return result(stream->device->failed);
  }
  return result(stream->num_completed == stream->num_queued ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int flags) {
  Call call;
  cudaError_t error = cudaSuccess;
  const auto stream = stream_of(call.runtime(), handle, "cudaStreamWaitEvent", error);
  const auto* event = event_of(call.runtime(), event_handle);
  if (stream == nullptr || event == nullptr || flags != 0) {
    return result(error != cudaSuccess ? error
                  : event == nullptr   ? cudaErrorInvalidResourceHandle
                                       : cudaErrorInvalidValue);
  }
  const auto record = event->last;
  if (const cudaError_t refused = join_capture(stream, record.get()); refused != cudaSuccess) {
    return result(refused);
  }
  if (record != nullptr) {
    call.runtime().enqueue(call.lock(), stream, {Task::Kind::kWait, cuda_emulation::kNoArenas, nullptr, record});
  }
  return result(stream->device->failed);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* user_data) {
  Call call;
  cudaError_t error = cudaSuccess;
  const auto stream = stream_of(call.runtime(), handle, "cudaLaunchHostFunc", error);
  if (stream == nullptr || function == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  call.runtime().enqueue(
      call.lock(), stream,
      {Task::Kind::kHostFunction, cuda_emulation::kNoArenas, [function, user_data] { function(user_data); }, nullptr});
  return result(stream->device->failed);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned int flags) {
  Call call;
  Runtime& runtime = call.runtime();
  if (const cudaError_t error = state_of(runtime, current_device());
      error != cudaSuccess || handle == nullptr || flags > 7) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  auto event = std::make_unique<Runtime::Event>(Runtime::Event{flags, current_device(), nullptr});
  *handle = reinterpret_cast<cudaEvent_t>(event.get());
  runtime.events[*handle] = std::move(event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Call call;
  return result(call.runtime().events.erase(handle) != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  Call call;
  cudaError_t error = cudaSuccess;
  const auto stream = stream_of(call.runtime(), stream_handle, "cudaEventRecord", error);
  auto* event = event_of(call.runtime(), handle);
  if (stream == nullptr || event == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
  }
  if (event->device != stream->device->id) {
    call.runtime().refuse("cudaEventRecord: the event belongs to cuda:" + std::to_string(event->device) +
                          ", the stream to cuda:" + std::to_string(stream->device->id));
    return result(cudaErrorInvalidResourceHandle);
  }
  auto record = std::make_shared<Record>();
  record->is_captured = stream->capture != nullptr;
  record->graph = stream->capture;
  record->stream = stream;
  record->ticket = stream->num_queued + 1;
  event->last = record;
  call.runtime().enqueue(call.lock(), stream, {Task::Kind::kRecord, cuda_emulation::kNoArenas, nullptr, record});
  return result(stream->device->failed);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Call call;
  Runtime& runtime = call.runtime();
  const auto* event = event_of(runtime, handle);
  if (event == nullptr) {
    return result(cudaErrorInvalidResourceHandle);
  }
  const auto record = event->last;
  const int device = event->device;
  if (is_captured(record)) {
    return result(cudaErrorCapturedEvent);
  }
  if (record != nullptr && !record->done) {
    runtime.advance(call.lock(), *record->stream);
  }
  if (const cudaError_t error = state_of(runtime, device); error != cudaSuccess) {
    return result(error);
  }
  return result(record == nullptr || record->done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Call call;
  Runtime& runtime = call.runtime();
  const auto* event = event_of(runtime, handle);
  if (event == nullptr) {
    return result(cudaErrorInvalidResourceHandle);
  }
  const auto record = event->last;
  const int device = event->device;
  if (is_captured(record)) {
    return result(cudaErrorCapturedEvent);
  }
  if (const cudaError_t error = state_of(runtime, device); error != cudaSuccess) {
    return result(error);
  }
  ++runtime.counts.synchronizations;
  if (record != nullptr) {
    runtime.force(call.lock(), *record->stream, record->ticket);
  }
  return result(state_of(runtime, device));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  Call call;
  const auto* start = event_of(call.runtime(), start_handle);
  const auto* end = event_of(call.runtime(), end_handle);
  if (start == nullptr || end == nullptr || start->last == nullptr || end->last == nullptr ||
      ((start->flags | end->flags) & cudaEventDisableTiming) != 0) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (milliseconds == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  if (is_captured(start->last) || is_captured(end->last)) {
    return result(cudaErrorCapturedEvent);
  }
  if (!start->last->done || !end->last->done) {
    return result(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->last->time - start->last->time).count();
  return cudaSuccess;
}

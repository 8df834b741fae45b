// Graphs: the tasks of a captured stream, in order. Capture modes are not emulated; only invalid calls on the captured
// stream fail.
#include <tandem/tests/cuda_emulation/runtime.h>

using cuda_emulation::Call;
using cuda_emulation::Graph;
using cuda_emulation::result;
using cuda_emulation::Runtime;
using cuda_emulation::Task;

namespace {

/// Creates a unique handle for the graph.
template <class Handle>
void add(Runtime& runtime, const std::shared_ptr<Graph>& graph, Handle* handle) {
  auto* const key = new char;  // an address that no other live graph has
  runtime.graphs[key] = graph;
  *handle = reinterpret_cast<Handle>(key);
}

std::shared_ptr<Graph> find(const Runtime& runtime, void* handle) {
  const auto it = runtime.graphs.find(handle);
  return it == runtime.graphs.end() ? nullptr : it->second;
}

cudaError_t destroy(void* handle) {
  Call call;
  if (call.runtime().graphs.erase(handle) == 0) {
    return result(cudaErrorInvalidValue);
  }
  delete static_cast<char*>(handle);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  Call call;
  const auto stream = call.runtime().find(handle);
  if (stream == nullptr) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture != nullptr || stream->device->failed != cudaSuccess) {
    return result(stream->capture != nullptr ? cudaErrorInvalidValue : stream->device->failed);
  }
  stream->capture = std::make_shared<Graph>(Graph{stream->device, {}});
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
  Call call;
  const auto stream = call.runtime().find(handle);
  if (stream == nullptr || stream->capture == nullptr || made == nullptr) {
    return result(stream == nullptr ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
  }
  const auto graph = std::exchange(stream->capture, nullptr);
  *made = nullptr;
  if (graph->spoiled) {
    return result(cudaErrorStreamCaptureInvalidated);
  }
  add(call.runtime(), graph, made);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* launchable, cudaGraph_t handle, unsigned long long flags) {
  Call call;
  const auto graph = find(call.runtime(), handle);
  if (graph == nullptr || launchable == nullptr || flags != 0) {
    return result(cudaErrorInvalidValue);
  }
  add(call.runtime(), graph, launchable);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  Call call;
  const auto graph = find(call.runtime(), handle);
  const auto stream = call.runtime().find(stream_handle);
  if (graph == nullptr || stream == nullptr || stream->device != graph->device) {
    return result(graph == nullptr ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  }
  if (stream->device->failed != cudaSuccess) {
    return result(stream->device->failed);
  }
  ++call.runtime().counts.graph_launches;
  for (const Task& task : graph->tasks) {
    call.runtime().enqueue(call.lock(), stream, task, /*is_replay=*/true);
  }
  return result(stream->device->failed);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t launchable) { return destroy(launchable); }

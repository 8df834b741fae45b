// Graphs: the tasks of captured streams, in order. Capture modes are not emulated; only invalid calls on the captured
// streams fail.
#include <algorithm>
#include <map>
#include <utility>

#include <tandem/tests/cuda_emulation/runtime.h>

namespace cuda_emulation {

/// Makes the stream a branch of the capture.
void Graph::add(const std::shared_ptr<Stream>& stream) {
  stream->branch = captured.size();
  captured.push_back(stream);
  for (auto& one : reached) one.push_back(0);
  reached.emplace_back(captured.size());
}

void Graph::add(size_t branch, Task task) {
  auto& own = reached[branch];
  if (task.kind == Task::Kind::kWait) {
    const auto& before = task.record->reached;
    for (size_t i = 0; i < before.size(); ++i) own[i] = std::max(own[i], before[i]);
  }
  ++own[branch];
  if (task.kind == Task::Kind::kRecord) task.record->reached = own;
  nodes.push_back({branch, std::move(task)});
}

}  // namespace cuda_emulation

using cuda_emulation::Call;
using cuda_emulation::Graph;
using cuda_emulation::Record;
using cuda_emulation::result;
using cuda_emulation::Runtime;
using cuda_emulation::spoils_capture;
using cuda_emulation::Stream;
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
  stream->capture = std::make_shared<Graph>(Graph{stream->device});
  stream->capture->add(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
  Call call;
  const auto stream = call.runtime().find(handle);
  if (stream == nullptr || stream->capture == nullptr || made == nullptr) {
    return result(stream == nullptr ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
  }
  if (stream->branch != 0) {
    stream->capture->spoiled = true;
    return result(cudaErrorStreamCaptureUnmatched);
  }
  const auto graph = stream->capture;
  graph->is_capturing = false;
  for (const auto& branch : graph->captured) {
    if (const auto captured = branch.lock()) captured->capture = nullptr;
  }
  *made = nullptr;
  if (graph->spoiled) {
    return result(cudaErrorStreamCaptureInvalidated);
  }
  for (size_t i = 1; i < graph->captured.size(); ++i) {
    if (graph->reached[0][i] != graph->reached[i][i]) return result(cudaErrorStreamCaptureUnjoined);
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
  Runtime& runtime = call.runtime();
  const auto graph = find(runtime, handle);
  const auto stream = runtime.find(stream_handle);
  if (graph == nullptr || stream == nullptr || stream->device != graph->device) {
    return result(graph == nullptr ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  }
  if (spoils_capture(*stream)) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->device->failed != cudaSuccess) {
    return result(stream->device->failed);
  }
  for (const Graph::Node& node : graph->nodes) {
    if (node.task.may_launch && !node.task.may_launch(*stream)) return result(cudaErrorInvalidValue);
  }
  ++runtime.counts.graph_launches;
  while (graph->branches.size() + 1 < graph->captured.size()) {
    graph->branches.push_back(std::make_shared<Stream>());
    graph->branches.back()->device = graph->device;
    runtime.add(graph->branches.back());
  }
  std::map<const Record*, std::shared_ptr<Record>> records;  // of this launch, by those of the capture
  for (const Graph::Node& node : graph->nodes) {
    const auto on = node.branch == 0 ? stream : graph->branches[node.branch - 1];
    Task task = node.task;
    if (task.kind == Task::Kind::kRecord) {
      auto& record = records[task.record.get()];
      record = std::make_shared<Record>();
      record->stream = on;
      record->ticket = on->num_queued + 1;
      task.record = record;
    } else if (task.kind == Task::Kind::kWait) {
      task.record = records.at(task.record.get());
    }
    const uint64_t ticket = runtime.enqueue(call.lock(), on, std::move(task), /*is_replay=*/true);
    if (node.task.queued) node.task.queued(on, ticket);
  }
  return result(stream->device->failed);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t launchable) { return destroy(launchable); }

// CUDA graph capture and replay of training steps.
#pragma once

#include <functional>
#include <memory>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// The GPU work of a function, recorded once and launched repeatedly, each time by one driver call. Use it for steps in
/// which the CPU takes longer to launch the kernels than the GPU takes to run them.
///
///     train(x, labels);                                 // first step as usual: creates optimizer state
///     cuda::Graph graph(device);
///     graph.capture([&] { loss = train(x, labels); });  // records and runs one step
///     for (auto& batch : loader) {
///       x.copy_(batch.images.to(device));
///       labels.copy_(batch.labels.to(device));
///       graph.replay();                                 // runs another step on the current contents of x and labels
///     }
///
/// A replay runs the same kernels on the same memory, on the calling thread's current stream. Values that the host
/// changes from step to step are kept in a small block of GPU memory that each replay writes first: learning rates and
/// other options of optimizers, their step numbers, positions of random streams, the scale of a GradScaler. After a
/// replay, gradients are in their slots and version counters are incremented as after a call of the function. Other
/// host code of the function does not run again.
///
/// The graph owns the memory that was allocated and freed during capture; a replay overwrites results of earlier
/// replays, such as the loss. The caller must keep all other tensors, optimizers, generators and scalers alive that the
/// function uses.
///
/// Collectives on GPU tensors, and the backward of DistributedDataParallel, are captured with their tensors. Then
/// capture and replay are collective: all ranks capture the same collectives and replay the same graphs in the same
/// order. replay() first waits until all ranks have called it. It throws CommError, before it has changed anything, if
/// they replay different graphs, a rank fails, or the deadline passes. Later failures are thrown by the next call on
/// the group or by the next synchronization. Each Work must be waited for during the capture. Collectives on CPU
/// tensors run during the capture only.
///
/// Cannot be captured (StateError): waiting for the GPU (item, printing), copies between GPU and CPU, other GPUs and
/// streams, the first collective of a group on its GPU, communication hooks, and an optimizer's first step. Not
/// thread-safe.
class TANDEM_API Graph {
 public:
  /// Throws DeviceError unless `device` is an existing GPU.
  explicit Graph(Device device);
  /// Waits for the last replay.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Calls f, records its GPU work and then runs it. May be called once, else StateError. If f throws, or if another
  /// rank did not capture the same collectives (CommError), the exception is rethrown and the GPU has executed nothing:
  /// gradients are empty or as before, other tensors made by f have undefined contents, and changes that f made on the
  /// host (counters) remain.
  void capture(const std::function<void()>& f);
  /// Launches the graph. Throws StateError
  /// - without a successful capture, and after a replay that threw;
  /// - if an optimizer's step has changed: its options need other kernels (weight decay from or to 0), the address of a
  ///   parameter, gradient or state tensor has changed (moved, made by another backward, loaded), or the set of
  ///   parameters with gradients has changed (frozen);
  /// - if a gradient slot that was empty at the start of a captured backward is filled now, or the reverse;
  /// - if a process group or DistributedDataParallel of the captured function was destroyed, or no_sync() is active.
  /// Throws CommError as described above.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::cuda

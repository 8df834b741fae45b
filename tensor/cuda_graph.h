// Work of a GPU that is recorded once and started again as one.
#pragma once

#include <functional>
#include <memory>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// What a function gives a GPU, recorded, and given to it again by one call of the driver: for steps whose kernels take less time
/// than the CPU takes to start them.
///
///     train(x, labels);                                 // once as usual: makes what is kept from step to step
///     cuda::Graph graph(device);
///     graph.capture([&] { loss = train(x, labels); });  // does what train does
///     while (next(batch)) {
///       x.copy_(batch.x.to(device));
///       labels.copy_(batch.labels.to(device));
///       graph.replay();                                 // does it again, with what x and labels hold now
///     }
///
/// A replay runs the same kernels on the same memory, in the calling thread's current stream.  What the host changes from step to
/// step goes along, in a small block of the GPU's memory that a replay writes first: learning rates and other options of optimizers,
/// their step numbers, positions of random streams, the scale of a GradScaler.  Gradients are in their slots and versions have
/// moved on as after the function itself; whatever else it did on the host is not done again.
///
/// The graph keeps the memory that was made and given back meanwhile; a replay overwrites what an earlier one left there, such as the
/// loss.  Whoever uses it keeps alive the tensors, optimizers, generators and scalers from outside that it works with.
///
/// Not in a graph, StateError from capture: what waits for the GPU (item, printing, GradScaler::step), copies between it and
/// the CPU, other GPUs and streams, collectives of several ranks, and an optimizer's first step.  Not safe from many threads.
class TANDEM_API Graph {
 public:
  /// Throws DeviceError unless `device` is a GPU that is there.
  explicit Graph(Device device);
  /// Waits for the last replay.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Calls f, recording, and then gives the GPU what was recorded.  Once, else StateError.  What f throws is thrown on, and the GPU
  /// has done nothing of it then: gradients that f would have made are empty, those it would have added to as before, other tensors
  /// of f hold nothing, and what f has counted on the host stays counted.
  void capture(const std::function<void()>& f);
  /// Throws StateError where nothing was captured; where an optimizer's step does not fit any more, because its options need other
  /// kernels (weight decay from or to 0), or because a parameter, its gradient or its state is elsewhere (moved, made by another
  /// backward, loaded) or there is one more or less (frozen); where gradients are filled that were empty when a captured backward
  /// began, or the other way round; and after a replay that threw.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::cuda

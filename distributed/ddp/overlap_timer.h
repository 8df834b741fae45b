// Measures how much communication of gradients overlaps with backward. Private to distributed/.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/distributed/ddp/gradient_reducer.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/gpu_trace_clock.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Sums the times of training steps. Steps captured by a cuda::Graph are excluded. Not thread-safe.
class OverlapTimer {
 public:
  /// Times come from GPU events: the host launches work before the GPU executes it.
  void use_gpu(Device device);
  void begin();                                      ///< before the first bucket of a backward pass
  Work launch(const std::function<Work()>& bucket);  ///< calls bucket(), which starts its all-reduces
  void end_backward();
  void finish();        ///< all buckets of the step are averaged
  void exclude_step();  ///< excludes the current step
  void reset();
  OverlapReport report();  ///< waits for the GPU

 private:
  struct Bucket {
    Work work;
    double launch_ms;
    std::shared_ptr<std::atomic<double>> done_ms;  ///< may be written after wait() returns
    std::optional<cuda::Event> ready;
  };
  /// Events of one step on the GPU.
  struct GpuStep {
    cuda::Event begin, backward_end, end;
    std::shared_ptr<const cuda::ClockAnchor> anchor;           ///< set while tracing
    std::vector<std::pair<cuda::Event, cuda::Event>> buckets;  ///< ready, averaged
  };
  cuda::Event record(const cuda::Stream& stream) const;
  void finish_on_gpu();
  void sum_gpu_steps(bool all);
  void add_step(double step_ms, double exposed_ms, double stolen_ms,
                const std::vector<std::pair<double, double>>& buckets_ms);

  OverlapReport sums_;  ///< over `steps`
  // The current step:
  std::vector<Bucket> buckets_;
  bool is_captured_ = false;
  double step_begin_ms_ = 0, begin_ms_ = 0, begin_cpu_ms_ = 0, end_ms_ = 0, end_cpu_ms_ = 0;
  std::optional<cuda::Event> gpu_step_begin_, gpu_backward_end_;

  std::optional<Device> gpu_;
  std::optional<cuda::GpuTraceClock> gpu_clock_;
  std::optional<cuda::Stream> gpu_probe_;  ///< separate stream that waits for the buckets in order
  std::deque<GpuStep> gpu_steps_;          ///< not added to the sums yet
};

}}}  // namespace tandem::v0::distributed

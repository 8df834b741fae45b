#include <tandem/distributed/ddp/overlap_timer.h>

#include <time.h>

#include <algorithm>
#include <limits>

#include <tandem/base/format.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

double now_ms() { return static_cast<double>(trace_now_ns()) / 1e6; }

double thread_cpu_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

}  // namespace

std::string to_string(const OverlapReport& r) {
  const auto ms = [](double value) { return format_fixed(value, 2); };
  const double hidden = r.comm_ms > 0 ? 100 * (1 - std::min(r.exposed_ms / r.comm_ms, 1.0)) : 0;
  return str("step ", ms(r.step_ms), " ms = local ", ms(r.local_ms), " + exposed ", ms(r.exposed_ms), " + stolen ",
             ms(r.stolen_ms), " (communication ", ms(r.comm_ms), " ms, ", format_fixed(hidden, 0), " % hidden)");
}

void OverlapTimer::use_gpu(Device device) {
  gpu_ = device;
  gpu_clock_.emplace(device);
  gpu_probe_.emplace(device);
}

void OverlapTimer::begin() {
  buckets_.clear();
  is_captured_ = cuda::is_capturing();
  if (is_captured_) exclude_step();
  begin_ms_ = now_ms();
  begin_cpu_ms_ = thread_cpu_ms();
}

Work OverlapTimer::launch(const std::function<Work()>& bucket) {
  if (is_captured_) return bucket();
  const double launch_ms = now_ms();
  std::optional<cuda::Event> ready;
  if (gpu_) ready = record(cuda::current_stream(*gpu_));
  const Work work = bucket();
  const auto done_ms = std::make_shared<std::atomic<double>>(0);
  work.then([done_ms] { *done_ms = now_ms(); });
  buckets_.push_back({work, launch_ms, done_ms, ready});
  return work;
}

void OverlapTimer::end_backward() {
  end_ms_ = now_ms();
  end_cpu_ms_ = thread_cpu_ms();
  if (gpu_ && !is_captured_) gpu_backward_end_ = record(cuda::current_stream(*gpu_));
}

void OverlapTimer::finish() {
  if (is_captured_) return;
  if (gpu_) return finish_on_gpu();
  const double now = now_ms(), begin = std::exchange(step_begin_ms_, now);
  if (begin == 0) return;
  std::vector<std::pair<double, double>> buckets_ms;
  for (const Bucket& bucket : buckets_) {
    const double done_ms = *bucket.done_ms;  // 0: not written yet, although the work is complete
    buckets_ms.emplace_back(bucket.launch_ms, done_ms == 0 ? now : done_ms);
  }
  const double stolen_ms = end_ms_ - begin_ms_ - (end_cpu_ms_ - begin_cpu_ms_);
  add_step(now - begin, now - end_ms_, std::max(stolen_ms, 0.0), buckets_ms);
}

/// Records a timing event on the stream.
cuda::Event OverlapTimer::record(const cuda::Stream& stream) const {
  const cuda::Event event(*gpu_, true);
  event.record(stream);
  return event;
}

void OverlapTimer::finish_on_gpu() {
  const cuda::Event end = record(cuda::current_stream(*gpu_));
  if (gpu_step_begin_) {
    gpu_steps_.push_back({*gpu_step_begin_, *gpu_backward_end_, end, gpu_clock_->anchor(), {}});
    const cuda::StreamGuard on(*gpu_probe_);
    for (const Bucket& bucket : buckets_) {
      bucket.work.wait();  // makes the probe stream wait for the bucket; does not block the host
      gpu_steps_.back().buckets.emplace_back(*bucket.ready, record(*gpu_probe_));
    }
  }
  gpu_step_begin_ = end;
  sum_gpu_steps(false);
}

void OverlapTimer::sum_gpu_steps(bool all) {
  for (; !gpu_steps_.empty(); gpu_steps_.pop_front()) {
    const GpuStep& step = gpu_steps_.front();
    const cuda::Event& last = step.buckets.back().second;
    if (!all && !(step.end.is_completed() && last.is_completed())) return;
    step.end.synchronize();
    last.synchronize();
    if (step.anchor != nullptr) {
      const auto span = [&](const char* name, const char* category, const cuda::Event& begin, const cuda::Event& end) {
        const int rank = RankContext::current().rank;
        record_trace(
            {name, category, rank, kGpuStepThread, step.anchor->host_ns_of(begin), step.anchor->host_ns_of(end)});
      };
      span("computes", "step", step.begin, step.backward_end);
      span("wait for gradients", "wait", step.backward_end, step.end);
    }
    const auto ms = [&](const cuda::Event& event) { return event.milliseconds_since(step.begin); };
    std::vector<std::pair<double, double>> buckets_ms;
    for (const auto& [ready, averaged] : step.buckets) buckets_ms.emplace_back(ms(ready), ms(averaged));
    add_step(ms(step.end), ms(step.end) - ms(step.backward_end), 0, buckets_ms);
  }
}

/// `buckets_ms`: the time of launch and completion of each bucket.
void OverlapTimer::add_step(double step_ms, double exposed_ms, double stolen_ms,
                            const std::vector<std::pair<double, double>>& buckets_ms) {
  ++sums_.steps;
  sums_.step_ms += step_ms;
  sums_.exposed_ms += exposed_ms;
  sums_.stolen_ms += stolen_ms;
  double covered = std::numeric_limits<double>::lowest();
  for (const auto& [launch, done] : buckets_ms) {
    sums_.comm_ms += std::max(done - std::max(launch, covered), 0.0);
    covered = std::max(covered, done);
  }
}

OverlapReport OverlapTimer::report() {
  sum_gpu_steps(true);
  OverlapReport mean = sums_;
  if (mean.steps == 0) return mean;
  for (double* ms : {&mean.step_ms, &mean.exposed_ms, &mean.stolen_ms, &mean.comm_ms}) {
    *ms /= static_cast<double>(mean.steps);
  }
  mean.local_ms = mean.step_ms - mean.exposed_ms - mean.stolen_ms;
  return mean;
}

void OverlapTimer::reset() {
  gpu_steps_.clear();
  sums_ = {};
  exclude_step();
}

void OverlapTimer::exclude_step() {
  step_begin_ms_ = 0;
  gpu_step_begin_.reset();
}

}}}  // namespace tandem::v0::distributed

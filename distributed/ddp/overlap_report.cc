// Times of the steps of a GradientReducer.
#include <algorithm>
#include <limits>

#include <tandem/base/format.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/ddp/gradient_reducer_impl.h>

namespace tandem { inline namespace v0 { namespace distributed {

std::string to_string(const OverlapReport& r) {
  const auto ms = [](double value) { return format_fixed(value, 2); };
  const double hidden = r.comm_ms > 0 ? 100 * (1 - std::min(r.exposed_ms / r.comm_ms, 1.0)) : 0;
  return str("step ", ms(r.step_ms), " ms = local ", ms(r.local_ms), " + exposed ", ms(r.exposed_ms), " + stolen ",
             ms(r.stolen_ms), " (communication ", ms(r.comm_ms), " ms, ", format_fixed(hidden, 0), " % hidden)");
}

/// Records a timing event on the stream.
cuda::Event GradientReducer::Impl::gpu_time(const cuda::Stream& stream) const {
  const cuda::Event event(*gpu, true);
  event.record(stream);
  return event;
}

/// Uses GPU timestamps, because the host runs ahead of the GPU.
void GradientReducer::Impl::account_on_gpu() {
  const cuda::Event end = gpu_time(cuda::current_stream(*gpu));
  if (gpu_step_begin) {
    gpu_steps.push_back({*gpu_step_begin, *gpu_backward_end, end, gpu_clock->anchor(), {}});
    const cuda::StreamGuard on(*gpu_probe);
    for (size_t i = 0; i < buckets.size(); ++i) {
      buckets[i].work.wait();  // makes the probe stream wait for the bucket; does not block the host
      gpu_steps.back().buckets.emplace_back(gpu_launches[i], gpu_time(*gpu_probe));
    }
  }
  gpu_step_begin = end;
  sum_gpu_steps(false);
}

void GradientReducer::Impl::sum_gpu_steps(bool all) {
  for (; !gpu_steps.empty(); gpu_steps.pop_front()) {
    const GpuStep& step = gpu_steps.front();
    const cuda::Event& last = step.buckets.back().second;
    if (!all && !(step.end.is_completed() && last.is_completed())) return;
    step.end.synchronize();
    last.synchronize();
    const auto ns = [&](const cuda::Event& event) {
      return static_cast<int64_t>(event.milliseconds_since(step.begin) * 1e6);
    };
    if (step.anchor != nullptr) {
      const auto span = [&](const char* name, const char* category, const cuda::Event& begin, const cuda::Event& end) {
        const int rank = RankContext::current().rank;
        record_trace(
            {name, category, rank, kGpuStepThread, step.anchor->host_ns_of(begin), step.anchor->host_ns_of(end)});
      };
      span("computes", "step", step.begin, step.backward_end);
      span("wait for gradients", "wait", step.backward_end, step.end);
    }
    ++steps;
    step_ns += ns(step.end);
    exposed_ns += ns(step.end) - ns(step.backward_end);
    int64_t covered = std::numeric_limits<int64_t>::min();
    for (const auto& [ready, arrived] : step.buckets) {
      const int64_t from = std::max(ns(ready), covered), until = ns(arrived);
      comm_ns += std::max<int64_t>(until - from, 0);
      covered = std::max(covered, until);
    }
  }
}

void GradientReducer::Impl::account(int64_t finish_ns, int64_t finish_cpu_ns) {
  if (gpu) return account_on_gpu();
  const int64_t now = trace_now_ns();
  if (step_begin_ns != 0) {
    ++steps;
    step_ns += now - step_begin_ns;
    exposed_ns += now - finish_ns;
    stolen_ns += std::max<int64_t>(finish_ns - begin_ns - (finish_cpu_ns - begin_cpu_ns), 0);
    int64_t covered = 0;
    for (const Bucket& bucket : buckets) {
      // done_ns may not be written yet, although the work is complete.
      const int64_t done_ns = *bucket.done_ns < bucket.launch_ns ? now : bucket.done_ns->load();
      const int64_t from = std::max(bucket.launch_ns, covered);
      if (done_ns > from) comm_ns += done_ns - from;
      covered = std::max(covered, done_ns);
    }
  }
  step_begin_ns = now;
}

OverlapReport GradientReducer::report() const {
  Impl& impl = *impl_;
  impl.sum_gpu_steps(true);
  OverlapReport report;
  report.steps = impl.steps;
  if (impl.steps == 0) return report;
  const auto mean_ms = [&](int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(impl.steps); };
  report.step_ms = mean_ms(impl.step_ns);
  report.exposed_ms = mean_ms(impl.exposed_ns);
  report.stolen_ms = mean_ms(impl.stolen_ns);
  report.comm_ms = mean_ms(impl.comm_ns);
  report.local_ms = report.step_ms - report.exposed_ms - report.stolen_ms;
  return report;
}

void GradientReducer::reset_report() {
  Impl& impl = *impl_;
  impl.gpu_steps.clear();
  impl.steps = impl.step_ns = impl.exposed_ns = impl.stolen_ns = impl.comm_ns = 0;
  exclude_step();
}

void GradientReducer::exclude_step() { impl_->exclude_step(); }

}}}  // namespace tandem::v0::distributed

#include <tandem/base/trace.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include <tandem/base/rank_context.h>

namespace tandem::inline v0 {

namespace {

// The events of this process.  All ranks that are its threads share it, as they share the trace file.
struct Recorder {
  std::mutex mutex;
  std::vector<TraceEvent> events;
};

Recorder& recorder() {
  static Recorder* const instance = new Recorder;  // never destroyed: threads may record while the process ends
  return *instance;
}

std::atomic<bool>& recording() {
  static std::atomic<bool> on{false};
  return on;
}

}  // namespace

int64_t trace_now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool trace_enabled() { return recording().load(std::memory_order_relaxed); }

void start_trace() {
  std::lock_guard lock(recorder().mutex);
  recorder().events.clear();
  recording().store(true, std::memory_order_relaxed);
}

std::vector<TraceEvent> stop_trace() {
  std::vector<TraceEvent> events;
  {
    std::lock_guard lock(recorder().mutex);
    recording().store(false, std::memory_order_relaxed);
    events.swap(recorder().events);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

void record_trace(TraceEvent event) {
  if (!trace_enabled()) return;
  std::lock_guard lock(recorder().mutex);
  if (trace_enabled()) recorder().events.push_back(std::move(event));  // not after a stop that came in between
}

void set_trace_thread(int thread) { RankContext::current().trace_thread = thread; }

TraceSpan::TraceSpan(std::string_view name, std::string_view category, int64_t num_bytes) : on_(trace_enabled()) {
  if (!on_) return;
  const RankContext& context = RankContext::current();
  event_.name = name;
  event_.category = category;
  event_.rank = context.rank;
  event_.thread = context.trace_thread;
  event_.num_bytes = num_bytes;
  event_.begin_ns = trace_now_ns();
}

TraceSpan::~TraceSpan() {
  if (!on_) return;
  event_.end_ns = trace_now_ns();
  record_trace(std::move(event_));
}

}  // namespace tandem::inline v0

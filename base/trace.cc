#include <tandem/base/trace.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include <tandem/base/rank_context.h>

namespace tandem::inline v0 {

struct OpenTraceSpan {
  TraceEvent event;
  OpenTraceSpan* enclosing;
  int64_t operand_bytes = 0;
  bool contains_work = false;
};

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

void trace_work(int64_t num_flops, int64_t num_bytes) {
  if (!trace_enabled()) return;
  if (OpenTraceSpan* span = RankContext::current().open_span.innermost) {
    span->event.num_flops += num_flops;
    span->event.num_bytes += num_bytes;
  }
}

void trace_operand_bytes(int64_t num_bytes) {
  if (!trace_enabled()) return;
  if (OpenTraceSpan* span = RankContext::current().open_span.innermost) span->operand_bytes += num_bytes;
}

void TraceSpan::open(std::string_view name, std::string_view category, int64_t num_bytes) {
  RankContext& context = RankContext::current();
  OpenTraceSpan* const enclosing = context.open_span.innermost;
  open_ = new OpenTraceSpan{{}, enclosing};
  TraceEvent& event = open_->event;
  event.name = name;
  event.category = category;
  event.rank = context.rank;
  event.thread = context.trace_thread;
  (category == "op" ? open_->operand_bytes : event.num_bytes) = num_bytes;
  if (enclosing != nullptr && (category == "op" || category == "copy")) enclosing->contains_work = true;
  // A module's own span is named after it.
  if (context.module_scope && category != "forward") event.module = context.module_scope->text;
  context.open_span.innermost = open_;
  event.begin_ns = trace_now_ns();
}

void TraceSpan::close() {
  TraceEvent& event = open_->event;
  event.end_ns = trace_now_ns();
  const bool works_itself = !open_->contains_work || event.num_flops != 0;
  if (event.num_bytes == 0 && works_itself) event.num_bytes = open_->operand_bytes;
  RankContext::current().open_span.innermost = open_->enclosing;
  record_trace(std::move(event));
  delete open_;
}

}  // namespace tandem::inline v0

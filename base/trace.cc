#include <tandem/base/trace.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include <tandem/base/rank_context.h>
#include <tandem/base/trace_clock.h>

namespace tandem { inline namespace v0 {

struct OpenTraceSpan {
  TraceEvent event;
  OpenTraceSpan* enclosing;
  std::shared_ptr<TraceClock> clock;  // null: the host's clock
  int64_t operand_bytes = 0;
  bool contains_work = false;
};

namespace {

// The events of this process. Ranks that are threads of the process share it, as they share the trace file.
struct Recorder {
  std::mutex mutex;
  std::vector<TraceEvent> events;
  std::shared_ptr<TraceClock> clock;      // times the spans; null: the host's clock
  std::vector<TraceEvent> marked_events;  // their times are marks of `clock`
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

void start_trace() { start_trace(nullptr); }

void start_trace(std::shared_ptr<TraceClock> clock) {
  std::lock_guard lock(recorder().mutex);
  recorder().events.clear();
  recorder().marked_events.clear();
  recorder().clock = std::move(clock);
  recording().store(true, std::memory_order_relaxed);
}

std::vector<TraceEvent> stop_trace() {
  std::vector<TraceEvent> events, marked_events;
  std::shared_ptr<TraceClock> clock;
  {
    std::lock_guard lock(recorder().mutex);
    recording().store(false, std::memory_order_relaxed);
    events.swap(recorder().events);
    marked_events.swap(recorder().marked_events);
    clock.swap(recorder().clock);
  }
  if (clock != nullptr) {
    const std::vector<int64_t> times = clock->times_ns();
    for (TraceEvent& event : marked_events) {
      event.begin_ns = times[static_cast<size_t>(event.begin_ns)];
      event.end_ns = times[static_cast<size_t>(event.end_ns)];
      events.push_back(std::move(event));
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

void record_trace(TraceEvent event) {
  if (!trace_enabled()) return;
  std::lock_guard lock(recorder().mutex);
  if (trace_enabled()) recorder().events.push_back(std::move(event));  // tracing may have stopped since the first check
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
  std::shared_ptr<TraceClock> clock;
  {
    std::lock_guard lock(recorder().mutex);
    clock = recorder().clock;
  }
  open_ = new OpenTraceSpan{{}, enclosing, std::move(clock)};
  TraceEvent& event = open_->event;
  event.name = name;
  event.category = category;
  event.rank = context.rank;
  event.thread = context.trace_thread;
  (category == "op" ? open_->operand_bytes : event.num_bytes) = num_bytes;
  if (enclosing != nullptr && (category == "op" || category == "copy")) enclosing->contains_work = true;
  // The name of a "forward" span is already the module's.
  if (context.module_scope && category != "forward") event.module = context.module_scope->text;
  context.open_span.innermost = open_;
  event.begin_ns = open_->clock == nullptr ? trace_now_ns() : open_->clock->mark();
}

void TraceSpan::close() {
  TraceEvent& event = open_->event;
  event.end_ns = open_->clock == nullptr ? trace_now_ns() : open_->clock->mark();
  const bool works_itself = !open_->contains_work || event.num_flops != 0;
  if (event.num_bytes == 0 && works_itself) event.num_bytes = open_->operand_bytes;
  RankContext::current().open_span.innermost = open_->enclosing;
  if (open_->clock == nullptr) {
    record_trace(std::move(event));
  } else if (event.begin_ns != TraceClock::kNoMark && event.end_ns != TraceClock::kNoMark) {
    std::lock_guard lock(recorder().mutex);
    // If another trace was started in the meantime, it has another clock, for which these marks are not valid.
    if (recorder().clock == open_->clock) recorder().marked_events.push_back(std::move(event));
  }
  delete open_;
}

}}  // namespace tandem::v0

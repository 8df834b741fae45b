#include <tandem/base/trace.h>

#include <tandem/base/rank_context.h>
#include <tandem/base/trace_clock.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TraceEvent event(const char* name, int64_t time_ns) {
  TraceEvent result;
  result.name = name;
  result.begin_ns = result.end_ns = time_ns;
  return result;
}

TEST(Trace, EventsAreDroppedUntilStarted) {
  EXPECT_FALSE(trace_enabled());
  { TraceSpan span("lost", "forward"); }
  record_trace(event("lost too", 7));
  start_trace();
  EXPECT_TRUE(trace_enabled());
  EXPECT_TRUE(stop_trace().empty());
  EXPECT_FALSE(trace_enabled());
}

TEST(Trace, SpanRecordsRankThreadAndBytes) {
  RankContext context;
  context.rank = 3;
  RankContext::Use use(context);
  set_trace_thread(1);
  start_trace();
  const int64_t before = trace_now_ns();
  { TraceSpan span("all_reduce", "comm", 4096); }
  const int64_t after = trace_now_ns();
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "all_reduce");
  EXPECT_EQ(events[0].category, "comm");
  EXPECT_EQ(events[0].rank, 3);
  EXPECT_EQ(events[0].thread, 1);
  EXPECT_EQ(events[0].num_bytes, 4096);
  EXPECT_LE(before, events[0].begin_ns);
  EXPECT_LE(events[0].begin_ns, events[0].end_ns);
  EXPECT_LE(events[0].end_ns, after);
}

TEST(Trace, EventsAreSortedByBeginTime) {
  start_trace();
  {
    TraceSpan outer("outer", "step");
    TraceSpan inner("inner", "forward");
  }  // inner ends first, so it is recorded first
  record_trace(event("earlier", 1));
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "earlier");
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_EQ(events[2].name, "inner");
}

TEST(Trace, RestartDiscardsEarlierEvents) {
  start_trace();
  record_trace(event("old", 7));
  start_trace();
  record_trace(event("new", 7));
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "new");
}

TEST(Trace, WorkIsCountedInTheInnermostSpan) {
  RankContext context;
  RankContext::Use use(context);
  trace_work(1, 2);  // tracing is off
  start_trace();
  trace_work(3, 4);  // outside of any span
  {
    TraceSpan outer("outer", "step");
    trace_work(5, 6);
    {
      TraceSpan inner("inner", "op");
      trace_work(7);
      trace_work(11, 13);
    }
    trace_work(17, 19);
  }
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "outer");
  EXPECT_EQ(events[0].num_flops, 22);
  EXPECT_EQ(events[0].num_bytes, 25);
  EXPECT_EQ(events[1].num_flops, 18);
  EXPECT_EQ(events[1].num_bytes, 13);
}

/// num_bytes of an "op" span with 10 bytes of operands and 100 bytes of results.
int64_t op_bytes(int64_t flops, int64_t bytes, const char* inside) {
  RankContext context;
  RankContext::Use use(context);
  start_trace();
  {
    TraceSpan span("op", "op", 10);
    if (inside != nullptr) TraceSpan(inside, inside, 1000);
    if (flops != 0 || bytes != 0) trace_work(flops, bytes);
    trace_operand_bytes(100);
  }
  const std::vector<TraceEvent> events = stop_trace();
  for (const TraceEvent& event : events) {
    if (event.name == "op" && event.num_bytes != 1000) return event.num_bytes;
  }
  return -1;
}

TEST(Trace, OperandBytesCountUnlessReportedOtherwise) {
  EXPECT_EQ(op_bytes(0, 0, nullptr), 110);
  EXPECT_EQ(op_bytes(3, 0, nullptr), 110);
  EXPECT_EQ(op_bytes(3, 7, nullptr), 7);
  EXPECT_EQ(op_bytes(0, 0, "wait"), 110);
  EXPECT_EQ(op_bytes(0, 0, "copy"), 0);  // the inner span did the work
  EXPECT_EQ(op_bytes(3, 0, "copy"), 110);
}

TEST(Trace, MovedSpanIsRecordedOnce) {
  start_trace();
  {
    const auto make = [] {
      TraceSpan span("moved", "step");
      return TraceSpan(std::move(span));
    };
    const TraceSpan kept = make();
    trace_work(3);
  }
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].num_flops, 3);
}

TEST(Trace, OperationSpansNameTheEnclosingModule) {
  RankContext context;
  context.module_scope = make_ref<ScopeName>("Linear 'encoder.fc1'");
  RankContext::Use use(context);
  start_trace();
  {
    TraceSpan module("Linear 'encoder.fc1'", "forward");
    TraceSpan op("linear", "op");
  }
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].module, "");
  EXPECT_EQ(events[1].module, "Linear 'encoder.fc1'");
}

TEST(Trace, CopiedContextHasNoOpenSpan) {
  RankContext context;
  RankContext::Use use(context);
  start_trace();
  {
    TraceSpan span("creator", "step");
    RankContext copy = context;
    EXPECT_EQ(copy.open_span.innermost, nullptr);
    RankContext::Use other(copy);
    trace_work(3);
  }
  EXPECT_EQ(stop_trace().at(0).num_flops, 0);
}

TEST(Trace, SpansOfAllThreadsAreRecorded) {
  start_trace();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([rank] {
      RankContext context;
      context.rank = rank;
      RankContext::Use use(context);
      for (int i = 0; i < 33; ++i) TraceSpan span("work", "forward");
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<int> count(4);
  for (const TraceEvent& event : stop_trace()) ++count[static_cast<size_t>(event.rank)];
  EXPECT_EQ(count, std::vector<int>(4, 33));
}

/// Mark i has time `times[i]`; marks from `first_missing` on do not exist.
class ListedTimes : public TraceClock {
 public:
  explicit ListedTimes(std::vector<int64_t> times, int64_t first_missing = 100)
      : times_(std::move(times)), first_missing_(first_missing) {}
  int64_t mark() noexcept override { return next_ < first_missing_ ? next_++ : kNoMark; }
  std::vector<int64_t> times_ns() override {
    if (times_.empty()) throw std::runtime_error("the work failed");
    return times_;
  }

 private:
  const std::vector<int64_t> times_;
  const int64_t first_missing_;
  int64_t next_ = 0;
};

TEST(TraceClock, SpanTimesComeFromClockMarks) {
  start_trace(std::make_shared<ListedTimes>(std::vector<int64_t>{100, 200, 500, 900}));
  {
    const TraceSpan outer("outer", "step");
    const TraceSpan inner("inner", "op", 12);
  }
  record_trace(event("by the host's clock", 300));
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "outer");
  EXPECT_EQ(std::pair(events[0].begin_ns, events[0].end_ns), std::pair(int64_t{100}, int64_t{900}));
  EXPECT_EQ(events[1].name, "inner");
  EXPECT_EQ(std::pair(events[1].begin_ns, events[1].end_ns), std::pair(int64_t{200}, int64_t{500}));
  EXPECT_EQ(events[1].num_bytes, 12);
  EXPECT_EQ(events[2].begin_ns, 300);
}

TEST(TraceClock, SpansWithoutBothMarksAreDropped) {
  start_trace(std::make_shared<ListedTimes>(std::vector<int64_t>{100, 200, 300}, 3));
  { const TraceSpan whole("whole", "op"); }
  { const TraceSpan half("half", "op"); }
  { const TraceSpan without("without", "op"); }
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "whole");
}

TEST(TraceClock, SpanOfEarlierTraceIsDropped) {
  start_trace(std::make_shared<ListedTimes>(std::vector<int64_t>{100}));
  {
    const TraceSpan span("of the first trace", "op");
    stop_trace();
    start_trace(std::make_shared<ListedTimes>(std::vector<int64_t>{100, 200}));
  }
  EXPECT_TRUE(stop_trace().empty());
}

TEST(TraceClock, StopTraceRethrowsClockFailure) {
  start_trace(std::make_shared<ListedTimes>(std::vector<int64_t>()));
  EXPECT_THROW(stop_trace(), std::runtime_error);
  EXPECT_FALSE(trace_enabled());
  start_trace();
  { const TraceSpan span("by the host's clock", "op"); }
  EXPECT_EQ(stop_trace().size(), 1u);
}

}}  // namespace tandem

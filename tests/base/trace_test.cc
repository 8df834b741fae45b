#include <tandem/base/trace.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/base/rank_context.h>

namespace tandem {
namespace {

TraceEvent event(const char* name, int64_t time_ns) {
  TraceEvent result;
  result.name = name;
  result.begin_ns = result.end_ns = time_ns;
  return result;
}

TEST(Trace, OffUntilStarted) {
  EXPECT_FALSE(trace_enabled());
  { TraceSpan span("lost", "forward"); }
  record_trace(event("lost too", 7));
  start_trace();
  EXPECT_TRUE(trace_enabled());
  EXPECT_TRUE(stop_trace().empty());
  EXPECT_FALSE(trace_enabled());
}

TEST(Trace, SpanCarriesRankThreadAndBytes) {
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

TEST(Trace, EventsComeOldestFirst) {
  start_trace();
  {
    TraceSpan outer("outer", "step");
    TraceSpan inner("inner", "forward");
  }  // inner ends, and is recorded, first
  record_trace(event("earlier", 1));
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "earlier");
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_EQ(events[2].name, "inner");
}

TEST(Trace, StartForgetsWhatWasRecorded) {
  start_trace();
  record_trace(event("old", 7));
  start_trace();
  record_trace(event("new", 7));
  const std::vector<TraceEvent> events = stop_trace();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "new");
}

TEST(Trace, RecordsFromManyThreads) {
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

}  // namespace
}  // namespace tandem

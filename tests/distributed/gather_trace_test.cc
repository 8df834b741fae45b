#include <tandem/distributed/gather_trace.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/launch.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

/// Rank r records r events, so that the sizes of the traces differ and rank 0's is the shortest.
TANDEM_RANK_MAIN(record_and_gather) {
  start_trace();
  for (int i = 0; i < context.rank(); ++i) {
    record_trace({.name = str("step ", i, " with \"quotes\""),
                  .category = "step",
                  .rank = context.rank(),
                  .thread = 2 + i,
                  .begin_ns = 1000 * (3 - context.rank()) + i,
                  .end_ns = 5000 + i,
                  .num_bytes = 7 * i,
                  .num_flops = 11 * i,
                  .module = str("Linear 'fc", i, "'")});
  }
  const std::vector<TraceEvent> all = gather_trace(*context.group());
  TANDEM_CHECK(StateError, context.rank() == 0 || all.empty(), "rank ", context.rank(), " got events");
  TANDEM_CHECK(StateError, !trace_enabled(), "still recording");
  if (context.rank() != 0) return;
  std::ofstream out(args.at(0));
  for (const TraceEvent& e : all) {
    if (e.category != "step") continue;  // the group also records its operations
    out << e.name << "|" << e.rank << "|" << e.thread << "|" << e.begin_ns << "|" << e.end_ns << "|" << e.num_bytes
        << "|" << e.num_flops << "|" << e.module << "\n";
  }
}

TEST(GatherTrace, RankZeroReceivesAllEventsSortedByTime) {
  const std::string path = testing::TempDir() + "/trace";
  spawn(3, "record_and_gather", {path});
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}),
            "step 0 with \"quotes\"|2|2|1000|5000|0|0|Linear 'fc0'\n"
            "step 1 with \"quotes\"|2|3|1001|5001|7|11|Linear 'fc1'\n"
            "step 0 with \"quotes\"|1|2|2000|5000|0|0|Linear 'fc0'\n");
}

}}}}  // namespace tandem::v0::distributed

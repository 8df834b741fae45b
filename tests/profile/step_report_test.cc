#include <tandem/profile/step_report.h>

#include <gtest/gtest.h>

namespace tandem::profile { namespace {

/// A step of 100 us that begins at `start` us: forward, backward and optimizer of one linear layer. Spans are in the
/// order of their ends, as in a trace.
std::vector<TraceEvent> step(int64_t start, int64_t linear_us = 20) {
  std::vector<TraceEvent> events = {
      {"copy", "copy", 0, 0, 10, 15, 800, 0, "Linear 'fc1'"},
      {"linear", "op", 0, 0, 5, 5 + linear_us, 400, 6000, "Linear 'fc1'"},
      {"Linear 'fc1'", "forward", 0, 0, 2, 30, 0},
      {"sum", "op", 0, 0, 30, 32, 40, 0, ""},
      {"relu_backward", "op", 0, 0, 41, 45, 120, 0, "ReLU 'relu'"},
      {"relu", "backward", 0, 0, 41, 46, 0, 0, "ReLU 'relu'"},
      {"linear", "backward", 0, 0, 46, 76, 600, 9000, "Linear 'fc1'"},
      {"add_into", "copy", 0, 0, 77, 78, 30, 0, ""},
      {"backward", "backward", 0, 0, 40, 80, 0},
      {"all_reduce", "comm", 0, 1, 50, 90, 7},  // on another thread
      {"wait for gradients", "wait", 0, 0, 80, 84, 0},
      {"optimizer step", "optimizer", 0, 0, 84, 95, 50, 0, ""},
      {"launch", "comm", 0, 0, 60, 60, 0},  // an instant
      {"step", "step", 0, 0, 0, 100, 0},
  };
  for (TraceEvent& event : events) {
    event.begin_ns = (event.begin_ns + start) * 1000;
    event.end_ns = (event.end_ns + start) * 1000;
  }
  return events;
}

StepRow row_of(const StepReport& report, const std::string& phase, const std::string& op,
               const std::string& module = "") {
  for (const StepRow& row : report.rows) {
    if (row.phase == phase && row.op == op && row.module == module) return row;
  }
  ADD_FAILURE() << "no row " << phase << " " << op << " " << module;
  return {};
}

TEST(StepReport, RowsHoldExclusiveTimesAndSumToStep) {
  const StepReport report = step_report(step(1000));
  EXPECT_EQ(report.steps, 1);
  EXPECT_DOUBLE_EQ(report.step_ms, 0.1);
  const auto us = [&](const char* phase, const char* op) { return 1e3 * row_of(report, phase, op).ms; };
  EXPECT_NEAR(us("forward", "linear"), 15, 1e-9);  // without its copy
  EXPECT_NEAR(us("forward", "linear: copy"), 5, 1e-9);
  EXPECT_NEAR(us("forward", "(between operations)"), 8, 1e-9);
  EXPECT_NEAR(us("forward", "sum"), 2, 1e-9);
  EXPECT_NEAR(us("backward", "relu"), 1, 1e-9);
  EXPECT_NEAR(us("backward", "relu: relu_backward"), 4, 1e-9);
  EXPECT_NEAR(us("backward", "linear"), 30, 1e-9);
  EXPECT_NEAR(us("backward", "add_into"), 1, 1e-9);
  EXPECT_NEAR(us("backward", "(engine)"), 4, 1e-9);
  EXPECT_NEAR(us("other", "(wait for gradients)"), 4, 1e-9);
  EXPECT_NEAR(us("optimizer", "optimizer step"), 11, 1e-9);
  EXPECT_NEAR(us("other", "(outside of operations)"), 15, 1e-9);
  EXPECT_EQ(report.rows.size(), 12u);
  double sum = 0;
  for (const StepRow& row : report.rows) sum += row.ms;
  EXPECT_NEAR(sum, report.step_ms, 1e-12);
  for (size_t i = 1; i < report.rows.size(); ++i) EXPECT_GE(report.rows[i - 1].ms, report.rows[i].ms);
  EXPECT_EQ(row_of(report, "forward", "linear").flops, 6000);
  EXPECT_EQ(row_of(report, "forward", "linear").bytes, 400);
}

TEST(StepReport, ReportsMeansOfTheFasterHalf) {
  std::vector<TraceEvent> events;
  for (const int64_t linear : {20, 22, 24, 25, 24}) {
    for (const TraceEvent& event : step(static_cast<int64_t>(events.size()) * 1000, linear)) events.push_back(event);
  }
  // The last two of five steps are slower; the faster half has three.
  events.back().end_ns += 7000;
  events[events.size() - 15].end_ns += 3000;
  const StepReport report = step_report(events);
  EXPECT_EQ(report.steps, 3);
  EXPECT_NEAR(report.step_ms, 0.1, 1e-12);
  EXPECT_NEAR(row_of(report, "forward", "linear").ms * 1e3, 17, 1e-9);
  EXPECT_DOUBLE_EQ(row_of(report, "forward", "linear").calls, 1);
}

TEST(StepReport, ByModuleOptionSplitsRows) {
  const StepReport report = step_report(step(0), {.by_module = true});
  EXPECT_NEAR(row_of(report, "forward", "linear", "Linear 'fc1'").ms * 1e3, 15, 1e-9);
  EXPECT_NEAR(row_of(report, "forward", "(between operations)", "Linear 'fc1'").ms * 1e3, 8, 1e-9);
  EXPECT_NEAR(row_of(report, "backward", "relu: relu_backward", "ReLU 'relu'").ms * 1e3, 4, 1e-9);
}

TEST(StepReport, ReportIsEmptyWithoutMatchingSteps) {
  EXPECT_EQ(step_report(step(0), {.rank = 1}).steps, 0);
  const StepReport none = step_report({{"linear", "op", 0, 0, 5, 25, 0}});
  EXPECT_EQ(none.steps, 0);
  EXPECT_TRUE(none.rows.empty());
}

TEST(StepReport, SpansOfEqualTimesNestInEndOrder) {
  const StepReport report = step_report({
      {"copy", "copy", 0, 0, 0, 1000, 0},
      {"linear", "op", 0, 0, 0, 1000, 0},
      {"step", "step", 0, 0, 0, 1000, 0},
  });
  EXPECT_DOUBLE_EQ(row_of(report, "forward", "linear: copy").ms, 1e-3);
  EXPECT_DOUBLE_EQ(row_of(report, "forward", "linear").ms, 0);
}

TEST(StepReport, RooflineShareIsTheLargerLimit) {
  StepRow row;
  row.ms = 2;
  row.flops = 3e6;
  row.bytes = 5e6;
  EXPECT_DOUBLE_EQ(roofline_share(row, {.gflops = 3, .gb_per_s = 10}), 0.5);
  EXPECT_DOUBLE_EQ(roofline_share(row, {.gflops = 100, .gb_per_s = 10}), 0.25);
  row.ms = 0;
  EXPECT_EQ(roofline_share(row, {.gflops = 100, .gb_per_s = 10}), 0);
}

TEST(StepReport, TextMatchesExpectedTable) {
  const StepReport report = step_report({
      {"matmul", "op", 0, 0, 100'000, 600'000, 4'000'000, 50'000'000, ""},
      {"optimizer step", "optimizer", 0, 0, 700'000, 900'000, 0},
      {"step", "step", 0, 0, 0, 1'000'000, 0},
  });
  EXPECT_EQ(to_text(report, {.gflops = 200, .gb_per_s = 20}),
            "phase     operation                                calls         ms    share     GF/s     GB/s    roof\n"
            "forward   matmul                                       1      0.500   50.0 %    100.0      8.0    50 %\n"
            "other     (outside of operations)                      1      0.300   30.0 %\n"
            "optimizer optimizer step                               1      0.200   20.0 %\n"
            "\n"
            "forward   all                                          1      0.500   50.0 %    100.0      8.0    50 %\n"
            "optimizer all                                          1      0.200   20.0 %\n"
            "other     all                                          1      0.300   30.0 %\n"
            "step                                                   3      1.000  100.0 %     50.0      4.0    25 %\n");
}

}}  // namespace tandem::profile

// The tour's tables and results: a wrong value is noticed, and shown.

#include <tandem/examples/collectives/stop.h>
#include <tandem/examples/support/brief.h>
#include <tandem/tandem.h>

#include <limits>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace {

namespace td = tandem;

using examples::brief;
using examples::Stop;
using examples::Values;

TEST(Stop, CorrectValuesAreReportedAsOk) {
  Stop stop("gather", "group.gather(parts, x, 0)", "the root gets all");
  stop.show("x", td::tensor({1, 2}));
  stop.check("after", std::vector{td::tensor({1.5, -2.0}), td::tensor({3})}, {1.5, -2, 3});
  stop.check("nothing", std::vector<td::Tensor>(), {});
  stop.check("error", "\"quoted\"", "\"quoted\"");
  EXPECT_EQ(stop.wrong(), 0);
  EXPECT_EQ(stop.columns(), (std::vector<std::string>{"x", "after", "nothing", "error"}));
  EXPECT_EQ(stop.row(), (std::vector<std::string>{"[1 2]", "[1.5 -2] [3]", "-", "\"quoted\""}));
  EXPECT_EQ(stop.json_lines(3),
            "{\"rank\": 3, \"op\": \"gather\", \"ok\": true, \"got\": [1.5,-2.0,3.0], \"expected\": [1.5,-2.0,3.0]}\n"
            "{\"rank\": 3, \"op\": \"gather nothing\", \"ok\": true, \"got\": [], \"expected\": []}\n"
            "{\"rank\": 3, \"op\": \"gather error\", \"ok\": true, \"got\": \"\\\"quoted\\\"\", \"expected\": "
            "\"\\\"quoted\\\"\"}\n");
}

TEST(Stop, WrongValuesAreCountedAndPrinted) {
  Stop stop("all_reduce", "group.all_reduce(x)", "sums");
  stop.check("sum", td::tensor({4.0, 3.0}), {4, 4});
  stop.check("max", td::tensor({4.0}), {4});
  stop.check("number", td::tensor({4.0}), {4, 4});
  stop.check("nan", td::full({}, std::numeric_limits<double>::quiet_NaN()), {std::numeric_limits<double>::quiet_NaN()});
  stop.check("missing", td::Tensor(), {1});
  stop.check("text", "here", "there");
  EXPECT_EQ(stop.wrong(), 5);
  EXPECT_EQ(stop.row(), (std::vector<std::string>{"[4 3] WRONG, expected [4.0,4.0]", "[4]",
                                                  "[4] WRONG, expected [4.0,4.0]", "nan WRONG, expected [null]",
                                                  "- WRONG, expected [1.0]", "here WRONG, expected there"}));
  EXPECT_TRUE(stop.json_lines(0).starts_with(
      "{\"rank\": 0, \"op\": \"all_reduce sum\", \"ok\": false, \"got\": [4.0,3.0], \"expected\": [4.0,4.0]}\n"
      "{\"rank\": 0, \"op\": \"all_reduce max\", \"ok\": true, "))
      << stop.json_lines(0);
}

TEST(Stop, ToleranceAllowsSmallDeviations) {
  Stop stop("all_reduce", "group.all_reduce(x)", "means");
  stop.check("near", td::tensor({1.5, -4.5}), {1, -4}, 0.5);
  EXPECT_EQ(stop.wrong(), 0);
  stop.check("beyond", td::tensor({1.5, -7.0}), {1, -4}, 0.5);
  stop.check("nan", td::full({}, std::numeric_limits<double>::quiet_NaN()), {1}, 0.5);
  stop.check("number", td::tensor({4.0}), {4, 4}, 0.5);
  stop.check("exactly", td::tensor({1.5}), {1});
  EXPECT_EQ(stop.wrong(), 4);
}

TEST(RequireRight, ThrowsWithCountOfWrongResults) {
  examples::require_right(0);
  const auto text_of = [](int wrong) -> std::string {
    try {
      examples::require_right(wrong);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(text_of(1), "1 wrong result");
  EXPECT_EQ(text_of(5), "5 wrong results");
}

TEST(Brief, FormatsScalarsViewsAndMissingTensors) {
  EXPECT_EQ(brief(td::Tensor()), "-");
  EXPECT_EQ(brief(td::full({}, 2.5)), "2.5");
  EXPECT_EQ(brief(td::zeros({0})), "[]");
  EXPECT_EQ(brief(td::arange(0, 6).view({2, 3}).t()), "[[0 3] [1 4] [2 5]]");
  EXPECT_EQ(brief(td::tensor({true, false})), "[1 0]");
  EXPECT_EQ(brief(std::vector<td::Tensor>()), "-");
}

TEST(PrintTable, PrintsOneRowPerRank) {
  testing::internal::CaptureStdout();
  td::distributed::run_threads(3, [](td::distributed::Context& ctx) {
    Stop stop("op", "group.op(x)", "what it means");
    stop.show("x", td::full({ctx.rank()}, ctx.rank()));
    stop.check("after", td::tensor({1.0}), {1});
    print_table(stop, *ctx.group());
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "group.op(x)\n"
            "    what it means\n"
            "            x      after\n"
            "    rank 0  []     [1]\n"
            "    rank 1  [1]    [1]\n"
            "    rank 2  [2 2]  [1]\n\n");
}

}  // namespace

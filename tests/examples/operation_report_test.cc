// Tables and JSON lines of examples/collectives: wrong values are detected and printed.

#include <tandem/examples/collectives/operation_report.h>
#include <tandem/examples/support/brief.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>

namespace {

namespace td = tandem;

using examples::brief;
using examples::OperationReport;
using examples::Values;

TEST(OperationReport, CorrectValuesAreReportedAsOk) {
  OperationReport report("gather", "group.gather(parts, x, 0)", "the root gets all");
  report.show("x", td::tensor({1, 2}));
  report.check("after", std::vector{td::tensor({1.5, -2.0}), td::tensor({3})}, {1.5, -2, 3});
  report.check("nothing", std::vector<td::Tensor>(), {});
  report.check("error", "\"quoted\"", "\"quoted\"");
  EXPECT_EQ(report.wrong(), 0);
  EXPECT_EQ(report.columns(), (std::vector<std::string>{"x", "after", "nothing", "error"}));
  EXPECT_EQ(report.row(), (std::vector<std::string>{"[1 2]", "[1.5 -2] [3]", "-", "\"quoted\""}));
  EXPECT_EQ(report.json_lines(3),
            "{\"rank\": 3, \"op\": \"gather\", \"ok\": true, \"got\": [1.5,-2.0,3.0], \"expected\": [1.5,-2.0,3.0]}\n"
            "{\"rank\": 3, \"op\": \"gather nothing\", \"ok\": true, \"got\": [], \"expected\": []}\n"
            "{\"rank\": 3, \"op\": \"gather error\", \"ok\": true, \"got\": \"\\\"quoted\\\"\", \"expected\": "
            "\"\\\"quoted\\\"\"}\n");
}

TEST(OperationReport, WrongValuesAreCountedAndPrinted) {
  OperationReport report("all_reduce", "group.all_reduce(x)", "sums");
  report.check("sum", td::tensor({4.0, 3.0}), {4, 4});
  report.check("max", td::tensor({4.0}), {4});
  report.check("number", td::tensor({4.0}), {4, 4});
  report.check("nan", td::full({}, std::numeric_limits<double>::quiet_NaN()),
               {std::numeric_limits<double>::quiet_NaN()});
  report.check("missing", td::Tensor(), {1});
  report.check("text", "here", "there");
  EXPECT_EQ(report.wrong(), 5);
  EXPECT_EQ(report.row(), (std::vector<std::string>{"[4 3] WRONG, expected [4.0,4.0]", "[4]",
                                                    "[4] WRONG, expected [4.0,4.0]", "nan WRONG, expected [null]",
                                                    "- WRONG, expected [1.0]", "here WRONG, expected there"}));
  EXPECT_TRUE(report.json_lines(0).starts_with(
      "{\"rank\": 0, \"op\": \"all_reduce sum\", \"ok\": false, \"got\": [4.0,3.0], \"expected\": [4.0,4.0]}\n"
      "{\"rank\": 0, \"op\": \"all_reduce max\", \"ok\": true, "))
      << report.json_lines(0);
}

TEST(OperationReport, ToleranceAllowsSmallDeviations) {
  OperationReport report("all_reduce", "group.all_reduce(x)", "means");
  report.check("near", td::tensor({1.5, -4.5}), {1, -4}, 0.5);
  EXPECT_EQ(report.wrong(), 0);
  report.check("beyond", td::tensor({1.5, -7.0}), {1, -4}, 0.5);
  report.check("nan", td::full({}, std::numeric_limits<double>::quiet_NaN()), {1}, 0.5);
  report.check("number", td::tensor({4.0}), {4, 4}, 0.5);
  report.check("exactly", td::tensor({1.5}), {1});
  EXPECT_EQ(report.wrong(), 4);
}

TEST(ThrowIfWrong, ThrowsWithCountOfWrongResults) {
  examples::throw_if_wrong(0);
  const auto text_of = [](int wrong) -> std::string {
    try {
      examples::throw_if_wrong(wrong);
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
  ::testing::internal::CaptureStdout();
  td::distributed::run_threads(3, [](td::distributed::Context& ctx) {
    OperationReport report("op", "group.op(x)", "what it means");
    report.show("x", td::full({ctx.rank()}, ctx.rank()));
    report.check("after", td::tensor({1.0}), {1});
    print_table(report, ctx.group());
  });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "group.op(x)\n"
            "    what it means\n"
            "            x      after\n"
            "    rank 0  []     [1]\n"
            "    rank 1  [1]    [1]\n"
            "    rank 2  [2 2]  [1]\n\n");
}

}  // namespace

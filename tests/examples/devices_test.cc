// Tests of the helpers of the multi-device examples: detection of wrong results, memory limits, differences.

#include <tandem/examples/support/demo.h>
#include <tandem/examples/support/devices.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>

namespace {

namespace td = tandem;

using examples::Demo;
using examples::MethodTable;
using Tensors = std::vector<td::Tensor>;

class DeviceExampleSupport : public ::testing::Test {
 protected:
  void SetUp() override {
    if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  }

  std::ostringstream out_;
  Demo demo_{out_};
  const td::Device cpu_;
  const td::Device other_{"cpu:1"};
};

TEST_F(DeviceExampleSupport, CorrectResultsArePrinted) {
  const td::Tensor x = td::tensor({1, 2});
  demo_.heading("sums");
  demo_.returns("a + b", {x, x.to(other_)}, {1, 2});
  demo_.throws<td::DeviceError>("c + d", [] { throw td::DeviceError("add: no\n  c  cpu"); });
  demo_.check("nothing moved", true);
  EXPECT_EQ(demo_.finish(), 0);
  EXPECT_EQ(out_.str(),
            "\nsums\n"
            "    a + b\n"
            "        [1 2] on cpu, [1 2] on cpu:1  ok\n"
            "    c + d\n"
            "        add: no\n"
            "          c  cpu\n"
            "        nothing moved  ok\n"
            "\nall 3 results are correct\n");
}

TEST_F(DeviceExampleSupport, WrongResultsArePrintedAndGiveStatusOne) {
  const td::Tensor x = td::tensor({1, 2});
  demo_.returns("one is wrong", {x, x + 1}, {1, 2});
  demo_.returns("no tensor", {}, {});
  demo_.throws<td::DeviceError>("no error", [] {});
  demo_.check("right", true);
  EXPECT_EQ(demo_.finish(), 1);
  EXPECT_EQ(out_.str(),
            "    one is wrong\n"
            "        [1 2] on cpu, [2 3] on cpu  WRONG\n"
            "    no tensor\n"
            "          WRONG\n"
            "    no error\n"
            "        no error was thrown  WRONG\n"
            "        right  ok\n"
            "\n3 of 4 results are WRONG\n");
}

TEST_F(DeviceExampleSupport, UnexpectedErrorTypeIsNotCaught) {
  EXPECT_THROW(demo_.throws<td::DeviceError>("f()", [] { throw td::OutOfMemory("no"); }), td::OutOfMemory);
}

TEST_F(DeviceExampleSupport, RunDemoReturnsTheExitStatus) {
  const auto status_of = [](const std::function<void(Demo&)>& show) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = examples::run_demo(show);
    return td::str(status, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(status_of([](Demo& demo) { demo.count_result(true); }), "0\nall 1 results are correct\n");
  EXPECT_EQ(status_of([](Demo& demo) { demo.count_result(false); }), "1\n1 of 1 results are WRONG\n");
  EXPECT_EQ(status_of([](Demo&) { throw std::runtime_error("no device"); }), "1no device\n");
}

TEST_F(DeviceExampleSupport, TableRowDetectsEveryKindOfWrongResult) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const td::Tensor x = td::tensor({1.0, 2.0});
  const td::Tensor y = td::tensor({1.0, 2.25});
  struct Case {
    const char* what;
    Tensors results, expected;
    double tolerance;
    std::string result;
  };
  const Case cases[] = {
      {"equal", {x}, {x.to(other_)}, 0, "ok"},
      {"all equal to one", {x.to(other_), x}, {x}, 0, "ok"},
      {"one for each", {x, y}, {x, y}, 0, "ok"},
      {"within", {y}, {x}, 0.25, "ok, off by 0.25"},
      {"beyond", {y}, {x}, 0.2, "WRONG, off by 0.25"},
      {"the last is wrong", {x, y}, {x}, 0, "WRONG, off by 0.25"},
      {"in another order", {y, x}, {x, y}, 0, "WRONG, off by 0.25"},
      {"nan", {td::tensor({1.0, nan})}, {x}, 1, "WRONG, off by nan"},
      {"elsewhere", {x.to(other_)}, {x}, 1, "WRONG, off by nan"},
      {"nothing", {}, {x}, 1, "WRONG, off by nan"},
      {"too few", {x}, {x, x}, 1, "WRONG, off by nan"},
      {"another shape", {x.view({2, 1})}, {x}, 1, "WRONG, off by nan"},
      {"another dtype", {x.to(td::kFloat64)}, {x}, 1, "WRONG, off by nan"},
  };
  int num_wrong = 0;
  for (const Case& c : cases) {
    std::ostringstream out;
    Demo demo(out);
    MethodTable table(demo, 1, "GB/s");
    table.row(
        c.what, cpu_, [&] { return c.results; }, c.expected, c.tolerance);
    const bool is_correct = c.result.starts_with("ok");
    EXPECT_EQ(demo.finish(), is_correct ? 0 : 1) << c.what;
    EXPECT_NE(out.str().find("  " + c.result + "\n"), std::string::npos) << out.str();
    if (!is_correct) ++num_wrong;
  }
  EXPECT_EQ(num_wrong, 9);
}

TEST_F(DeviceExampleSupport, TableRowPrintsMethodDeviceAndPeakMemory) {
  MethodTable table(demo_, 1 << 20, "GB/s");
  const td::Tensor zeros = td::zeros({1 << 18});
  table.row("twice", other_,
            [&] {
              const td::Tensor first = td::zeros({1 << 18}, {td::kFloat32, other_});
              return Tensors{td::zeros({1 << 18}, {td::kFloat32, other_})};
            },
            {zeros});
  std::istringstream in(out_.str());
  std::string header, row, method, device, time, rate, peak, unit, result;
  std::getline(in, header);
  in >> method >> device >> time >> rate >> peak >> unit >> result;
  EXPECT_EQ(method, "twice");
  EXPECT_EQ(device, "cpu:1");
  EXPECT_GT(std::stod(time), 0);
  EXPECT_EQ(peak + " " + unit, "2.0 MiB") << "both tensors of one call";
  EXPECT_EQ(result, "ok");
}

TEST_F(DeviceExampleSupport, LargestDifferenceFindsDeviationsAndNan) {
  const auto difference = [](const td::Tensor& a, const td::Tensor& b) { return examples::largest_difference(a, b); };
  const td::Tensor x = td::rand({3, (1 << 20) + 5});  // longer than the blocks of largest_difference
  EXPECT_EQ(difference(x, x.to(other_)), 0);
  EXPECT_EQ(difference(x.t(), x.t().clone()), 0);
  for (const int64_t at : {int64_t{0}, int64_t{1 << 20}, x.size(1) - 1}) {
    const td::Tensor y = x.clone();
    y[2][at].add_(-3);
    EXPECT_NEAR(difference(x, y), 3, 1e-6) << at;
    y[1][3].fill_(std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(std::isnan(difference(x, y))) << at;
  }
  EXPECT_EQ(difference(td::zeros({0}), td::zeros({0})), 0);
}

TEST_F(DeviceExampleSupport, MemoryLimitAndPeakIgnoreEarlierAllocations) {
  const td::Tensor held = td::zeros({1024}, {td::kFloat32, other_});
  const examples::PeakMemory peak(other_);
  {
    const examples::MemoryLimit limit(other_, 4096);
    EXPECT_EQ(td::free_memory(other_), 4096);
    const td::Tensor x = td::zeros({1024}, {td::kFloat32, other_});
    EXPECT_EQ(td::free_memory(other_), 0);
  }
  EXPECT_EQ(td::memory_stats(other_).limit, 0);
  EXPECT_EQ(peak.bytes(), 4096);
}

TEST_F(DeviceExampleSupport, MedianTimeUsesSeveralCalls) {
  int calls = 0;
  EXPECT_GE(examples::median_milliseconds([&] { ++calls; }), 0);
  EXPECT_GT(calls, 1);
}

}  // namespace

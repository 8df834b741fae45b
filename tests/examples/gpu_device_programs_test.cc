// The examples of several devices with GPUs in place of CPU devices: the same number of results, and all are right.
#include <gtest/gtest.h>

#include <string>

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

/// Operations' own tests check them, and moves measure bandwidths with blocks of half the memory.
const Variables kSmall = {
    {"TANDEM_EMULATED_GPUS", "4"}, {"TANDEM_EMULATED_CHECKS", "0"}, {"TANDEM_EMULATED_GPU_MIB", "24"}};

struct Program {
  const char* name;
  Arguments arguments;
  const char* end;
};

class GpuDeviceExamples : public testing::TestWithParam<Program> {};

std::string program_name(const testing::TestParamInfo<Program>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(, GpuDeviceExamples,
                         testing::Values(Program{"device_sums", {"--mib", "1"}, "\n\nall 19 results are right\n"},
                                         Program{"moves",
                                                 {"--mib", "1", "--chunk-mib", "1", "--in-flight", "1"},
                                                 "\n\nall 24 results are right\n"},
                                         Program{"addmm_devices", {"--size", "65"}, "\n\nall 16 results are right\n"}),
                         program_name);

TEST_P(GpuDeviceExamples, AllResultsAreCorrect) {
  Arguments arguments = GetParam().arguments;
  arguments.insert(arguments.end(), {"--device", "cuda", "--num-devices", "4"});
  const auto result = run_example(GetParam().name, arguments, kSmall);
  EXPECT_EQ(result.status, 0) << result.err << result.out;
  EXPECT_TRUE(result.out.ends_with(GetParam().end)) << result.out;
  EXPECT_NE(result.out.find("cuda:1"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("cpu:1"), std::string::npos) << result.out;
}

}  // namespace

// Runs the multi-device examples on GPUs and checks that all results are correct.
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

/// No checks of kernels, which other tests do; little memory, because bandwidth is measured with blocks of half of it.
const Variables kSmall = {
    {"TANDEM_EMULATED_GPUS", "4"}, {"TANDEM_EMULATED_CHECKS", "0"}, {"TANDEM_EMULATED_GPU_MIB", "64"}};

struct Program {
  const char* name;
  Arguments arguments;
  const char* last_line;
};

class GpuDeviceExamples : public ::testing::TestWithParam<Program> {};

std::string program_name(const ::testing::TestParamInfo<Program>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(, GpuDeviceExamples,
                         ::testing::Values(Program{"device_sums", {"--mib", "1"}, "\n\nall 19 results are correct\n"},
                                           Program{"device_transfers",
                                                   {"--mib", "1", "--chunk-mib", "1", "--in-flight", "1"},
                                                   "\n\nall 24 results are correct\n"},
                                           Program{
                                               "addmm_devices", {"--size", "65"}, "\n\nall 16 results are correct\n"}),
                         program_name);

TEST_P(GpuDeviceExamples, AllResultsAreCorrect) {
  Arguments arguments = GetParam().arguments;
  arguments.insert(arguments.end(), {"--device", "cuda", "--num-devices", "4"});
  const auto result = run_example(GetParam().name, arguments, kSmall);
  EXPECT_EQ(result.status, 0) << result.err << result.out;
  EXPECT_TRUE(result.out.ends_with(GetParam().last_line)) << result.out;
  EXPECT_NE(result.out.find("cuda:1"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("cpu:1"), std::string::npos) << result.out;
}

}  // namespace

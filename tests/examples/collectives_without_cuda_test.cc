// examples/collectives in a build without CUDA.

#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;

TEST(CollectivesExample, CudaDeviceRequiresCudaBuild) {
  for (const char* ranks : {"1", "4"}) {
    const auto result = run_example("collectives", {"--check", "--device", "cuda", "--nproc", ranks});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err, std::string("launch: --device: cuda:") + (ranks[0] == '1' ? "0" : "3") +
                              ": this build of tandem has no CUDA support; build with --config=cuda\n");
    EXPECT_EQ(result.out, "");
  }
  const auto result = run_example("collectives", {"--check", "--device", "auto", "--nproc", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
}

}  // namespace

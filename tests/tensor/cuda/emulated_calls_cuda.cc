// What tandem requests of CUDA, which only the emulation can report.
#include <cuda_emulation/control.h>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

const Device kGpu("cuda:0");

/// Ends a new process with 0 if CUDA was first called with this CUDA_MODULE_LOADING.
template <class F>
void expect_loading(const char* expected, F first_call) {
  EXPECT_EXIT(
      {
        first_call();
        std::_Exit(cuda_emulation::module_loading() == expected ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// Death tests run first, before this process has called CUDA.
TEST(CudaModuleLoadingDeathTest, IsEagerFromTheFirstCallOn) {
  ASSERT_EQ(std::getenv("CUDA_MODULE_LOADING"), nullptr);
  expect_loading("EAGER", [] { static_cast<void>(cuda::device_count()); });
  expect_loading("EAGER", [] { static_cast<void>(cuda::has_context(kGpu)); });
  expect_loading("EAGER", [] { const cuda::Stream stream(kGpu); });
  expect_loading("EAGER", [] { cuda::synchronize(kGpu); });
  expect_loading("EAGER", [] { static_cast<void>(empty({3}, {kFloat32, kGpu})); });
}

TEST(CudaModuleLoadingDeathTest, UserSettingHasPriority) {
  expect_loading("LAZY", [] {
    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    static_cast<void>(cuda::device_count());
  });
}

class CudaFree : public ::testing::Test {
 protected:
  void SetUp() override {
    empty_cache(kGpu);
    for (const int64_t size : {1000, 5000, 70000}) static_cast<void>(empty({size}, {kUInt8, kGpu}));
  }
  void TearDown() override {
    set_memory_limit(kGpu, 0);
    empty_cache(kGpu);
  }

  template <class F>
  static int64_t synchronizations(F f) {
    const int64_t before = cuda_emulation::call_counts().synchronizations;
    f();
    return cuda_emulation::call_counts().synchronizations - before;
  }
};

TEST_F(CudaFree, BlocksOfTheCacheAreFreedAfterOneSynchronization) {
  EXPECT_EQ(synchronizations([] { empty_cache(kGpu); }), 1);
  EXPECT_EQ(synchronizations([] { empty_cache(kGpu); }), 0) << "nothing to free";
}

TEST_F(CudaFree, OutOfMemorySynchronizesBeforeItFrees) {
  set_memory_limit(kGpu, memory_stats(kGpu).reserved);
  EXPECT_EQ(synchronizations([] { static_cast<void>(empty({2000}, {kUInt8, kGpu})); }), 1);
}

TEST_F(CudaFree, CaptureIsNotInterruptedBySynchronization) {
  cuda::Graph graph(kGpu);
  const Tensor x = zeros({4}, {kFloat32, kGpu});
  int64_t during = -1;
  graph.capture([&] {
    primitives::fill(x, 3);
    during = synchronizations([] { empty_cache(kGpu); });
  });
  EXPECT_EQ(during, 0);
  graph.replay();
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(4, 3));
}

}}  // namespace tandem

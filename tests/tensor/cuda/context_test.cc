// A process that uses only its second GPU creates no context on the first one, on any thread. A separate program,
// because contexts exist until the process ends.
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tensor/cuda_memory.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

const Device kFirst("cuda:0"), kOwn("cuda:1");

/// Runs on a new thread, whose current GPU is GPU 0.
template <class F>
void in_a_new_thread(const char* what, F f) {
  std::thread([&] { f(); }).join();
  EXPECT_FALSE(cuda::has_context(kFirst)) << what;
}

TEST(CudaContext, ContextIsCreatedOnlyOnUsedGpu) {
  ASSERT_GE(cuda::device_count(), 2);
  EXPECT_FALSE(cuda::has_context(kOwn));
  std::optional<Tensor> tensor;
  std::optional<cuda::Stream> stream;
  std::optional<cuda::Event> event;
  in_a_new_thread("memory", [&] { tensor = full({1 << 20}, 2.0, {kFloat32, kOwn}); });
  EXPECT_TRUE(cuda::has_context(kOwn));
  in_a_new_thread("copy", [&] { EXPECT_EQ(tensor->to_vector<float>()[7], 2); });
  in_a_new_thread("making", [&] {
    stream.emplace(kOwn);
    event.emplace(kOwn, true);
  });
  in_a_new_thread("record", [&] { event->record(*stream); });
  in_a_new_thread("order", [&] { event->make_wait(*stream); });
  in_a_new_thread("is_completed", [&] { static_cast<void>(event->is_completed()); });
  in_a_new_thread("event's synchronize", [&] { event->synchronize(); });
  in_a_new_thread("time", [&] { EXPECT_EQ(event->milliseconds_since(*event), 0); });
  in_a_new_thread("is_idle", [&] { static_cast<void>(stream->is_idle()); });
  in_a_new_thread("synchronize", [&] { stream->synchronize(); });
  in_a_new_thread("free memory", [&] { EXPECT_GT(cuda::available_bytes(kOwn), 0); });
  in_a_new_thread("an event's end", [&] { event.reset(); });
  in_a_new_thread("a stream's end", [&] { stream.reset(); });
  in_a_new_thread("memory's end", [&] {
    tensor.reset();
    empty_cache(kOwn);
  });
  std::optional<cuda::Graph> graph;
  in_a_new_thread("capture", [&] {
    tensor = zeros({4}, {kFloat32, kOwn});
    graph.emplace(kOwn);
    graph->capture([&] { primitives::fill(*tensor, 3); });
  });
  in_a_new_thread("replay", [&] { graph->replay(); });
  in_a_new_thread("a graph's end", [&] { graph.reset(); });
}

TEST(CudaContext, CurrentDeviceOfThreadIsRestored) {
  std::thread([] {
    static_cast<void>(zeros({4}, {kFloat32, kFirst}));
    static_cast<void>(zeros({4}, {kFloat32, kOwn}));
    int current = -1;
    ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
  }).join();
}

}}  // namespace tandem

// Devices, memory, copies, streams and events.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

using ::testing::Each;
using ::testing::HasSubstr;

__global__ void add(int* data, int n, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    data[i] += value;
  }
}

__global__ void copy(const int* from, int* to, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    to[i] = from[i];
  }
}

class CudaRuntime : public EveryOrder {};
IN_EVERY_ORDER(CudaRuntime);

TEST_P(CudaRuntime, DeviceCountAndPropertiesAreReported) {
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  const char* const wanted = std::getenv("TANDEM_EMULATED_GPUS");
  EXPECT_EQ(count, wanted == nullptr ? 2 : std::atoi(wanted));
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudaDeviceProp properties;
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 1));
  EXPECT_EQ(properties.major * 10 + properties.minor, 90);
  EXPECT_EQ(properties.multiProcessorCount, 4);
  EXPECT_CUDA(cudaSetDevice(1));
  std::thread([] {  // the current device is per thread
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);
  })
      .join();
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

TEST_P(CudaRuntime, AllocationBeyondMemoryFails) {
  size_t before = 0, total = 0, after = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  EXPECT_EQ(total, size_t{512} << 20);
  void *p = nullptr, *q = &before;
  ASSERT_CUDA(cudaMalloc(&p, 1000));
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before - after, 1024U);
  EXPECT_EQ(cudaMalloc(&q, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(q, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(static_cast<char*>(p) + 4), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(p));
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(nullptr));
  EXPECT_CUDA(cudaMalloc(&q, 0));
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
}

TEST_P(CudaRuntime, FreedBlocksAreMergedAndReused) {
  std::vector<void*> blocks(100);
  for (auto& p : blocks) {
    ASSERT_CUDA(cudaMalloc(&p, 5000));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 256, 0U);
  }
  void* const first = blocks[0];
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_CUDA(cudaFree(blocks[i * 37 % blocks.size()]));
  }
  void* all = nullptr;
  ASSERT_CUDA(cudaMalloc(&all, 500000));
  EXPECT_EQ(all, first);
  EXPECT_CUDA(cudaFree(all));
}

TEST_P(CudaRuntime, NewMemoryIsFilledWithNan) {
  const Buffer<float> device(3);
  for (const float v : device.values()) {
    EXPECT_NE(v, v);
  }
  float* pinned = nullptr;
  ASSERT_CUDA(cudaHostAlloc(&pinned, 12, cudaHostAllocDefault));
  EXPECT_NE(pinned[2], pinned[2]);
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_P(CudaRuntime, PointerKindsAreDistinguished) {
  const Buffer<int> device(4);
  int host[4] = {};
  const Stream stream;
  EXPECT_EQ(cudaMemcpyAsync(host, device.data(), 16, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), host, 16, cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device.data() + 1, host, 16, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
}

TEST_P(CudaRuntime, PageableCopiesUseBytesAtCallTime) {
  std::vector<int> host(100, 1), back(100, 0);
  const Buffer<int> device(100);
  const Stream stream;
  EXPECT_CUDA(cudaMemcpyAsync(device.data(), host.data(), 400, cudaMemcpyDefault, stream));
  std::fill(host.begin(), host.end(), 2);
  EXPECT_CUDA(launch(stream, 1, 128, 0, add, device.data(), 100, 10));
  EXPECT_CUDA(cudaMemcpyAsync(back.data(), device.data(), 400, cudaMemcpyDefault, stream));
  EXPECT_THAT(back, Each(11));  // without synchronization
}

TEST_P(CudaRuntime, PeerCopyAndEventsWorkAcrossDevices) {
  const int n = 1000;
  const Stream stream0;
  const Event copied;
  const Buffer<int> a(std::vector<int>(n, 1));
  EXPECT_CUDA(launch(stream0, 4, 256, 0, add, a.data(), n, 5));
  ASSERT_CUDA(cudaSetDevice(1));
  {
    const Stream stream1;
    const Buffer<int> b(n);
    EXPECT_CUDA(cudaMemcpyPeerAsync(b.data(), 1, a.data(), 0, b.num_bytes(), stream0));
    EXPECT_EQ(cudaMemcpyPeerAsync(b.data(), 0, a.data(), 0, b.num_bytes(), stream0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaEventRecord(copied, stream1), cudaErrorInvalidResourceHandle) << "an event of the other device";
    EXPECT_CUDA(cudaEventRecord(copied, stream0));
    EXPECT_CUDA(cudaStreamWaitEvent(stream1, copied));
    EXPECT_CUDA(launch(stream1, 4, 256, 0, add, b.data(), n, 7));
    EXPECT_EQ(launch(stream0, 4, 256, 0, add, b.data(), n, 7), cudaErrorInvalidResourceHandle);
    EXPECT_CUDA(cudaStreamSynchronize(stream1));
    EXPECT_THAT(b.values(), Each(13));
  }
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_THAT(a.values(), Each(6));
  reset();  // of the refused calls
}

TEST_P(CudaRuntime, EventsOrderWorkAcrossStreams) {
  const Stream first, second, third;
  const Event a, b;
  const Buffer<int> x(std::vector<int>(64, 0)), y(64), z(64);
  for (int round = 1; round < 5; ++round) {  // recording an event again does not change earlier waits
    EXPECT_CUDA(launch(first, 1, 64, 0, add, x.data(), 64, 1));
    EXPECT_CUDA(cudaEventRecord(a, first));
    EXPECT_CUDA(cudaStreamWaitEvent(second, a));
    EXPECT_CUDA(launch(second, 1, 64, 0, copy, x.data(), y.data(), 64));
    EXPECT_CUDA(cudaEventRecord(b, second));
    EXPECT_CUDA(cudaStreamWaitEvent(first, b));
    EXPECT_CUDA(cudaStreamWaitEvent(third, b));
    EXPECT_CUDA(launch(third, 1, 64, 0, copy, y.data(), z.data(), 64));
    EXPECT_CUDA(cudaEventRecord(b, third));
    EXPECT_CUDA(cudaStreamWaitEvent(second, b));
    EXPECT_CUDA(cudaStreamSynchronize(third));
    EXPECT_THAT(z.values(), Each(round));
  }
}

TEST_P(CudaRuntime, PollingQueriesEventuallySucceed) {
  const Stream stream;
  const Event start(cudaEventDefault), end(cudaEventDefault);
  const Buffer<int> x(std::vector<int>(64, 0));
  EXPECT_CUDA(cudaEventQuery(end));  // an event that was never recorded is complete
  EXPECT_CUDA(cudaEventRecord(start, stream));
  for (int i = 0; i < 20; ++i) {
    EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
  }
  EXPECT_CUDA(cudaEventRecord(end, stream));
  int polls = 0;
  while (cudaEventQuery(end) == cudaErrorNotReady) {
    ASSERT_LT(++polls, 30);
  }
  EXPECT_CUDA(cudaStreamQuery(stream));
  float milliseconds = -1;
  EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_THAT(x.values(), Each(20));
}

TEST_P(CudaRuntime, HostFunctionsRunInStreamOrder) {
  struct State {
    std::vector<int> seen;
    const int* pinned;
    cudaError_t inside = cudaSuccess;
  } state;
  int* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 64 * sizeof(int)));
  state.pinned = pinned;
  const Stream stream;
  const Buffer<int> x(std::vector<int>(64, 0));
  const auto note = [](void* p) {
    auto& s = *static_cast<State*>(p);
    s.seen.push_back(s.pinned[63]);
    s.inside = cudaDeviceSynchronize();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
    EXPECT_CUDA(cudaMemcpyAsync(pinned, x.data(), x.num_bytes(), cudaMemcpyDeviceToHost, stream));
    EXPECT_CUDA(cudaLaunchHostFunc(stream, note, &state));
  }
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(state.seen, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(state.inside, cudaErrorNotPermitted);
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_P(CudaRuntime, DestroyedStreamStillRunsItsTasks) {
  const Buffer<int> x(std::vector<int>(64, 0));
  {
    const Stream stream;
    EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
  }
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(num_queued_tasks(), 0U);
  EXPECT_THAT(x.values(), Each(1));
}

TEST_P(CudaRuntime, ConcurrentHostThreadsAreSupported) {
  constexpr int kThreads = 4, kRounds = 50;
  const Buffer<int> x(std::vector<int>(64, 0));
  std::atomic<int> called{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const Stream stream;
      const Event event;
      const Buffer<int> own(std::vector<int>(64, 0));
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_CUDA(launch(stream, 1, 64, 0, add, own.data(), 64, 1));
        EXPECT_CUDA(cudaLaunchHostFunc(
            stream, [](void* p) { ++*static_cast<std::atomic<int>*>(p); }, &called));
        EXPECT_CUDA(cudaEventRecord(event, stream));
        EXPECT_CUDA(i % 2 == 0 ? cudaEventSynchronize(event) : cudaDeviceSynchronize());
      }
      EXPECT_THAT(own.values(), Each(kRounds));
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  EXPECT_EQ(called, kThreads * kRounds);
}

TEST_P(CudaRuntime, InvalidLaunchShapesAreRejected) {
  const Stream stream;
  const Buffer<int> x(std::vector<int>(1, 0));
  const auto shape = [&](dim3 grid, dim3 block, size_t shared) {
    return launch(stream, grid, block, shared, add, x.data(), 0, 0);
  };
  EXPECT_CUDA(shape(1, 1024, 0));
  EXPECT_EQ(shape(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(1, dim3(32, 33), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(0, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(1, dim3(1, 0), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(dim3(1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(dim3(1, 1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(shape(0x80000000U, 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_CUDA(shape(dim3(1, 1, 65535), 1, 48 << 10));
  EXPECT_EQ(shape(1, 1, (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(launch(nullptr, 1, 1, 0, add, x.data(), 0, 0), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(last_report(), HasSubstr("the default stream is not emulated"));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  reset();
}

// Effects of a missing event depend on the order, so these tests select one.
class ExecutionOrder : public CudaTest {
 protected:
  /// Copies memory that another stream writes, with or without an event in between.
  std::vector<int> copied(bool event_between) {
    const Stream writer, reader;
    const Event written;
    const Buffer<int> x(std::vector<int>(64, 0)), y(std::vector<int>(64, -1));
    EXPECT_CUDA(launch(writer, 1, 64, 0, add, x.data(), 64, 1));
    EXPECT_CUDA(cudaEventRecord(written, writer));
    if (event_between) {
      EXPECT_CUDA(cudaStreamWaitEvent(reader, written));
    }
    EXPECT_CUDA(launch(reader, 1, 64, 0, copy, x.data(), y.data(), 64));
    EXPECT_CUDA(cudaStreamSynchronize(reader));
    return y.values();
  }
};

TEST_F(ExecutionOrder, LazyOrderExposesMissingWait) {
  EXPECT_THAT(copied(true), Each(1));
  EXPECT_THAT(copied(false), Each(0));
}

TEST_F(ExecutionOrder, SomeRandomOrdersExposeMissingWait) {
  int wrong = 0;
  for (int seed = 0; seed < 20; ++seed) {
    ASSERT_TRUE(set_order("random:" + std::to_string(seed)));
    EXPECT_THAT(copied(true), Each(1));
    const auto first = copied(false);
    wrong += first[0] == 0 ? 1 : 0;
    ASSERT_TRUE(set_order("random:" + std::to_string(seed)));
    EXPECT_THAT(copied(true), Each(1));
    EXPECT_EQ(copied(false), first) << "the same seed, the same order";
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 20);
}

// Overwriting memory while another stream still reads it.
TEST_F(ExecutionOrder, RandomOrdersRunOtherStreamsEarly) {
  int wrong = 0;
  for (int seed = 0; seed < 20; ++seed) {
    ASSERT_TRUE(set_order("random:" + std::to_string(seed)));
    const Stream reader, writer;
    const Buffer<int> x(std::vector<int>(64, 0)), y(64);
    EXPECT_CUDA(launch(reader, 1, 64, 0, copy, x.data(), y.data(), 64));
    EXPECT_CUDA(launch(writer, 1, 64, 0, add, x.data(), 64, 1));
    EXPECT_CUDA(cudaStreamSynchronize(reader));
    wrong += y.values()[0] == 1 ? 1 : 0;
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(ExecutionOrder, QueuedWorkRunsOnlyOnSynchronization) {
  const Stream stream, other;
  const Buffer<int> x(std::vector<int>(64, 0));
  EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
  EXPECT_CUDA(launch(other, 1, 64, 0, add, x.data(), 64, 2));
  EXPECT_EQ(num_queued_tasks(), 2U);
  EXPECT_THAT(x.values(), Each(0)) << "cudaMemcpy waits for no stream";
  EXPECT_CUDA(cudaStreamSynchronize(other));
  EXPECT_THAT(x.values(), Each(2));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(x.values(), Each(3));
}

TEST_F(ExecutionOrder, PinnedCopiesReadBytesAtExecution) {
  int* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 4));
  const Stream stream;
  const Buffer<int> x(1);
  *pinned = 1;
  EXPECT_CUDA(cudaMemcpyAsync(x.data(), pinned, 4, cudaMemcpyHostToDevice, stream));
  *pinned = 2;  // an error of the program: the copy may not have started
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(x.values()[0], 2);
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(ExecutionOrder, OnlyFirstBlocksRunIfLimited) {
  for (const char* const order : {"lazy", "random:5"}) {
    ASSERT_TRUE(set_order(order));
    const Stream stream;
    const Buffer<int> x(std::vector<int>(4 * 32, 0));
    set_max_blocks(3);
    EXPECT_CUDA(launch(stream, 4, 32, 0, add, x.data(), 4 * 32, 1));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    set_max_blocks(UINT64_MAX);
    std::vector<int> expected(4 * 32, 0);
    std::fill_n(expected.begin(), 3 * 32, 1);
    EXPECT_EQ(x.values(), expected) << order;
  }
}

TEST_F(ExecutionOrder, CallsAreCountedWhetherKernelsRunOrNot) {
  const Stream stream;
  const Buffer<int> x(std::vector<int>(64, 0));
  cudaEvent_t event;
  ASSERT_CUDA(cudaEventCreate(&event));
  const CallCounts before = call_counts();
  for (const bool run : {true, false}) {
    set_kernels_run(run);
    EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
  }
  set_kernels_run(true);
  EXPECT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(stream, event, 0));
  EXPECT_CUDA(cudaEventSynchronize(event));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 4));
  EXPECT_CUDA(cudaMemcpyAsync(x.data(), x.data() + 1, 4, cudaMemcpyDeviceToDevice, stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&launchable, graph, 0));
  for (int i = 0; i < 3; ++i) EXPECT_CUDA(cudaGraphLaunch(launchable, stream));
  EXPECT_CUDA(cudaDeviceSynchronize());
  const CallCounts after = call_counts();
  EXPECT_EQ(after.kernels - before.kernels, 3);  // one of them is captured; replays do not count
  EXPECT_EQ(after.memory_tasks - before.memory_tasks, 1);
  EXPECT_EQ(after.event_records - before.event_records, 1);
  EXPECT_EQ(after.event_waits - before.event_waits, 1);
  EXPECT_EQ(after.graph_launches - before.graph_launches, 3);
  EXPECT_EQ(after.synchronizations - before.synchronizations, 4);
  EXPECT_EQ(x.values()[63], 1 + 3 * 4);
  EXPECT_CUDA(cudaGraphExecDestroy(launchable));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaEventDestroy(event));
}

TEST_F(ExecutionOrder, OverlongQueueIsExecutedEarly) {
  const Stream stream;
  const Buffer<int> x(std::vector<int>(1, 0));
  for (int i = 0; i < 5000; ++i) {
    EXPECT_CUDA(launch(stream, 1, 1, 0, add, x.data(), 1, 1));
  }
  EXPECT_LT(num_queued_tasks(), 4097U);
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(x.values()[0], 5000);
}

TEST_F(ExecutionOrder, UnknownOrderNamesAreRejected) {
  EXPECT_FALSE(set_order("random:"));
  EXPECT_FALSE(set_order("random:x"));
  EXPECT_FALSE(set_order("late"));
}

using HostAccess = CudaTest;

TEST_F(HostAccess, DeviceMemoryAccessAbortsWithReport) {
  const Buffer<int> x(16);
  volatile int* p = x.data();
  EXPECT_DEATH(static_cast<void>(p[4]), "host access to device memory: cuda:0, 16 bytes into a block of 64 bytes");
  EXPECT_DEATH(p[0] = 1, "host access to device memory: cuda:0, 0 bytes into a block of 64 bytes");
  const Stream stream;  // after tasks have run
  EXPECT_CUDA(launch(stream, 1, 16, 0, add, x.data(), 16, 1));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_DEATH(static_cast<void>(p[4]), "host access to device memory: cuda:0, 16 bytes");
  const auto in_a_task = [&] {
    launch(stream, 1, 16, 0, add, x.data(), 16, 1);
    cudaLaunchHostFunc(
        stream, [](void* q) { *static_cast<int*>(q) = 1; }, x.data());
    cudaStreamSynchronize(stream);
  };
  EXPECT_DEATH(in_a_task(), "host access to device memory: cuda:0, 0 bytes");
}

TEST(CudaRuntimeWithoutDevice, EveryCallReturnsNoDeviceError) {
  const auto in_a_machine_without = [](int call) {
    ::setenv("TANDEM_EMULATED_GPUS", "0", 1);
    int count = -1;
    void* p = nullptr;
    const cudaError_t error = call == 0 ? cudaGetDeviceCount(&count) : call == 1 ? cudaMalloc(&p, 4) : cudaSetDevice(0);
    std::fprintf(stderr, "count %d error %d\n", count, static_cast<int>(error));
    std::_Exit(0);
  };
  ::testing::FLAGS_gtest_death_test_style =
      "threadsafe";  // a new process, in which the number of devices has not been read
  EXPECT_EXIT(in_a_machine_without(0), ::testing::ExitedWithCode(0), "count 0 error 100");
  EXPECT_EXIT(in_a_machine_without(1), ::testing::ExitedWithCode(0), "count -1 error 100");
  EXPECT_EXIT(in_a_machine_without(2), ::testing::ExitedWithCode(0), "count -1 error 100");
}

}}  // namespace cuda_emulation::testing

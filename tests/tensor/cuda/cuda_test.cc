#include <tandem/tensor/cuda.h>

#include <tandem/base/trace.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda/device_error.h>
#include <tandem/tensor/cuda/pinned.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tensor/dlpack.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/gpu_trace_clock.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/op_case.h>

// Memory, streams and primitives of a real or emulated GPU. Suite TwoGpus needs two GPUs; tools/gpu_check selects it by
// name.
namespace tandem::testing { namespace {

const Device kGpu("cuda:0"), kOther("cuda:1");

constexpr int64_t kSizes[] = {0, 1, 3, 31, 255, 256, 257, 1025, 70001};
constexpr DType kDTypes[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

Tensor moved(const Tensor& tensor, Device device) {
  const Tensor out = empty(tensor.shape(), {tensor.dtype(), device});
  primitives::copy(tensor, out);
  return out;
}

Tensor whole_numbers(const Shape& shape, DType dtype, uint64_t seed, Layout layout = Layout::kContiguous) {
  Dense values = random_dense(shape, seed, 0, 50);
  for (double& value : values.values) value = std::floor(value);
  return make_tensor(values, dtype, layout);
}

TEST(Cuda, PropertiesAreReportedAndUnknownDevicesRejected) {
  EXPECT_TRUE(cuda::is_built());
  ASSERT_GE(cuda::device_count(), 1);
  const cuda::DeviceProperties& properties = cuda::device_properties(kGpu);
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GT(properties.num_multiprocessors, 0);
  EXPECT_GT(properties.memory_bytes, int64_t{1} << 20);
  const std::string count = std::to_string(cuda::device_count());
  EXPECT_ERROR(
      DeviceError, zeros({2}, {kFloat32, Device("cuda:77")}),
      "cuda:77: there is no such device; " + count + (count == "1" ? " GPU is available" : " GPUs are available"));
  EXPECT_ERROR(DeviceError, cuda::synchronize(Device()), "cpu: is not a GPU");
}

TEST(Cuda, LargeCopiesUsePinnedMemory) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  for (const int64_t num_bytes : {(int64_t{1} << 20) - 1, int64_t{1} << 20, kPiece, kPiece + 1, 3 * kPiece + 5}) {
    const Tensor x = whole_numbers({num_bytes}, kUInt8, 7);
    const Tensor there = moved(x, kGpu);
    EXPECT_TRUE(primitives::bytes_equal(moved(there, Device()), x)) << num_bytes;
  }
  const int64_t kept = cuda::pinned_bytes();
  EXPECT_EQ(kept, 2 * kPiece);  // two blocks, because copies did not run concurrently
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([i] {
      const Tensor x = full({2 * kPiece + i}, i, {kUInt8});
      EXPECT_TRUE(primitives::bytes_equal(moved(moved(x, kGpu), Device()), x));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cuda::pinned_bytes(), 6 * kPiece);
}

TEST(Cuda, FailedCopyReturnsPinnedMemory) {
  const Tensor x = zeros({9 << 20}, {kUInt8});
  const Tensor there = moved(x, kGpu);
  const int64_t kept = cuda::pinned_bytes();
  for (const bool to_gpu : {true, false}) {
    EXPECT_THROW(cuda::copy_pageable(kGpu, to_gpu ? nullptr : x.data_ptr(), to_gpu ? x.data_ptr() : nullptr,
                                     x.num_bytes(), to_gpu),
                 BackendError);
  }
  EXPECT_TRUE(primitives::bytes_equal(moved(there, Device()), x));
  EXPECT_EQ(cuda::pinned_bytes(), kept);
}

TEST(Cuda, CopiesKeepBitsForEveryDTypeAndSize) {
  for (const DType dtype : kDTypes) {
    for (const int64_t size : kSizes) {
      SCOPED_TRACE(str(dtype, " ", size));
      const Tensor x = whole_numbers({size}, dtype, 1);
      const Tensor there = moved(x, kGpu);
      EXPECT_TRUE(primitives::bytes_equal(moved(there, Device()), x));
      EXPECT_TRUE(primitives::bytes_equal(moved(there, kGpu), there));
    }
  }
}

TEST(CudaTrace, SpanLastsUntilGpuWorkCompletes) {
  const Tensor x = zeros({1 << 20}, {kFloat32, kGpu});
  start_trace(std::make_shared<cuda::GpuSpanClock>(kGpu));
  {
    const TraceSpan outer("outer", "step");
    {
      const TraceSpan inner("inner", "op");
      primitives::fill(x, 2);
    }
    primitives::fill(x, 3);
  }
  const int64_t queued_ns = trace_now_ns();
  const std::vector<TraceEvent> events = stop_trace();
  std::vector<TraceEvent> ours;
  for (const TraceEvent& event : events) {
    if (event.category != "copy") ours.push_back(event);
  }
  ASSERT_EQ(ours.size(), 2u);
  EXPECT_EQ(ours[0].name, "outer");
  EXPECT_EQ(ours[1].name, "inner");
  EXPECT_LE(ours[0].begin_ns, ours[1].begin_ns);
  EXPECT_LT(ours[1].begin_ns, ours[1].end_ns);
  EXPECT_LT(ours[1].end_ns, ours[0].end_ns);
  // An emulated stream runs only when the host waits for it.
  if (cuda::device_properties(kGpu).name == "tandem emulated GPU") {
    EXPECT_GE(ours[0].begin_ns, queued_ns);
  }
}

TEST(CudaTrace, MarksEncloseWorkOfCurrentStream) {
  const Tensor x = zeros({1 << 20}, {kFloat32, kGpu});
  cuda::GpuSpanClock clock(kGpu);
  const cuda::Stream stream = cuda::current_stream(kGpu);
  const cuda::Event begin(kGpu, true), end(kGpu, true);
  clock.mark();
  begin.record(stream);
  primitives::fill(x, 2);
  end.record(stream);
  clock.mark();
  const std::vector<int64_t> times = clock.times_ns();
  stream.synchronize();
  ASSERT_EQ(times.size(), 2u);
  constexpr double kResolutionNs = 1000;  // of CUDA events
  EXPECT_GE(static_cast<double>(times[1] - times[0]) + kResolutionNs, end.milliseconds_since(begin) * 1e6);
}

TEST(CudaTrace, SpansInsideGraphCaptureAreDropped) {
  const Tensor x = zeros({4}, {kFloat32, kGpu});
  start_trace(std::make_shared<cuda::GpuSpanClock>(kGpu));
  cuda::Graph graph(kGpu);
  graph.capture([&] {
    const TraceSpan span("inside", "op");
    primitives::fill(x, 2);
  });
  { const TraceSpan span("after", "op"); }
  std::vector<std::string> names;
  for (const TraceEvent& event : stop_trace()) names.push_back(event.name);
  EXPECT_EQ(std::count(names.begin(), names.end(), "inside"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "after"), 1);
}

TEST(TwoGpus, CopiesKeepBitsForEveryDTypeAndSize) {
  for (const DType dtype : kDTypes) {
    for (const int64_t size : kSizes) {
      SCOPED_TRACE(str(dtype, " ", size));
      const Tensor x = whole_numbers({size}, dtype, 1);
      const Tensor further = moved(moved(x, kGpu), kOther);
      EXPECT_EQ(further.device(), kOther);
      EXPECT_TRUE(primitives::bytes_equal(moved(further, Device()), x));
    }
  }
}

TEST(TwoGpus, ConcurrentLargeCopiesToBothGpusKeepBits) {
  std::vector<std::thread> threads;
  for (const Device device : {kGpu, kOther}) {
    threads.emplace_back([device] {
      const Tensor x = full({(8 << 20) + 1}, device.index + 1, {kUInt8});
      EXPECT_TRUE(primitives::bytes_equal(moved(moved(x, device), Device()), x));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Copies between all pairs of layouts and some dtypes, from the CPU to a GPU and on to each target.
void check_conversions(const std::vector<Device>& targets) {
  for (const Layout from_layout : kLayouts) {
    for (const Layout to_layout : {Layout::kContiguous, Layout::kTransposed, Layout::kSliced}) {
      for (const DType from : {kFloat32, kFloat16, kInt64, kUInt8}) {
        for (const DType to : {kFloat32, kFloat64, kBFloat16, kInt32, kBool}) {
          SCOPED_TRACE(str(from, " to ", to));
          const Tensor x = whole_numbers({5, 3, 7}, from, 2, from_layout);
          const Tensor want = empty(x.shape(), {to});
          primitives::copy(x, want);
          const Tensor source = make_tensor(dense(x), from, from_layout, kGpu);
          for (const Device target : targets) {
            const Tensor out = make_tensor(dense_zeros(x.shape()), to, to_layout, target);
            primitives::copy(source, out);
            EXPECT_EQ(out.to_vector<double>(), want.to_vector<double>());
          }
          const Tensor up = make_tensor(dense_zeros(x.shape()), to, to_layout, kGpu);
          primitives::copy(x, up);
          EXPECT_EQ(up.to_vector<double>(), want.to_vector<double>());
        }
      }
    }
  }
}

TEST(Cuda, CopiesConvertBetweenLayoutsAndDTypes) { check_conversions({Device(), kGpu}); }
TEST(TwoGpus, CopiesConvertBetweenLayoutsAndDTypes) { check_conversions({kOther}); }

TEST(Cuda, FillAndAddIntoMatchCpu) {
  for (const DType dtype : kDTypes) {
    for (const Layout layout : {Layout::kContiguous, Layout::kTransposed, Layout::kSliced}) {
      SCOPED_TRACE(str(dtype));
      const Tensor x = whole_numbers({33, 31}, dtype, 3), y = whole_numbers({33, 31}, dtype, 4);
      const Tensor want = moved(x, Device());
      primitives::add_into(y, want);
      const Tensor sum = make_tensor(dense(x), dtype, layout, kGpu);
      primitives::add_into(make_tensor(dense(y), dtype, Layout::kTransposed, kGpu), sum);
      EXPECT_EQ(sum.to_vector<double>(), want.to_vector<double>());
      primitives::fill(sum, 1);
      EXPECT_EQ(sum.to_vector<double>(), std::vector<double>(33 * 31, 1));
      primitives::fill(sum, 0);
      EXPECT_FALSE(primitives::bytes_equal(sum, moved(want, kGpu)));
    }
  }
}

TEST(TwoGpus, SumAcrossGpusIsRoundedOnce) {
  // 2048 + 1 + 1 is 2050 in float16; rounded after each step it would stay 2048.
  const Tensor one = full({300}, 1, {kFloat16, kGpu});
  const std::vector<Tensor> parts = {full({300}, 2048, {kFloat16, kOther}), one, one};
  for (const Device target : {kGpu, kOther}) {
    const Tensor out = empty({300}, {kFloat16, target});
    primitives::sum(parts, out);
    EXPECT_EQ(out.to_vector<double>(), std::vector<double>(300, 2050));
  }
}

TEST(Cuda, SumOfUnreadableMemoryIsRejected) {
  const Tensor one = full({300}, 1, {kFloat16, kGpu}), here = zeros({300}, {kFloat16});
  for (const auto& [inputs, out] : {std::pair(std::vector{here, one}, one), std::pair(std::vector{one, here}, here)}) {
    EXPECT_ERROR(
        DeviceError, primitives::sum(inputs, out),
        out.device().is_cpu() ? "sum: cpu cannot read memory of cuda:0" : "sum: cuda:0 cannot read memory of cpu");
  }
}

TEST(Cuda, Tf32IsOffUntilEnabledByRank) {
  EXPECT_FALSE(cuda::allow_tf32());
  cuda::set_allow_tf32(true);
  EXPECT_TRUE(cuda::allow_tf32());
  std::thread([] { EXPECT_FALSE(cuda::allow_tf32()) << "a thread of no rank's"; }).join();
  cuda::set_allow_tf32(false);
}

TEST(CudaStreams, SideStreamsAreIdentifiedByNumber) {
  EXPECT_EQ(cuda::side_stream(kGpu, 3), cuda::side_stream(kGpu, 3));
  EXPECT_FALSE(cuda::side_stream(kGpu, 3) == cuda::side_stream(kGpu, 4));
  EXPECT_FALSE(cuda::side_stream(kGpu, 0) == cuda::current_stream(kGpu));
  EXPECT_EQ(cuda::side_stream(kGpu, 15).device(), kGpu);
  EXPECT_ERROR(ValueError, cuda::side_stream(kGpu, 16), "side_stream: number 16 is not in [0, 16)");
}

/// Fills x on one GPU, reads it by f(x, y) on the other GPU, and fills it again, without synchronizing in between.
void check_order(DType dtype, const std::function<void(const Tensor& x, const Tensor& y)>& f) {
  for (const bool x_first : {false, true}) {
    const Tensor x = zeros({1000}, {kFloat32, kGpu}), y = zeros({1000}, {dtype, kOther});
    cuda::synchronize(kGpu);
    cuda::synchronize(kOther);
    primitives::fill(x, 3);
    f(x, y);
    primitives::fill(x, 4);
    if (x_first) {
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 4));
    }
    EXPECT_EQ(y.to_vector<double>(), std::vector<double>(1000, 3));
  }
}

TEST(TwoGpus, CrossGpuReadsAreOrderedWithWrites) {
  const auto copy = [](const Tensor& x, const Tensor& y) { primitives::copy(x, y); };
  check_order(kFloat32, copy);
  check_order(kFloat64, copy);  // by a kernel
  check_order(kFloat32, [](const Tensor& x, const Tensor& y) { primitives::sum(std::vector{x}, y); });
}

TEST(Cuda, ArangeMatchesCpuBits) {
  for (const auto& [begin, end, step] : std::vector<std::array<int64_t, 3>>{{0, 0, 1},
                                                                            {0, 1, 1},
                                                                            {0, 70001, 1},
                                                                            {-7, 90, 3},
                                                                            {5, -6, -2},
                                                                            {INT64_MAX - 4, INT64_MAX, 3},
                                                                            {INT64_MIN, INT64_MAX, INT64_MAX}}) {
    EXPECT_TRUE(primitives::bytes_equal(moved(arange(begin, end, step, kGpu), Device()), arange(begin, end, step)))
        << begin << " " << step;
  }
}

TEST(TwoGpus, StreamGuardSetsOneStreamPerGpu) {
  const cuda::Stream usual = cuda::current_stream(kOther), first(kGpu), other(kOther);
  {
    const cuda::StreamGuard both({cuda::side_stream(kGpu, 1), cuda::side_stream(kOther, 2)});
    EXPECT_EQ(cuda::current_stream(kGpu), cuda::side_stream(kGpu, 1));
    EXPECT_EQ(cuda::current_stream(kOther), cuda::side_stream(kOther, 2));
    EXPECT_EQ(cuda::side_stream(kOther, 2).device(), kOther);
    const cuda::StreamGuard a(other), b(first);
    EXPECT_EQ(cuda::current_stream(kGpu), first);
    EXPECT_EQ(cuda::current_stream(kOther), other);
  }
  EXPECT_EQ(cuda::current_stream(kOther), usual);
}

TEST(Cuda, ValuesAreReadOnTheHost) {
  const Tensor x = moved(tensor({1.5, 2.5, 3.5}), kGpu);
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{1.5, 2.5, 3.5}));
  EXPECT_EQ(full({}, 7, {kInt64, kGpu}).item<int64_t>(), 7);
  EXPECT_EQ(full({}, 7, {kInt64, kGpu}).item<float>(), 7);
  EXPECT_NE(to_string(x).find("on cuda:0"), std::string::npos) << to_string(x);
  EXPECT_EQ(arange(0, 5, 1, kGpu).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Cuda, DlpackSharesMemory) {
  const int64_t before = memory_stats(kGpu).allocated;
  {
    Tensor x = zeros({2, 3}, {kFloat32, kGpu});
    const Tensor y = from_dlpack(to_dlpack(x)), z = from_dlpack(to_dlpack_unversioned(y));
    EXPECT_EQ(z.device(), kGpu);
    EXPECT_EQ(z.data_ptr(), x.data_ptr());
    primitives::fill(x, 3);
    x = {};
    EXPECT_EQ(z.to_vector<float>(), std::vector<float>(6, 3));
  }
  EXPECT_EQ(memory_stats(kGpu).allocated, before);
}
TEST(TwoGpus, DlpackKeepsTheGpu) {
  const Tensor x = full({2}, 5, {kFloat32, kOther}), y = from_dlpack(to_dlpack(x));
  EXPECT_EQ(y.device(), kOther);
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(2, 5));
}

TEST(CudaMemory, AllocationsAreCountedCachedAndLimited) {
  empty_cache(kGpu);
  reset_peak_memory(kGpu);
  const int64_t before = memory_stats(kGpu).allocated;
  const void* first = nullptr;
  {
    const Tensor x = zeros({1 << 20}, {kUInt8, kGpu});
    first = x.data_ptr();
    EXPECT_EQ(memory_stats(kGpu).allocated - before, block_bytes(1 << 20));
  }
  EXPECT_EQ(memory_stats(kGpu).allocated, before);
  EXPECT_GE(memory_stats(kGpu).reserved, before + (1 << 20)) << "in the cache";
  EXPECT_EQ(static_cast<const void*>(empty({1 << 20}, {kUInt8, kGpu}).data_ptr()), first) << "and used again";
  empty_cache(kGpu);
  EXPECT_EQ(memory_stats(kGpu).reserved, memory_stats(kGpu).allocated);
  EXPECT_EQ(memory_stats(kGpu).peak_allocated - before, block_bytes(1 << 20));

  set_memory_limit(kGpu, before + (1 << 20));
  EXPECT_ERROR(OutOfMemory, empty({3 << 20}, {kUInt8, kGpu}),
               str("allocate: cuda:0 is out of memory\n  requested  3145728 bytes (", block_bytes(3 << 20),
                   " rounded up)\n  allocated  ", before, " bytes\n  limit      ", before + (1 << 20), " bytes"));
  set_memory_limit(kGpu, 0);
}

// Cached blocks are returned to the driver before OutOfMemory is thrown.
TEST(CudaMemory, CacheIsReleasedBeforeOutOfMemory) {
  empty_cache(kGpu);
  const int64_t most = free_memory(kGpu) / 2 + (8 << 20);
  { const Tensor x = empty({most}, {kUInt8, kGpu}); }
  EXPECT_NO_THROW(static_cast<void>(empty({most + most / 4}, {kUInt8, kGpu})));
  EXPECT_THROW(static_cast<void>(empty({8 * most}, {kUInt8, kGpu})), OutOfMemory);
  empty_cache(kGpu);
}

// Freed memory is reused only by later work of the same stream.
TEST(CudaMemory, FreedMemoryIsReusedOnItsStreamOnly) {
  empty_cache(kGpu);
  const cuda::Stream stream(kGpu);
  const void* freed = empty({5000}, {kUInt8, kGpu}).data_ptr();
  {
    const cuda::StreamGuard guard(stream);
    const Tensor elsewhere = empty({5000}, {kUInt8, kGpu});
    EXPECT_NE(static_cast<const void*>(elsewhere.data_ptr()), freed);
  }
  EXPECT_EQ(static_cast<const void*>(empty({5000}, {kUInt8, kGpu}).data_ptr()), freed);
  empty_cache(kGpu);
}

TEST(CudaStreams, InnermostStreamGuardIsCurrent) {
  const cuda::Stream usual = cuda::current_stream(kGpu), first(kGpu), second(kGpu, true);
  EXPECT_TRUE(usual == cuda::current_stream(kGpu));
  {
    const cuda::StreamGuard a(first);
    EXPECT_TRUE(cuda::current_stream(kGpu) == first);
    {
      const cuda::StreamGuard b(second);
      EXPECT_TRUE(cuda::current_stream(kGpu) == second);
      std::thread([&] { EXPECT_TRUE(cuda::current_stream(kGpu) == usual) << "another thread's is its own"; }).join();
    }
    EXPECT_TRUE(cuda::current_stream(kGpu) == first);
  }
  EXPECT_TRUE(cuda::current_stream(kGpu) == usual);
}

TEST(CudaStreams, EventsOrderTwoStreams) {
  const cuda::Stream producer(kGpu), consumer(kGpu);
  const Tensor x = zeros({1000}, {kFloat32, kGpu}), y = zeros({1000}, {kFloat32, kGpu});
  cuda::synchronize(kGpu);
  const cuda::Event written(kGpu);
  {
    const cuda::StreamGuard guard(producer);
    primitives::fill(x, 3);
    written.record(producer);
  }
  {
    const cuda::StreamGuard guard(consumer);
    written.make_wait(consumer);
    primitives::copy(x, y);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1000, 3));
  }
  EXPECT_TRUE(written.is_completed());
  written.synchronize();
  consumer.synchronize();
  EXPECT_TRUE(consumer.is_idle());
}

TEST(Cuda, IncompleteDeviceErrorRecordIsNotRead) {
  cuda::DeviceErrorRecord* const record = cuda::device_error_record(kGpu);
  record->raised = 1;
  cuda::synchronize(kGpu);
  record->op = "gather";
  record->what = "index";
  record->value = 9;
  record->size = 4;
  record->ready = 1;
  EXPECT_ERROR(IndexError, cuda::synchronize(kGpu),
               "gather: index 9 at position 0 is outside [0, 4); detected on cuda:0, reported at this synchronization");
  EXPECT_EQ(record->raised, 0);
  cuda::synchronize(kGpu);
}

}}  // namespace tandem::testing

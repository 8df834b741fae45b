#include <future>

#include <tandem/base/chunked_work.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/ops/four_devices.h>

namespace tandem::testing { namespace {

using Move = FourDevices;

/// Sizes in elements: 0, 1, a prime, around one chunk of kChunk floats, many chunks.
constexpr int64_t kChunk = 256;
constexpr int64_t kSizes[] = {0, 1, 3, 251, 256, 257, 1021, 4096};
const TransferOptions kSmall{.chunk_bytes = kChunk * 4, .max_in_flight = 2};

TEST_F(Move, EveryTransferFunctionGivesEqualBits) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kInt64, kUInt8, kBool}) {
    for (const int64_t size : kSizes) {
      SCOPED_TRACE(str(dtype, " ", size));
      const Tensor x = random_on(0, {size}, 1, dtype);
      EXPECT_TRUE(is_copy(to(x, on(1)), x, 1));
      EXPECT_TRUE(is_copy(to_async(x, on(2), kSmall).get(), x, 2));
      EXPECT_TRUE(is_copy(gather_to(on(3), {x}, kSmall)[0], x, 3));
    }
  }
}

TEST_F(Move, AnyLayoutAndShapeIsCopied) {
  for (const Layout layout : kLayouts) {
    for (const Shape& shape :
         {Shape{}, Shape{7, 33}, Shape{3, 1, 517}, Shape{2, 3, 4, 31}, Shape{600, 2}, Shape{1, 1}, Shape{5, 0, 3}}) {
      if (shape.empty() && layout == Layout::kExpanded) continue;
      SCOPED_TRACE(str(shape, " ", static_cast<int>(layout)));
      const Tensor x = random_on(1, shape, 2, kFloat32, layout);
      for (const int64_t chunk_bytes : {1, 64, 1000, 1 << 20}) {
        const Tensor y = to_async(x, on(0), {.chunk_bytes = chunk_bytes, .max_in_flight = 3}).get();
        EXPECT_TRUE(is_copy(y, x, 0));
        EXPECT_TRUE(y.is_contiguous());
      }
    }
  }
}

TEST_F(Move, TensorAlreadyOnDeviceIsNotCopied) {
  const Tensor x = ones({5}, {kFloat32, on(0)});
  EXPECT_TRUE(to(x, on(0)).is_same(x));
  const Future<Tensor> future = to_async(x, on(0));
  EXPECT_TRUE(future.is_completed());
  EXPECT_FALSE(future.cancel());
  EXPECT_TRUE(future.get().is_same(x));
  EXPECT_TRUE(gather_to(on(0), {x, x})[1].is_same(x));
}

TEST_F(Move, ProgramContinuesDuringAsyncMove) {
  const Tensor x = random_on(0, {64 * kChunk}, 3);
  std::promise<void> computed;
  std::shared_future<void> result = computed.get_future().share();
  TransferOptions options = kSmall;
  // The last chunks wait for a computation that the program does during the copy.
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, x.num_bytes());
    if (done > total / 2) result.wait();
  };
  const Future<Tensor> moved = to_async(x, on(1), options);
  const Tensor a = random_on(2, {40, 40}, 4);
  const Tensor product = matmul(a, a);
  EXPECT_FALSE(moved.is_completed());
  EXPECT_FALSE(moved.wait(std::chrono::milliseconds(0)));
  computed.set_value();
  EXPECT_TRUE(is_copy(moved.get(), x, 1));
  EXPECT_EQ(product.device(), on(2));
}

TEST_F(Move, WaitReturnsAtItsTimeout) {
  // The deadline holds although there are chunks to help with, because none of them ends.
  const Tensor x = random_on(0, {200 * kChunk}, 22);
  std::promise<void> go_on;
  TransferOptions options{.chunk_bytes = kChunk * 4, .max_in_flight = 200};
  options.progress = [wait = go_on.get_future().share()](int64_t, int64_t) { wait.wait(); };
  const Future<Tensor> moved = to_async(x, on(1), options);
  std::future<bool> waited = std::async(std::launch::async, [&] { return moved.wait(std::chrono::milliseconds(0)); });
  EXPECT_EQ(waited.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  go_on.set_value();
  waited.wait();
  EXPECT_TRUE(is_copy(moved.get(), x, 1));
}

TEST_F(Move, ContinuationsRunOnSuccessAndFailure) {
  const Tensor x = random_on(0, {kChunk * 3}, 5);
  std::promise<bool> good, bad;
  const Future<Tensor> moved = to_async(x, on(1), kSmall);
  moved.then([&] { good.set_value(moved.exception() == nullptr); });
  EXPECT_TRUE(good.get_future().get());
  TransferOptions failing = kSmall;
  failing.progress = [](int64_t, int64_t) { throw std::runtime_error("no"); };
  const Future<Tensor> failed = to_async(x, on(1), failing);
  failed.then([&] { bad.set_value(failed.exception() != nullptr); });
  EXPECT_TRUE(bad.get_future().get());
  EXPECT_THROW(static_cast<void>(failed.get()), std::runtime_error);
}

// The memory of the target grows only by the result; chunks of non-contiguous tensors are packed on their own device.
TEST_F(Move, PeakMemoryIsResultPlusChunksInFlight) {
  constexpr int64_t kRows = 64;
  const int64_t bytes = kRows * kChunk * 4;
  for (const int in_flight : {1, 2, 3}) {
    const TransferOptions options{.chunk_bytes = kChunk * 4, .max_in_flight = in_flight};
    {
      const Tensor x = random_on(0, {kRows, kChunk}, 6);
      reset_peak_memory(on(0));
      reset_peak_memory(on(1));
      const int64_t before = taken(0);
      const MovePlan plan = plan_move({x}, on(1), options);
      reset_peak_memory(on(0));
      reset_peak_memory(on(1));
      const Tensor y = to_async(x, on(1), options).get();
      EXPECT_EQ(plan.num_bytes, bytes);
      EXPECT_EQ(plan.num_chunks, kRows);
      EXPECT_EQ(most_taken(1), block_bytes(bytes));
      EXPECT_EQ(plan.requirements[0].result_bytes, block_bytes(bytes));
      EXPECT_EQ(most_taken(0), before);
    }
    const Tensor x = random_on(0, {kRows, kChunk}, 6, kFloat32, Layout::kTransposed);
    const MovePlan plan = plan_move({x}, on(1), options);
    reset_peak_memory(on(0));
    reset_peak_memory(on(1));
    const int64_t before = taken(0);
    const Tensor y = to_async(x, on(1), options).get();
    EXPECT_EQ(most_taken(1), block_bytes(bytes));
    ASSERT_EQ(plan.requirements.size(), 2u);
    EXPECT_EQ(plan.requirements[1].device, on(0));
    EXPECT_EQ(plan.requirements[1].staging_bytes, in_flight * block_bytes(kChunk * 4));
    EXPECT_EQ(most_taken(0) - before, plan.requirements[1].staging_bytes);
    EXPECT_EQ(taken(0), before) << "given back with the end of the move";
  }
}

TEST_F(Move, InsufficientMemoryIsRejectedBeforeCopying) {
  const Tensor x = random_on(0, {4 * kChunk}, 7);
  set_memory_limit(on(1), 2048);
  const int64_t free = free_memory(on(1));
  EXPECT_EQ(free, 2048 - memory_stats(on(1)).allocated);
  std::atomic<int> chunks{0};
  TransferOptions options = kSmall;
  options.progress = [&](int64_t, int64_t) { ++chunks; };
  const std::string plan =
      str(": too little memory, nothing was moved\n"
          "  4.0 KiB (4096 bytes) in 4 chunks\n"
          "  ",
          on(1), ": 4096 bytes for results, 0 for chunks in flight; free ", free, "  <- too little");
  EXPECT_ERROR(OutOfMemory, to_async(x, on(1), options), "to_async" + plan);
  EXPECT_ERROR(OutOfMemory, gather_to(on(1), {x}, options), "gather_to" + plan);
  EXPECT_THROW(static_cast<void>(to(x, on(1))), OutOfMemory);
  EXPECT_FALSE(plan_move({x}, on(1), options).fits());
  EXPECT_EQ(chunks, 0);
  EXPECT_EQ(taken(1), 0);
  // Each of the two fits, but not both: nothing is copied.
  const Tensor half = random_on(0, {kChunk}, 8), other = random_on(2, {kChunk + 1}, 8);
  EXPECT_THROW(static_cast<void>(gather_to(on(1), {half, other}, options)), OutOfMemory);
  EXPECT_EQ(chunks, 0);
  EXPECT_TRUE(is_copy(gather_to(on(1), {half}, kSmall)[0], half, 1));
  // `to` checks memory for a large tensor as well.
  set_memory_limit(on(1), 1 << 20);
  const Tensor large = zeros({1 << 19});
  EXPECT_ERROR(
      OutOfMemory, to(large, on(1)),
      str("to: too little memory, nothing was moved\n"
          "  2.0 MiB (2097152 bytes) in 1 chunk\n"
          "  ",
          on(1), ": 2097152 bytes for results, 0 for chunks in flight; free ", free_memory(on(1)), "  <- too little"));
}

TEST_F(Move, StagingMemoryOnSourceIsCounted) {
  const Tensor x = random_on(2, {64, kChunk}, 9, kFloat32, Layout::kTransposed), want = x.cpu();
  set_memory_limit(on(2), memory_stats(on(2)).allocated + 1024);  // enough for one chunk, not for two
  EXPECT_THROW(static_cast<void>(to_async(x, on(1), kSmall)), OutOfMemory);
  EXPECT_EQ(taken(1), 0);
  EXPECT_TRUE(is_copy(to_async(x, on(1), {.chunk_bytes = kChunk * 4, .max_in_flight = 1}).get(), want, 1));
}

// Packing memory is allocated at the start of a copy, so a concurrent copy is rejected at once, and neither fails
// midway.
TEST_F(Move, MemoryOfConcurrentMovesIsCountedTogether) {
  const Tensor x = random_on(2, {16, kChunk}, 23, kFloat32, Layout::kTransposed), want = x.cpu();
  set_memory_limit(on(2), memory_stats(on(2)).allocated + 2 * block_bytes(kChunk * 4));
  std::promise<void> go_on;
  TransferOptions options = kSmall;
  options.progress = [wait = go_on.get_future().share()](int64_t, int64_t) { wait.wait(); };
  const Future<Tensor> first = to_async(x, on(1), options);
  EXPECT_EQ(free_memory(on(2)), 0);
  const int64_t held = taken(3);
  EXPECT_ERROR(OutOfMemory, to_async(x, on(3), kSmall),
               str("to_async: too little memory, nothing was moved\n"
                   "  16.0 KiB (16384 bytes) in 16 chunks\n"
                   "  ",
                   on(3), ": ", block_bytes(16 * kChunk * 4), " bytes for results, 0 for chunks in flight; free ",
                   free_memory(on(3)), "\n  ", on(2),
                   ": 0 bytes for results, 2048 for chunks in flight; free 0  <- too little"));
  EXPECT_EQ(taken(3), held);
  go_on.set_value();
  EXPECT_TRUE(is_copy(first.get(), want, 1));
  EXPECT_TRUE(is_copy(to_async(x, on(3), kSmall).get(), want, 3));
}

TEST_F(Move, FailureAtAnyChunkReleasesMemory) {
  const Tensor x = random_on(0, {7 * kChunk + 5}, 10);
  const Tensor y = random_on(2, {2 * kChunk}, 11, kFloat32, Layout::kSliced);
  for (int bad = 1; bad <= 8; ++bad) {
    SCOPED_TRACE(bad);
    std::atomic<int> chunks{0};
    TransferOptions options = kSmall;
    options.progress = [&](int64_t, int64_t) {
      if (++chunks == bad) throw std::runtime_error(str("chunk ", bad));
    };
    const Future<Tensor> future = to_async(x, on(1), options);
    EXPECT_ERROR(std::runtime_error, future.get(), str("chunk ", bad));
    EXPECT_EQ(taken(1), 0);
    chunks = 0;
    EXPECT_THROW(static_cast<void>(gather_to(on(1), {x, y}, options)), std::runtime_error);
    EXPECT_EQ(taken(1), 0);
    EXPECT_TRUE(is_copy(to_async(x, on(1), kSmall).get(), x, 1));
  }
}

TEST_F(Move, CancelAtAnyChunkReleasesMemory) {
  const Tensor x = random_on(0, {6 * kChunk}, 12);
  for (int point = 0; point < 6; ++point) {
    SCOPED_TRACE(point);
    std::promise<void> reached, go_on;
    std::shared_future<void> may_go_on = go_on.get_future().share();
    std::atomic<int> chunks{0};
    TransferOptions options{.chunk_bytes = kChunk * 4, .max_in_flight = 1};
    options.progress = [&](int64_t, int64_t) {
      if (chunks++ != point) return;
      reached.set_value();
      may_go_on.wait();
    };
    const Future<Tensor> future = to_async(x, on(1), options);
    reached.get_future().wait();
    EXPECT_TRUE(future.cancel());
    EXPECT_FALSE(future.is_completed());
    go_on.set_value();
    EXPECT_ERROR(CancelledError, future.get(), str("to_async: cancelled after ", point + 1, " of 6 chunks"));
    EXPECT_EQ(taken(1), 0);
    EXPECT_TRUE(future.cancel());
  }
  const Future<Tensor> complete = to_async(x, on(1), kSmall);
  complete.wait();
  EXPECT_FALSE(complete.cancel());
  EXPECT_TRUE(is_copy(complete.get(), x, 1));
}

TEST_F(Move, CancelBeforeFirstChunkReleasesMemory) {
  // All copy workers are occupied by another copy, or wait behind it.
  std::atomic<int> held{0};
  std::promise<void> go_on, others_done;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  const auto others = start_chunks({.name = "others",
                                    .num_chunks = 64,
                                    .max_in_flight = 64,
                                    .run =
                                        [&](int64_t) {
                                          ++held;
                                          may_go_on.wait();
                                        },
                                    .finish = [&](std::exception_ptr) { others_done.set_value(); }});
  while (held < available_cores()) std::this_thread::yield();
  const Tensor x = random_on(0, {6, kChunk}, 24, kFloat32, Layout::kTransposed);
  const int64_t before = taken(0);
  const Future<Tensor> future = to_async(x, on(1), kSmall);
  EXPECT_TRUE(future.cancel());
  EXPECT_ERROR(CancelledError, future.get(), "to_async: cancelled after 0 of 6 chunks");
  EXPECT_EQ(taken(0), before);
  EXPECT_EQ(taken(1), 0);
  go_on.set_value();
  others_done.get_future().wait();
}

TEST_F(Move, InputChangedDuringMoveIsRejected) {
  const Tensor x = random_on(0, {4 * kChunk}, 13);
  TransferOptions options{.chunk_bytes = kChunk * 4, .max_in_flight = 1};
  std::atomic<bool> once{true};
  options.progress = [&](int64_t, int64_t) {
    if (once.exchange(false)) x.mul_(2);
  };
  const Future<Tensor> future = to_async(x, on(1), options);
  EXPECT_ERROR(StateError, future.get(), "to_async: input was changed in place by mul_ before the move was complete");
  EXPECT_EQ(taken(1), 0);
}

TEST_F(Move, InputIsKeptAliveUntilMoveCompletes) {
  Tensor x = random_on(0, {4 * kChunk}, 14);
  const Tensor kept = x.clone();
  const Future<Tensor> future = to_async(x, on(1), kSmall);
  x = {};
  EXPECT_TRUE(is_copy(future.get(), kept, 1));
  EXPECT_EQ(taken(0), block_bytes(4 * kChunk * 4));  // only the input is alive
}

TEST_F(Move, DroppedResultReleasesItsMemory) {
  const Tensor x = random_on(0, {4 * kChunk}, 21);
  std::promise<void> registered, go_on, returned;
  TransferOptions options = kSmall;
  options.progress = [wait = registered.get_future().share()](int64_t, int64_t) { wait.wait(); };
  {
    const Future<Tensor> future = to_async(x, on(1), options);
    future.then([&] {  // runs on the copy worker of the last chunk
      go_on.get_future().wait();
      returned.set_value();
    });
    registered.set_value();
    while (!future.is_completed()) std::this_thread::yield();
    EXPECT_TRUE(is_copy(future.get(), x, 1));
  }
  EXPECT_EQ(taken(1), 0);
  go_on.set_value();
  returned.get_future().wait();
}

TEST_F(Move, GradientsReturnToSourceDevices) {
  const auto through = [](const std::vector<Tensor>& in) {
    const Tensor a = to(in[0] * in[0], on(1));
    const Tensor b = to_async(in[1], on(1), kSmall).get();
    const std::vector<Tensor> c = gather_to(on(1), {in[0], in[2]}, kSmall);
    return a * b + c[0] * c[1];
  };
  std::vector<Tensor> inputs = {random_on(0, {3, 7}, 15, kFloat64), random_on(2, {3, 7}, 16, kFloat64),
                                random_on(1, {3, 7}, 17, kFloat64)};
  for (Tensor& input : inputs) input.requires_grad_();
  EXPECT_NO_THROW(autograd::gradcheck(through, inputs));
  EXPECT_NO_THROW(autograd::gradgradcheck(through, inputs));
  through(inputs).sum().backward();
  EXPECT_EQ(inputs[1].grad().device(), on(2));
}

TEST_F(Move, PlanAndSuggestionFollowSizesAndMemory) {
  const std::vector<Tensor> tensors = {random_on(0, {1000}, 18), random_on(1, {1000000}, 19), random_on(2, {10}, 20)};
  const MovePlan plan = plan_move(tensors, on(1), kSmall);
  EXPECT_EQ(plan.num_bytes, 4040);
  EXPECT_EQ(plan.num_chunks, 4 + 1);
  ASSERT_EQ(plan.requirements.size(), 1u);
  EXPECT_EQ(plan.requirements[0].result_bytes, block_bytes(4000) + block_bytes(40));
  EXPECT_GT(plan.expected_time.count(), 0);
  EXPECT_TRUE(plan.fits());
  EXPECT_EQ(plan_move({tensors[1]}, on(1)).num_chunks, 0);

  // The device of the largest tensor (a thousand times the others), unless the others do not fit there.
  EXPECT_EQ(suggest_device(tensors).best, on(1));
  set_memory_limit(on(1), memory_stats(on(1)).allocated);
  const DeviceSuggestion second = suggest_device(tensors);
  ASSERT_EQ(second.choices.size(), static_cast<size_t>(cpu_device_count() + cuda::device_count()));
  EXPECT_TRUE(second.best.has_value() && *second.best != on(1));
  for (const DeviceChoice& choice : second.choices) EXPECT_EQ(choice.plan.fits(), choice.device != on(1));
  EXPECT_NE(to_string(second).find("does not fit"), std::string::npos);
  EXPECT_NE(to_string(second).find("<- suggested"), std::string::npos);
  EXPECT_FALSE(suggest_device(tensors, {on(1)}).best.has_value());
  EXPECT_EQ(taken(3), 0) << "a suggestion moves nothing";
}

// Fewest bytes, if times are unknown.
TEST_F(Move, SuggestionWithoutBandwidthMinimizesBytes) {
  set_cpu_device_count(kDevices + 2);  // their bandwidth was not measured, and there is too little memory to measure it
  const Device few(DeviceType::kCPU, kDevices), many(DeviceType::kCPU, kDevices + 1);
  {
    const std::vector<Tensor> tensors = {zeros({25 << 10}, {kFloat32, few}), zeros({75 << 10}, {kFloat32, many})};
    set_memory_limit(few, 1 << 20);
    set_memory_limit(many, 1 << 20);
    const DeviceSuggestion suggestion = suggest_device(tensors, {few, many});
    for (const DeviceChoice& choice : suggestion.choices) {
      EXPECT_EQ(choice.bytes_per_second, 0);
      EXPECT_TRUE(choice.plan.fits());
    }
    EXPECT_EQ(suggestion.best, many);
    const std::string table = to_string(suggestion);
    EXPECT_NE(table.find("?  <- suggested"), std::string::npos) << table;
  }
  set_cpu_device_count(kDevices);
}

// CPU devices without a limit share one memory, so what fits on each alone may not fit on both.
TEST_F(Move, SharedCpuMemoryIsCountedOnce) {
  set_cpu_device_count(kDevices);
  const Device first("cpu:1"), second("cpu:2"), limited("cpu:3");
  set_memory_limit(first, 0);
  set_memory_limit(second, 0);
  set_memory_limit(limited, 1 << 20);
  const int64_t free = std::min(free_memory(first), free_memory(second));
  const Tensor x = zeros({1}).expand({free / 10 * 6 / 4});
  const TransferOptions options{.progress = [](int64_t, int64_t) { throw std::runtime_error("it was begun"); }};
  EXPECT_TRUE(plan_move({x}, first).fits());
  EXPECT_EQ(error_text<OutOfMemory>([&] {
              static_cast<void>(comm::broadcast(x, {first, second}, options));
            }).find("broadcast: too little memory, nothing was moved\n"),
            0u);
  EXPECT_TRUE(shares_free_memory(first));
  EXPECT_FALSE(shares_free_memory(limited));
  set_memory_limit(limited, 0);
}

TEST_F(Move, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = ones({2});
  EXPECT_ERROR(StateError, to_async(Tensor(), Device("cpu:1")), "to_async: input is undefined\n  input  undefined");
  EXPECT_ERROR(ValueError, gather_to(Device("cpu:1"), {}), "gather_to: no tensors");
  EXPECT_ERROR(StateError, gather_to(Device("cpu:1"), {x, Tensor()}), "gather_to: tensors[1] is undefined");
  EXPECT_ERROR(ValueError, to_async(x, Device("cpu:1"), {.chunk_bytes = 0}),
               "to_async: chunk_bytes is 0, must be positive");
  EXPECT_ERROR(ValueError, to_async(x, Device("cpu:1"), {.max_in_flight = 0}),
               "to_async: max_in_flight is 0, must be positive");
  for (const char* device : {"cpu:63", "cuda:99"}) {
    EXPECT_THROW(static_cast<void>(to(x, Device(device))), DeviceError);
    EXPECT_THROW(static_cast<void>(to_async(x, Device(device))), DeviceError);
    EXPECT_THROW(static_cast<void>(plan_move({x}, Device(device))), DeviceError);
    EXPECT_THROW(static_cast<void>(suggest_device({x}, {Device(device)})), DeviceError);
  }
}

}}  // namespace tandem::testing

#include <tandem/base/parallel_for.h>
#include <tandem/tests/ops/four_devices.h>
#include <tandem/tests/support/tree_sum.h>

namespace tandem::testing { namespace {

using Comm = FourDevices;
using Values = std::vector<double>;

constexpr int64_t kChunk = 256;  // floats
const TransferOptions kSmall{.chunk_bytes = kChunk * 4, .max_in_flight = 2};

TEST_F(Comm, PlainAdditionAcrossDevicesIsRejected) {
  const Tensor a = tensor({1, 2, 3}), b = tensor({4, 5, 6}).to(cpu(1));
  EXPECT_ERROR(DeviceError, a + b,
               "add: operands are on different devices\n"
               "  a  cpu    int64 [3]\n"
               "  b  cpu:1  int64 [3]  <- differs\n"
               "  move it with b.to(cpu), or move the module with model.to(cpu)");
  for (const int i : {0, 1}) {  // one operand on a GPU, and two operands on different GPUs
    const Tensor x = i == 0 ? a : a.to(on(i)), y = b.to(on(3));
    EXPECT_ERROR(DeviceError, x + y, different_devices_text("add", {"a", "b"}, {x, y}));
  }
  EXPECT_EQ(a.to_vector<double>(), (Values{1, 2, 3}));
}

TEST_F(Comm, TensorsOfTwoDevicesAreSummed) {
  const Tensor a = tensor({1, 2, 3}).to(on(0)), b = tensor({4, 5, 6}).to(on(1));
  const Values sum = {5, 7, 9};
  EXPECT_EQ((a + b.to(on(0))).to_vector<double>(), sum);
  EXPECT_EQ((a.to(b.device()) + b).to_vector<double>(), sum);
  for (int i = 0; i < kDevices; ++i) {
    const Tensor out = comm::sum_to(on(i), {a, b});
    EXPECT_EQ(out.device(), on(i));
    EXPECT_EQ(out.to_vector<double>(), sum);
  }
  const std::vector<Tensor> everywhere = comm::all_reduce({a, b});
  ASSERT_EQ(everywhere.size(), 2u);
  EXPECT_EQ(everywhere[0].device(), on(0));
  EXPECT_EQ(everywhere[1].device(), on(1));
  for (const Tensor& out : everywhere) EXPECT_EQ(out.to_vector<double>(), sum);
  EXPECT_EQ(a.to_vector<double>(), (Values{1, 2, 3}));
}

// Three operands of 16 KiB, with memory for one more on the target.
TEST_F(Comm, LargeOperandsAreStreamedWithinMemoryLimit) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(random_on(i, {4096}, 30 + static_cast<uint64_t>(i)));
  const int64_t bytes = block_bytes(4096 * 4);
  set_memory_limit(on(3), memory_stats(on(3)).allocated + bytes);
  const Tensor out = comm::sum_to(on(3), parts, kSmall);
  EXPECT_EQ(most_taken(3), bytes);
  EXPECT_ERROR(OutOfMemory, comm::sum_to(on(3), parts, kSmall),
               str("sum_to: too little memory, nothing was moved\n"
                   "  48.0 KiB (49152 bytes) in 16 chunks\n"
                   "  ",
                   on(3), ": ", bytes, " bytes for results, 0 for chunks in flight; free 0  <- too little"));
  set_memory_limit(on(3), 0);
  EXPECT_TRUE(is_copy(out, parts[0] + parts[1].to(on(0)) + parts[2].to(on(0)), 3));
}

TEST_F(Comm, SumToSupportsEveryDTypeAndLayout) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    for (const int64_t size : {0, 1, 3, 251, 256, 257, 1021}) {
      for (const Layout layout : {Layout::kContiguous, Layout::kSliced}) {
        for (const int n : {1, 2, 3, 7}) {
          SCOPED_TRACE(str(dtype, " ", size, " ", n));
          std::vector<Tensor> parts;
          Dense want = dense_zeros({size});
          for (int i = 0; i < n; ++i) {
            Dense values = random_dense({size}, 40 + static_cast<uint64_t>(i), 0, 9);
            for (double& v : values.values) v = dtype == kBool ? v > 6 : std::floor(v);
            parts.push_back(make_tensor(values, dtype, layout, on(i % kDevices)));
            for (int64_t k = 0; k < size; ++k)
              want[k] = dtype == kBool ? (want[k] != 0 || values[k] != 0) : want[k] + values[k];
          }
          const Tensor out = comm::sum_to(on(2), parts, {.chunk_bytes = 512, .max_in_flight = 2});
          EXPECT_EQ(out.dtype(), dtype);
          EXPECT_EQ(out.device(), on(2));
          EXPECT_EQ(out.to_vector<double>(), want.values);
          EXPECT_FALSE(out.is_same(parts[0]));
        }
      }
    }
  }
}

TEST_F(Comm, HalfTypeSumsInFloat32AreRoundedOnce) {
  // 2048 + 1 + 1 is 2050 in float16; rounded after each step it would stay 2048.
  const std::vector<Tensor> parts = {full({33}, 2048, {kFloat16, on(0)}), full({33}, 1, {kFloat16, on(1)}),
                                     full({33}, 1, {kFloat16, on(2)})};
  EXPECT_EQ(comm::sum_to(on(1), parts).to_vector<double>(), Values(33, 2050));
  for (const Tensor& out : comm::all_reduce(parts)) EXPECT_EQ(out.to_vector<double>(), Values(33, 2050));
  // A float32 result requires an explicit conversion by the caller, on the device of his choice.
  const Tensor wide = comm::sum_to(on(1), {parts[0].to(kFloat32), parts[1].to(kFloat32), parts[2].to(kFloat32)});
  EXPECT_EQ(wide.dtype(), kFloat32);
  EXPECT_EQ(wide.to_vector<double>(), Values(33, 2050));
  EXPECT_ERROR(DTypeError, comm::sum_to(cpu(1), {ones({33}, {kFloat16}), ones({33})}),
               "sum_to: operands have different dtypes\n"
               "  tensors[0]  cpu  float16 [33]\n"
               "  tensors[1]  cpu  float32 [33]  <- differs");
}

TEST_F(Comm, SumsHaveTheOrderOfSumsOverRanks) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    visit_floating_dtype(dtype, [&]<class T>() {
      using Sum = std::conditional_t<kIsHalf<T>, float, T>;
      for (const int n : {2, 3, 4, 5, 6, 7, 8, 11, 64}) {
        std::vector<Tensor> parts;
        std::vector<std::vector<Sum>> terms(259);
        for (int i = 0; i < n; ++i) {
          parts.push_back(random_on(i % kDevices, {259}, 70 + static_cast<uint64_t>(i), dtype));
          const std::vector<T> values = parts.back().to_vector<T>();
          for (size_t k = 0; k < terms.size(); ++k) terms[k].push_back(static_cast<Sum>(values[k]));
        }
        const std::vector<T> sums = comm::sum_to(on(1), parts).to_vector<T>();
        for (size_t k = 0; k < terms.size(); ++k) {
          ASSERT_EQ(sums[k], static_cast<T>(tree_sum(terms[k]))) << dtype << " " << n << " " << k;
        }
      }
    });
  }
}

TEST_F(Comm, TooManyTensorsForGpuSumAreRejected) {
  const std::vector<Tensor> parts(primitives::kMaxGpuSumInputs + 1,
                                  random_on(0, {4, 64}, 49, kFloat32, Layout::kTransposed));
  if (on(0).is_cpu()) {
    EXPECT_EQ(comm::sum_to(on(0), parts).shape(), (Shape{4, 64}));
    return;
  }
  EXPECT_ERROR(ValueError, comm::sum_to(on(0), parts), "sum_to: 65 tensors, but a GPU sums at most 64");
}

TEST_F(Comm, BitsAreIndependentOfChunksAndThreads) {
  std::vector<Tensor> parts;
  for (int i = 0; i < kDevices; ++i) parts.push_back(random_on(i, {37, 101}, 50 + static_cast<uint64_t>(i)));
  const Tensor want = comm::sum_to(on(0), parts);
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const int64_t chunk_bytes : {4, 1000, 1 << 20}) {
      const TransferOptions options{.chunk_bytes = chunk_bytes, .max_in_flight = threads};
      EXPECT_TRUE(is_copy(comm::sum_to(on(0), parts, options), want, 0));
      const std::vector<Tensor> all = comm::all_reduce(parts, options);
      for (int i = 0; i < kDevices; ++i) EXPECT_TRUE(is_copy(all[static_cast<size_t>(i)], want, i));
    }
  }
  set_num_threads(0);
}

TEST_F(Comm, StridedOperandsArePackedChunkByChunk) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(random_on(i, {64, kChunk}, 60, kFloat32, Layout::kTransposed));
  const int64_t before = taken(1);
  reset_peak_memory(on(1));
  const Tensor out = comm::sum_to(on(3), parts, kSmall);
  EXPECT_EQ(most_taken(3), block_bytes(64 * kChunk * 4));
  EXPECT_EQ(most_taken(1) - before, 2 * block_bytes(kChunk * 4));
  EXPECT_TRUE(is_copy(out, parts[0] + parts[1].to(on(0)) + parts[2].to(on(0)), 3));
}

// The plan counts the copies to the summing device and the copies of the sum to the other devices.
TEST_F(Comm, AllReducePlanCountsEveryDevice) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(random_on(i, {kChunk}, 61));
  set_memory_limit(on(2), memory_stats(on(2)).allocated);
  EXPECT_ERROR(OutOfMemory, comm::all_reduce(parts, kSmall),
               str("all_reduce: too little memory, nothing was moved\n"
                   "  4.0 KiB (4096 bytes) in 1 chunk\n"
                   "  ",
                   on(0), ": 1024 bytes for results, 0 for chunks in flight; free ", free_memory(on(0)), "\n  ", on(1),
                   ": 1024 bytes for results, 0 for chunks in flight; free ", free_memory(on(1)), "\n  ", on(2),
                   ": 1024 bytes for results, 0 for chunks in flight; free 0  <- too little"));
}

TEST_F(Comm, BroadcastCopiesToEachDevice) {
  for (const DType dtype : {kFloat32, kFloat16, kBFloat16, kInt64}) {
    for (const int64_t size : {0, 1, 257, 1021}) {
      const Tensor x = random_on(1, {size}, 70, dtype);
      const std::vector<Tensor> copies = comm::broadcast(x, {on(0), on(1), on(2), on(3)}, kSmall);
      for (int i = 0; i < kDevices; ++i) EXPECT_TRUE(is_copy(copies[static_cast<size_t>(i)], x, i));
      EXPECT_TRUE(copies[1].is_same(x));
    }
  }
  EXPECT_TRUE(comm::broadcast(ones({2}), {}).empty());
}

TEST_F(Comm, ScatterAndGatherAreInverse) {
  for (const Shape& shape : {Shape{10, 3}, Shape{3, 10}, Shape{1, 7}, Shape{0, 4}, Shape{4, 2, 33}, Shape{517}}) {
    for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim) {
      for (const Layout layout : {Layout::kContiguous, Layout::kTransposed, Layout::kSliced}) {
        SCOPED_TRACE(str(shape, " along ", dim));
        const Tensor x = random_on(0, shape, 71, kFloat32, layout);
        const std::vector<Device> devices = {on(0), on(1), on(2), on(3)};
        const std::vector<Tensor> parts = comm::scatter(x, devices, dim - static_cast<int64_t>(shape.size()), kSmall);
        ASSERT_EQ(parts.size(), devices.size());
        int64_t begin = 0;
        for (int i = 0; i < kDevices; ++i) {
          const Tensor& part = parts[static_cast<size_t>(i)];
          EXPECT_EQ(part.size(dim), x.size(dim) / kDevices + (i < x.size(dim) % kDevices ? 1 : 0));
          EXPECT_TRUE(is_copy(part, x.slice(dim, begin, begin + part.size(dim)), i));
          begin += part.size(dim);
        }
        for (const int64_t chunk_bytes : {4, 100, 1 << 20}) {
          EXPECT_TRUE(is_copy(comm::gather(parts, dim, on(2), {.chunk_bytes = chunk_bytes, .max_in_flight = 3}), x, 2));
        }
        const std::vector<Tensor> all = comm::all_gather(parts, dim, kSmall);
        for (int i = 0; i < kDevices; ++i) EXPECT_TRUE(is_copy(all[static_cast<size_t>(i)], x, i));
      }
    }
  }
}

TEST_F(Comm, GatherAllocatesOnlyTheResult) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(random_on(i, {16, 64}, 72));
  for (const int64_t dim : {0, 1}) {
    reset_peak_memory(on(3));
    const Tensor out = comm::gather(parts, dim, on(3), kSmall);
    EXPECT_EQ(most_taken(3), block_bytes(3 * 16 * 64 * 4));
  }
}

TEST_F(Comm, FailureAtAnyChunkReleasesMemory) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(random_on(i, {5 * kChunk}, 80));
  const auto calls = std::vector<std::function<void(const TransferOptions&)>>{
      [&](const TransferOptions& o) { static_cast<void>(comm::sum_to(on(3), parts, o)); },
      [&](const TransferOptions& o) { static_cast<void>(comm::all_reduce(parts, o)); },
      [&](const TransferOptions& o) {
        static_cast<void>(comm::broadcast(parts[0], {on(1), on(2), on(3)}, o));
      },
      [&](const TransferOptions& o) {
        static_cast<void>(comm::scatter(parts[0], {on(1), on(2), on(3)}, 0, o));
      },
      [&](const TransferOptions& o) { static_cast<void>(comm::gather(parts, 0, on(3), o)); },
      [&](const TransferOptions& o) { static_cast<void>(comm::all_gather(parts, 0, o)); },
  };
  for (size_t c = 0; c < calls.size(); ++c) {
    std::atomic<int> total{0};
    TransferOptions options = kSmall;
    options.progress = [&](int64_t, int64_t) { ++total; };
    calls[c](options);
    ASSERT_GE(total, 5);
    const int64_t held[] = {taken(0), taken(1), taken(2), taken(3)};
    for (int bad = 1; bad <= total; ++bad) {
      SCOPED_TRACE(str("call ", c, " chunk ", bad));
      std::atomic<int> chunks{0};
      options.progress = [&](int64_t, int64_t) {
        if (++chunks == bad) throw std::runtime_error("planted");
      };
      EXPECT_ERROR(std::runtime_error, calls[c](options), "planted");
      for (int i = 0; i < kDevices; ++i) EXPECT_EQ(taken(i), held[i]) << i;
    }
  }
}

TEST_F(Comm, InsufficientMemoryIsRejectedBeforeCopying) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(random_on(i, {4 * kChunk}, 81));
  int chunks = 0;
  TransferOptions options{.chunk_bytes = kChunk * 4, .max_in_flight = 1};
  options.progress = [&](int64_t, int64_t) { ++chunks; };
  const auto refused = [&](const char* op, const std::function<void()>& call) {
    // The last device has too little memory for a single result.
    const int last = std::string(op) == "all_reduce" || std::string(op) == "all_gather" ? 2 : 3;
    const int64_t held[] = {taken(0), taken(1), taken(2), taken(3)};
    set_memory_limit(on(last), memory_stats(on(last)).allocated + 512);
    EXPECT_EQ(error_text<OutOfMemory>(call).find(str(op, ": too little memory, nothing was moved\n")), 0u) << op;
    for (int i = 0; i < kDevices; ++i) EXPECT_EQ(taken(i), held[i]) << op;
    set_memory_limit(on(last), 24 << 20);
  };
  refused("sum_to", [&] { static_cast<void>(comm::sum_to(on(3), parts, options)); });
  refused("all_reduce", [&] { static_cast<void>(comm::all_reduce(parts, options)); });
  refused("broadcast", [&] { static_cast<void>(comm::broadcast(parts[0], {on(1), on(3)}, options)); });
  refused("scatter", [&] { static_cast<void>(comm::scatter(parts[0], {on(1), on(3)}, 0, options)); });
  refused("gather", [&] { static_cast<void>(comm::gather(parts, 0, on(3), options)); });
  refused("all_gather", [&] { static_cast<void>(comm::all_gather(parts, 0, options)); });
  EXPECT_EQ(chunks, 0);
}

TEST_F(Comm, InvalidArgumentsAreNamedInErrors) {
  const Tensor a = ones({2, 3}), b = ones({2, 3}, {kFloat32, cpu(1)});
  EXPECT_ERROR(ShapeError, comm::sum_to(cpu(1), {a, ones({3})}),
               "sum_to: shapes differ\n"
               "  tensors[0]  cpu  float32 [2, 3]\n"
               "  tensors[1]  cpu  float32 [3]");
  EXPECT_ERROR(DeviceError, comm::all_reduce({a, b, a}),
               "all_reduce: two tensors are on the same device, expected one tensor per device\n"
               "  tensors[0]  cpu  float32 [2, 3]\n"
               "  tensors[2]  cpu  float32 [2, 3]");
  EXPECT_ERROR(DeviceError, comm::all_gather({b, b}),
               "all_gather: two tensors are on the same device, expected one tensor per device\n"
               "  tensors[0]  cpu:1  float32 [2, 3]\n"
               "  tensors[1]  cpu:1  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, comm::gather({a, ones({2, 4})}, 0, cpu(1)),
               "gather: shapes differ in a dimension other than 0\n"
               "  tensors[0]  cpu  float32 [2, 3]\n"
               "  tensors[1]  cpu  float32 [2, 4]");
  EXPECT_ERROR(ValueError, comm::sum_to(cpu(1), {}), "sum_to: no tensors");
  EXPECT_ERROR(StateError, comm::all_reduce({a, Tensor()}), "all_reduce: tensors[1] is undefined");
  EXPECT_ERROR(StateError, comm::broadcast(Tensor(), {cpu(1)}), "broadcast: tensor is undefined");
  EXPECT_ERROR(ValueError, comm::scatter(a, {}), "scatter: no devices");
  EXPECT_THROW(static_cast<void>(comm::scatter(a, {cpu(1)}, 2)), IndexError);
  EXPECT_THROW(static_cast<void>(comm::gather({a}, -3, cpu(1))), IndexError);
  EXPECT_THROW(static_cast<void>(comm::gather({ones({})}, 0, cpu(1))), ShapeError);
  EXPECT_THROW(static_cast<void>(comm::sum_to(Device("cpu:63"), {a})), DeviceError);
  EXPECT_THROW(static_cast<void>(comm::broadcast(a, {Device("cuda:99")})), DeviceError);
}

TEST_F(Comm, GradientsReturnToSourceDevices) {
  const auto weigh = [](const Tensor& x, double start) {
    // Different weights for all elements.
    const Tensor weights = arange(0, x.numel()).to(kFloat64).view(x.shape()).to(x.device());
    return (x * x * (weights + start)).sum().cpu();
  };
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  const std::vector<Device> all = {on(0), on(1), on(2)};
  const auto weigh_all = [&](const std::vector<Tensor>& xs) {
    Tensor sum = weigh(xs[0], 1);
    for (size_t i = 1; i < xs.size(); ++i) sum = sum + weigh(xs[i], static_cast<double>(i) + 1.5);
    return sum;
  };
  const std::vector<std::pair<const char*, Function>> cases = {
      {"sum_to", [&](const auto& in) { return weigh(comm::sum_to(on(3), in), 1); }},
      {"all_reduce", [&](const auto& in) { return weigh_all(comm::all_reduce(in)); }},
      {"broadcast", [&](const auto& in) { return weigh_all(comm::broadcast(in[1], all)); }},
      {"scatter", [&](const auto& in) { return weigh_all(comm::scatter(in[1], all, 1)); }},
      {"gather", [&](const auto& in) { return weigh(comm::gather(in, 1, on(3)), 1); }},
      {"all_gather", [&](const auto& in) { return weigh_all(comm::all_gather(in, 0)); }},
  };
  for (const auto& [name, function] : cases) {
    SCOPED_TRACE(name);
    std::vector<Tensor> inputs;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(random_on(i, {2, 5}, 90 + static_cast<uint64_t>(i), kFloat64).requires_grad_());
    }
    EXPECT_NO_THROW(autograd::gradcheck(function, inputs));
    EXPECT_NO_THROW(autograd::gradgradcheck(function, inputs));
    function(inputs).backward();
    EXPECT_EQ(inputs[1].grad().device(), on(1));
  }
}

}}  // namespace tandem::testing

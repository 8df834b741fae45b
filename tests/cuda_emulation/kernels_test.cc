// Correct kernels give correct results and no report, in every order.
#include <algorithm>
#include <numeric>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

class Kernels : public EveryOrder {};
IN_EVERY_ORDER(Kernels);

__global__ void block_sums(const float* in, float* out, int n) {
  __shared__ float partial[256];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  partial[threadIdx.x] = i < n ? in[i] : 0.0F;
  __syncthreads();
  for (unsigned int half = blockDim.x / 2; half != 0; half /= 2) {
    if (threadIdx.x < half) {
      partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    out[blockIdx.x] = partial[0];
  }
}

TEST_P(Kernels, BlockSumsWithSharedMemoryAreCorrect) {
  const int n = 1000;
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0F);
  const Buffer<float> in(values), out(4);
  EXPECT_EQ(run(4, 256, 0, block_sums, in.data(), out.data(), n), "");
  const auto sums = out.values();
  EXPECT_EQ(sums[0], 256 * 257 / 2);
  EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], n * (n + 1) / 2);
}

__global__ void indices(int* out) {
  const auto x = blockIdx.x * blockDim.x + threadIdx.x;
  const auto y = blockIdx.y * blockDim.y + threadIdx.y;
  const auto z = blockIdx.z * blockDim.z + threadIdx.z;
  const auto width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
  out[(z * height + y) * width + x] = static_cast<int>(x + 100 * y + 10000 * z);
}

TEST_P(Kernels, ThreeDimensionalIndicesAreCorrect) {
  const dim3 grid(3, 2, 4), block(5, 7, 2);
  const unsigned int width = 15, height = 14, depth = 8;
  const Buffer<int> out(width * height * depth);
  EXPECT_EQ(run(grid, block, 0, indices, out.data()), "");
  const auto values = out.values();
  for (unsigned int z = 0; z < depth; ++z) {
    for (unsigned int y = 0; y < height; ++y) {
      for (unsigned int x = 0; x < width; ++x) {
        ASSERT_EQ(values[(z * height + y) * width + x], static_cast<int>(x + 100 * y + 10000 * z));
      }
    }
  }
}

template <typename T>
__global__ void shuffles(T* out, int width, int amount) {
  const auto lane = threadIdx.x;
  const T value = static_cast<T>(lane * 3 + 1);
  out[lane] = __shfl_sync(0xFFFFFFFFU, value, amount, width);
  out[32 + lane] = __shfl_up_sync(0xFFFFFFFFU, value, static_cast<unsigned int>(amount), width);
  out[64 + lane] = __shfl_down_sync(0xFFFFFFFFU, value, static_cast<unsigned int>(amount), width);
  out[96 + lane] = __shfl_xor_sync(0xFFFFFFFFU, value, amount, width);
}

// Source lane of each lane, as defined in the CUDA programming guide.
template <typename T>
void check_shuffles(const std::vector<T>& out, int width, int amount) {
  const auto of = [](int lane) { return static_cast<T>(lane * 3 + 1); };
  for (int lane = 0; lane < 32; ++lane) {
    const int part = lane / width * width, inside = lane % width;
    const auto at = [&](int kind) { return out[static_cast<size_t>(32 * kind + lane)]; };
    ASSERT_EQ(at(0), of(part + amount % width)) << lane << " of " << width << " by " << amount;
    ASSERT_EQ(at(1), of(inside >= amount ? lane - amount : lane)) << lane << " of " << width << " by " << amount;
    ASSERT_EQ(at(2), of(inside + amount < width ? lane + amount : lane)) << lane << " of " << width << " by " << amount;
    ASSERT_EQ(at(3), of((lane ^ amount) < part + width ? lane ^ amount : lane))
        << lane << " of " << width << " by " << amount;
  }
}

TEST_P(Kernels, ShufflesOfEveryWidthAreCorrect) {
  const Buffer<int> ints(128);
  const Buffer<double> doubles(128);
  for (const int width : {2, 4, 8, 16, 32}) {
    for (const int amount : {0, 1, 3, 8, 15, 16, 31}) {
      EXPECT_EQ(run(1, 32, 0, shuffles<int>, ints.data(), width, amount), "");
      check_shuffles(ints.values(), width, amount);
      EXPECT_EQ(run(1, 32, 0, shuffles<double>, doubles.data(), width, amount), "");
      check_shuffles(doubles.values(), width, amount);
    }
  }
}

__global__ void warp_votes(unsigned int* out) {
  const auto t = threadIdx.x;
  const unsigned int all = 0xFFFFFFFFU;
  out[t] = __ballot_sync(all, t % 3 == 0);
  out[64 + t] = static_cast<unsigned int>(__any_sync(all, t == 40) * 2 + __all_sync(all, t < 32));
  out[128 + t] =
      __reduce_add_sync(all, t) + 100000 * __reduce_max_sync(all, t) + 100 * 100000 * __reduce_min_sync(all, t % 32);
  out[192 + t] = static_cast<unsigned int>(__reduce_min_sync(all, static_cast<int>(t) - 7));
  out[256 + t] = __reduce_and_sync(all, t | 64U) ^ __reduce_or_sync(all, t) ^ __reduce_xor_sync(all, 1U << (t % 32));
}

TEST_P(Kernels, WarpVotesAndReductionsAreCorrect) {
  const Buffer<unsigned int> out(320);
  EXPECT_EQ(run(1, 64, 0, warp_votes, out.data()), "");
  const auto v = out.values();
  unsigned int ballots[2] = {0, 0};
  for (unsigned int t = 0; t < 64; t += 3) {
    ballots[t / 32] |= 1U << (t % 32);
  }
  for (unsigned int t = 0; t < 64; ++t) {
    const unsigned int w = t / 32;
    ASSERT_EQ(v[t], ballots[w]);
    ASSERT_EQ(v[64 + t], w == 0 ? 1U : 2U);
    ASSERT_EQ(v[128 + t], 496 + 1024 * w + 100000 * (31 + 32 * w));
    ASSERT_EQ(static_cast<int>(v[192 + t]), w == 0 ? -7 : 25);
    ASSERT_EQ(v[256 + t], (w == 0 ? 64U ^ 31U : 96U ^ 63U) ^ 0xFFFFFFFFU);
  }
}

__global__ void parts_of_warps(int* out) {  // halves of a warp reduce independently
  const unsigned int mask = threadIdx.x % 32 < 16 ? 0x0000FFFFU : 0xFFFF0000U;
  int sum = static_cast<int>(threadIdx.x);
  for (int d = 8; d != 0; d /= 2) {
    sum += __shfl_xor_sync(mask, sum, d);
  }
  out[threadIdx.x] = sum;
}

TEST_P(Kernels, WarpOperationsSupportPartialMasks) {
  const Buffer<int> out(64);
  EXPECT_EQ(run(1, 64, 0, parts_of_warps, out.data()), "");
  const auto values = out.values();
  for (int t = 0; t < 64; ++t) {
    EXPECT_EQ(values[static_cast<size_t>(t)], 16 * (t / 16 * 16) + 120);
  }
}

__global__ void exits_first(int* out, unsigned int stay) {
  __shared__ int count;
  if (threadIdx.x >= stay) {
    return;
  }
  if (threadIdx.x == 0) {
    count = 0;
  }
  __syncthreads();
  atomicAdd(&count, 1);
  __syncthreads();
  out[threadIdx.x] = count;
}

TEST_P(Kernels, ExitedThreadsDoNotBlockBarriers) {
  const Buffer<int> out(100);
  for (const unsigned int stay : {100U, 33U, 1U}) {
    EXPECT_EQ(run(1, 100, 0, exits_first, out.data(), stay), "");
    EXPECT_EQ(out.values()[0], static_cast<int>(stay));
  }
}

__global__ void block_votes(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  const int a = __syncthreads_or(t == 77), b = __syncthreads_or(0);
  const int c = __syncthreads_and(t >= 0), d = __syncthreads_and(t != 5);
  const int e = __syncthreads_count(t % 2 == 0);
  out[t] = a + 2 * b + 4 * c + 8 * d + 16 * e;
}

TEST_P(Kernels, BlockVotesAreCorrect) {
  const Buffer<int> out(99);
  EXPECT_EQ(run(1, 99, 0, block_votes, out.data()), "");
  for (const int v : out.values()) {
    EXPECT_EQ(v, 1 + 4 + 16 * 50);
  }
}

__global__ void axpy(float a, const float* x, float* y, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    y[i] = __fmaf_rn(a, __ldg(x + i), y[i]);
  }
}

TEST_P(Kernels, GridStrideLoopCoversAllElements) {
  const int64_t n = 5003;
  std::vector<float> x(n), y(n, 1.0F);
  std::iota(x.begin(), x.end(), 0.0F);
  const Buffer<float> dx(x), dy(y);
  EXPECT_EQ(run(3, 128, 0, axpy, 2.0F, dx.data(), dy.data(), n), "");
  const auto values = dy.values();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], 2.0F * static_cast<float>(i) + 1.0F);
  }
}

__global__ void reversed(int* data) {
  auto* tile = static_cast<int*>(dynamic_shared_memory());
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

TEST_P(Kernels, DynamicSharedMemoryIsUsable) {
  std::vector<int> values(300);
  std::iota(values.begin(), values.end(), 0);
  const Buffer<int> data(values);
  EXPECT_EQ(run(1, 300, 300 * sizeof(int), reversed, data.data()), "");
  EXPECT_EQ(data.values(), std::vector<int>(values.rbegin(), values.rend()));
}

struct Counters {
  int sum, low, high, bits;
  unsigned int swapped;
  float real;
  double wide;
  unsigned long long big;
};

__global__ void count(Counters* c) {
  const int t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&c->sum, t);
  atomicMin(&c->low, t - 50);
  atomicMax(&c->high, t);
  atomicOr(&c->bits, 1 << (t % 20));
  atomicAdd(&c->real, 0.5F);
  atomicAdd(&c->wide, 0.25);
  atomicAdd(&c->big, 1ULL << 33);
  unsigned int seen = 0;
  for (;;) {  // at most 100 iterations
    const unsigned int before = atomicCAS(&c->swapped, seen, seen < 100 ? seen + 1 : seen);
    if (before == seen) {
      break;
    }
    seen = before;
  }
}

TEST_P(Kernels, AtomicsAcrossBlocksAreCorrect) {
  const Buffer<Counters> c(std::vector<Counters>(1, Counters{}));
  EXPECT_EQ(run(5, 64, 0, count, c.data()), "");
  const Counters v = c.values()[0];
  EXPECT_EQ(v.sum, 320 * 319 / 2);
  EXPECT_EQ(v.low, -50);
  EXPECT_EQ(v.high, 319);
  EXPECT_EQ(v.bits, (1 << 20) - 1);
  EXPECT_EQ(v.real, 160.0F);
  EXPECT_EQ(v.wide, 80.0);
  EXPECT_EQ(v.big, 320ULL << 33);
  EXPECT_EQ(v.swapped, 100U);
}

// Different threads own the halves and bytes of one word; all blocks access one array, at different indices.
__global__ void small_types(uint8_t* bytes, uint16_t* halves, const uint16_t* in) {
  const auto i = blockIdx.x * blockDim.x + threadIdx.x;
  bytes[i] = static_cast<uint8_t>(i * 7);
  halves[i] = static_cast<uint16_t>(in[i] + 1);
  __syncthreads();
  const auto other = blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x;
  halves[i] = static_cast<uint16_t>(halves[i] + bytes[other]);
}

TEST_P(Kernels, DistinctBytesOfOneWordDoNotRace) {
  std::vector<uint16_t> values(99, 5);
  const Buffer<uint16_t> in(values), halves(99);
  const Buffer<uint8_t> bytes(99);
  EXPECT_EQ(run(3, 33, 0, small_types, bytes.data(), halves.data(), in.data()), "");
  const auto result = halves.values();
  for (unsigned int i = 0; i < 99; ++i) {
    const unsigned int other = i / 33 * 33 + (i + 1) % 33;
    ASSERT_EQ(result[i], 6 + static_cast<uint8_t>(other * 7));
  }
}

__global__ void warp_local_exchange(int* out) {
  __shared__ int tile[128];
  const auto t = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    tile[t] = static_cast<int>(t) + round;
    __syncwarp();
    out[t] = tile[t ^ 5U];
    __syncwarp();
  }
}

TEST_P(Kernels, SyncwarpOrdersMemoryWithinWarp) {
  const Buffer<int> out(128);
  EXPECT_EQ(run(1, 128, 0, warp_local_exchange, out.data()), "");
  EXPECT_EQ(out.values()[96], 101 + 2);
}

__global__ void vectors(float4* v, double2* w, const int* table) {
  const int values[3] = {table[0], table[1], table[2]};
  float4 x = v[threadIdx.x];
  x = make_float4(x.w, x.z, x.y, x.x);
  v[threadIdx.x] = x;
  w[threadIdx.x].y = w[threadIdx.x].x * values[threadIdx.x % 3];
}

TEST_P(Kernels, VectorTypesAreReadAndWritten) {
  const Buffer<float4> v(std::vector<float4>(40, make_float4(1, 2, 3, 4)));
  const Buffer<double2> w(std::vector<double2>(40, make_double2(2, 0)));
  const Buffer<int> table({1, 10, 100});
  EXPECT_EQ(run(1, 40, 0, vectors, v.data(), w.data(), table.data()), "");
  EXPECT_EQ(v.values()[39].x, 4);
  EXPECT_EQ(w.values()[38].y, 200);
}

// 20 barriers of 256 threads in a thousand blocks: large kernels need TANDEM_EMULATED_CHECKS=0.
__global__ void many_barriers(int* out) {
  int sum = 0;
  for (int i = 0; i < 20; ++i) {
    sum += __syncthreads_count(static_cast<int>(threadIdx.x) > i);
  }
  if (threadIdx.x == 0) {
    out[blockIdx.x] = sum;
  }
}

TEST_P(Kernels, ManyBlocksWithManyBarriersComplete) {
  const Buffer<int> out(1000);
  set_checks(false);
  EXPECT_EQ(run(1000, 256, 0, many_barriers, out.data()), "");
  for (const int v : out.values()) {
    ASSERT_EQ(v, 20 * 255 - 190);
  }
}

__global__ void take_numbers(int* next, int* who) {
  who[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

using ExecutionOrder = CudaTest;

TEST_F(ExecutionOrder, RandomOrderMixesBlocksAndThreads) {
  std::vector<int> in_order(50 * 40);
  std::iota(in_order.begin(), in_order.end(), 0);
  const auto taken = [&](const char* order) {
    EXPECT_TRUE(set_order(order));
    const Buffer<int> next(std::vector<int>(1, 0)), who(in_order.size());
    EXPECT_EQ(run(50, 40, 0, take_numbers, next.data(), who.data()), "");
    return who.values();
  };
  EXPECT_EQ(taken("lazy"), in_order);
  auto mixed = taken("random:3");
  EXPECT_EQ(mixed, taken("random:3"));
  EXPECT_NE(mixed, taken("random:4"));
  EXPECT_NE(mixed[1] - mixed[0], 1);
  EXPECT_NE(mixed[40] / 40 - mixed[0] / 40, 1);
  std::sort(mixed.begin(), mixed.end());
  EXPECT_EQ(mixed, in_order);
}

TEST(Intrinsics, ResultsMatchCudaDefinitions) {
  EXPECT_EQ(__brev(1U), 0x80000000U);
  EXPECT_EQ(__brevll(2ULL), 0x4000000000000000ULL);
  EXPECT_EQ(__byte_perm(0x33221100U, 0x77665544U, 0x7410U), 0x77441100U);
  EXPECT_EQ(__byte_perm(0x000080FFU, 0U, 0x9800U), 0xFFFFFFFFU);
  EXPECT_EQ(__umulhi(0x80000000U, 6U), 3U);
  EXPECT_EQ(__mulhi(-0x40000000, 8), -2);
  EXPECT_EQ(__umul64hi(1ULL << 63, 4), 2ULL);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__popc(0xF0F0U), 8);
  EXPECT_EQ(__funnelshift_r(0x11112222U, 0x33334444U, 16), 0x44441111U);
  EXPECT_EQ(__funnelshift_l(0x11112222U, 0x33334444U, 16), 0x44441111U);
  EXPECT_EQ(__float_as_uint(1.0F), 0x3F800000U);
  EXPECT_EQ(rsqrtf(4.0F), 0.5F);
}

}}  // namespace cuda_emulation::testing

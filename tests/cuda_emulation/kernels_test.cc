// Correct kernels give correct results and no report, in every order. The tests of tandem's own kernels check the rest.
#include <algorithm>
#include <numeric>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

class Kernels : public EveryOrder {};
IN_EVERY_ORDER(Kernels);

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

__global__ void shuffles(int* out, int amount) {
  const auto lane = threadIdx.x;
  const int value = static_cast<int>(lane * 3 + 1);
  out[lane] = __shfl_up_sync(0xFFFFFFFFU, value, static_cast<unsigned int>(amount));
  out[32 + lane] = __shfl_xor_sync(0xFFFFFFFFU, value, amount);
}

TEST_P(Kernels, ShufflesTakeTheSourceLane) {  // as defined in the CUDA programming guide
  const Buffer<int> out(64);
  for (const int amount : {0, 1, 3, 8, 15, 16, 31}) {
    EXPECT_EQ(run(1, 32, 0, shuffles, out.data(), amount), "");
    const std::vector<int> values = out.values();
    for (int lane = 0; lane < 32; ++lane) {
      ASSERT_EQ(values[static_cast<size_t>(lane)], 3 * (lane >= amount ? lane - amount : lane) + 1);
      ASSERT_EQ(values[static_cast<size_t>(32 + lane)], 3 * (lane ^ amount) + 1);
    }
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

}}  // namespace cuda_emulation::testing

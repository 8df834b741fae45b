// The counters of memory traffic, for kernels whose requests are known. //tests/benchmarks:gpu_traffic_test has those
// of tandem's kernels.
#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

class TrafficCounts : public CudaTest {
 protected:
  /// Runs a kernel and returns the record of its only launch.
  template <typename... Params, typename... Args>
  KernelTraffic count(dim3 grid, dim3 block, void (*kernel)(Params...), Args&&... args) {
    start_counting();
    EXPECT_EQ(run(grid, block, 0, kernel, std::forward<Args>(args)...), "");
    const std::vector<KernelTraffic> launches = stop_counting();
    EXPECT_EQ(launches.size(), 1U);
    return launches.empty() ? KernelTraffic{} : launches[0];
  }
};

void expect_accesses(const AccessCounts& counts, int64_t requests, int64_t sectors, int64_t bytes,
                     int64_t least_sectors) {
  EXPECT_EQ(counts.requests, requests);
  EXPECT_EQ(counts.sectors, sectors);
  EXPECT_EQ(counts.bytes, bytes);
  EXPECT_EQ(counts.least_sectors, least_sectors);
}

using Widths = std::array<int64_t, 5>;

__device__ unsigned int thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <typename T, int n>
struct alignas(sizeof(T) * n) Pack {
  T values[n];
};

using Four = Pack<float, 4>;

template <typename T>
__global__ void copy(const T* in, T* out) {
  out[thread()] = in[thread()];
}

TEST_F(TrafficCounts, CoalescedFloatCopyHasFourSectorsPerRequest) {
  const Buffer<float> in(1024), out(1024);
  const KernelTraffic counts = count(4, 256, copy<float>, in.data(), out.data());
  EXPECT_EQ(counts.kernel, "copy<float>");
  EXPECT_EQ(counts.launches, 1);
  EXPECT_EQ(counts.blocks, 4);
  expect_accesses(counts.reads, 32, 128, 4096, 128);
  expect_accesses(counts.writes, 32, 128, 4096, 128);
  EXPECT_EQ(counts.widths, (Widths{0, 0, 2048, 0, 0}));
  EXPECT_EQ(counts.traffic_bytes(), 8192);
  EXPECT_EQ(counts.least_bytes(), 8192);
  EXPECT_EQ(counts.wavefronts, 0);
}

// In a loop the compiler would split the packs into their elements, without the options of EMULATED_CUDA_COPTS.
template <typename T, int n>
__global__ void double_packs(const T* in, T* out, unsigned int num_packs) {
  for (unsigned int i = thread(); i < num_packs; i += gridDim.x * blockDim.x) {
    const Pack<T, n> x = *reinterpret_cast<const Pack<T, n>*>(in + i * n);
    Pack<T, n> result;
    for (int v = 0; v < n; ++v) {
      result.values[v] = static_cast<T>(x.values[v] + x.values[v]);
    }
    *reinterpret_cast<Pack<T, n>*>(out + i * n) = result;
  }
}

TEST_F(TrafficCounts, ComputedPacksAreOneAccess) {
  const Buffer<float> in(1024), out(1024);
  const KernelTraffic floats = count(1, 64, double_packs<float, 4>, in.data(), out.data(), 256U);
  expect_accesses(floats.reads, 8, 128, 4096, 128);
  EXPECT_EQ(floats.widths, (Widths{0, 0, 0, 0, 512}));
  const Buffer<uint16_t> in2(1024), out2(1024);
  const KernelTraffic halves = count(1, 64, double_packs<uint16_t, 8>, in2.data(), out2.data(), 128U);
  expect_accesses(halves.writes, 4, 64, 2048, 64);
  EXPECT_EQ(halves.widths, (Widths{0, 0, 0, 0, 256}));
}

struct Three {
  float x, y, z;
};

TEST_F(TrafficCounts, TwelveBytesAreThreeAccesses) {
  const Buffer<Three> in(32), out(32);
  const KernelTraffic counts = count(1, 32, copy<Three>, in.data(), out.data());
  expect_accesses(counts.reads, 3, 36, 384, 12);
  EXPECT_EQ(counts.widths, (Widths{0, 0, 192, 0, 0}));
}

__global__ void triangle(const float* in, float* out) {
  float sum = 0;
  for (unsigned int i = 0; i <= threadIdx.x; ++i) {
    sum += in[i * 32 + threadIdx.x];
  }
  out[threadIdx.x] = sum;
}

TEST_F(TrafficCounts, LanesThatLeaveALoopAreAbsent) {
  const Buffer<float> in(1024), out(32);
  for (const char* const order : {"lazy", "random:7"}) {
    ASSERT_TRUE(set_order(order));
    const KernelTraffic counts = count(1, 32, triangle, in.data(), out.data());
    EXPECT_EQ(counts.reads.requests, 32);
    EXPECT_EQ(counts.reads.bytes, 4 * 33 * 16);
    EXPECT_EQ(counts.reads.sectors, 8 * (1 + 2 + 3 + 4));  // of 32 - i lanes
  }
}

// The two halves of a warp execute the same instruction in different iterations.
__global__ void write_by_halves(float* out, unsigned int num_halves, bool whole_block) {
  for (unsigned int half = 0; half < num_halves; ++half) {
    if (threadIdx.x / 16 == half) {
      out[threadIdx.x] = 1;
    }
    if (whole_block) {
      __syncthreads();
    } else {
      __shfl_xor_sync(0xFFFFFFFFU, 1, 1);
    }
  }
}

TEST_F(TrafficCounts, SynchronizationsEndRequests) {
  const Buffer<float> out(32);
  for (const bool whole_block : {true, false}) {
    const KernelTraffic counts = count(1, 32, write_by_halves, out.data(), 2U, whole_block);
    expect_accesses(counts.writes, 2, 4, 128, 4);
  }
}

[[gnu::noinline]] float sum_of(const float* values) { return values[0] + values[1]; }

__global__ void own_values(float* out, Three argument) {
  float values[2] = {argument.x, argument.y};
  out[threadIdx.x] = sum_of(values);
}

TEST_F(TrafficCounts, StackAndArgumentsAreNotCounted) {
  const Buffer<float> out(32);
  const KernelTraffic counts = count(1, 32, own_values, out.data(), Three{1, 2, 3});
  expect_accesses(counts.reads, 0, 0, 0, 0);
  expect_accesses(counts.writes, 1, 4, 128, 4);
}

template <typename T>
__global__ void through_shared_memory(const T* in, T* out, int stride) {
  __shared__ T values[256];
  values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x * static_cast<unsigned int>(stride)];
}

template <typename T>
int64_t wavefronts_of(const KernelTraffic& counts) {
  return counts.wavefronts - counts.least_wavefronts / 2;  // without the wavefronts of the writes
}

TEST_F(TrafficCounts, WavefrontsDependOnWidthAndStride) {
  const Buffer<double> in(64), out(64);
  const auto run_with = [&]<typename T>(T, int stride) {
    return count(1, 32, through_shared_memory<T>, reinterpret_cast<const T*>(in.data()),
                 reinterpret_cast<T*>(out.data()), stride);
  };
  EXPECT_EQ(wavefronts_of<float>(run_with(float{}, 1)), 1);
  EXPECT_EQ(wavefronts_of<float>(run_with(float{}, 0)), 1);  // a broadcast
  EXPECT_EQ(wavefronts_of<uint16_t>(run_with(uint16_t{}, 1)), 1);
  EXPECT_EQ(wavefronts_of<double>(run_with(double{}, 1)), 2);
  EXPECT_EQ(run_with(double{}, 1).least_wavefronts, 4);
  const Buffer<Four> in4(32), out4(32);
  const KernelTraffic wide = count(1, 32, through_shared_memory<Four>, in4.data(), out4.data(), 1);
  EXPECT_EQ(wide.wavefronts, 8);
  EXPECT_EQ(wide.least_wavefronts, 8);
}

// The lanes of a half-warp read `distance` elements of 8 bytes apart.
__global__ void read_apart(double* out, unsigned int distance) {
  __shared__ double values[512];
  for (unsigned int i = threadIdx.x; i < 512; i += 32) {
    values[i] = 0;
  }
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x * distance];
}

TEST_F(TrafficCounts, WideAccessesConflictWithinTheirPhase) {
  const Buffer<double> out(32);
  const int64_t without = count(1, 32, read_apart, out.data(), 1U).wavefronts;
  EXPECT_EQ(without, 17 * 2);
  EXPECT_EQ(count(1, 32, read_apart, out.data(), 2U).wavefronts, 16 * 2 + 2 * 2);
  EXPECT_EQ(count(1, 32, read_apart, out.data(), 16U).wavefronts, 16 * 2 + 2 * 16);
}

TEST_F(TrafficCounts, OnlyLaunchesBetweenStartAndStopAreCounted) {
  const Buffer<float> in(32), out(32);
  EXPECT_EQ(run(1, 32, 0, copy<float>, in.data(), out.data()), "");
  EXPECT_TRUE(stop_counting().empty());
  EXPECT_EQ(count(1, 32, copy<float>, in.data(), out.data()).reads.requests, 1);
  EXPECT_EQ(run(1, 32, 0, copy<float>, in.data(), out.data()), "");
  EXPECT_TRUE(stop_counting().empty());
}

__global__ void many_reads(const float* in, float* out, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    sum += static_cast<const volatile float*>(in)[0];
  }
  *out = sum;
}

TEST_F(TrafficCounts, TooManyIncompleteRequestsFailTheKernel) {
  const Buffer<float> in(1), out(1);
  EXPECT_EQ(count(1, 1, many_reads, in.data(), out.data(), (1 << 18) - 1).reads.requests, (1 << 18) - 1);
  start_counting();
  EXPECT_EQ(run(1, 1, 0, many_reads, in.data(), out.data(), (1 << 18) + 1).substr(0, 53),
            "more than 262144 requests of warps without a synchron");
  EXPECT_TRUE(stop_counting().empty());
}

}}  // namespace cuda_emulation::testing

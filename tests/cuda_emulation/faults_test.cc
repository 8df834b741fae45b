// Kernels with errors that the access checks must detect and name.
#include <gmock/gmock.h>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FaultDetection : public CudaTest {};

__global__ void write_at(float* p, int i) {
  if (threadIdx.x == 3) {
    p[i] = 1.0F;
  }
}

TEST_F(FaultDetection, WritePastEndIsReported) {
  const Buffer<float> p(16);
  EXPECT_THAT(run(2, 4, 0, write_at, p.data(), 17),
              AllOf(HasSubstr("invalid write of 4 bytes: cuda:0, 4 bytes past the end of a block of 64 bytes"),
                    HasSubstr("in kernel '"), HasSubstr("write_at(float*, int)', block (0,0,0), thread (3,0,0)")));
  EXPECT_EQ(error_, cudaErrorIllegalAddress);
}

TEST_F(FaultDetection, LaterCallsFailUntilReset) {
  float* p = nullptr;
  ASSERT_CUDA(cudaMalloc(&p, 64));
  Stream stream;
  run(1, 4, 0, write_at, p, -1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(launch(stream, 1, 4, 0, write_at, p, 0), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFree(p), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemcpy(p, &stream, 4, cudaMemcpyHostToDevice), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaDeviceSynchronize());  // the other device has not failed
  EXPECT_CUDA(cudaSetDevice(0));
  reset();
  EXPECT_EQ(run(1, 4, 0, write_at, p, 0), "");
  EXPECT_CUDA(cudaFree(p));
}

TEST_F(FaultDetection, WorkQueuedAfterFaultDoesNotRun) {
  const Stream stream;
  const Event behind;
  int* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 64));
  *pinned = 7;
  {
    const Buffer<float> p(16);
    EXPECT_CUDA(launch(stream, 1, 4, 0, write_at, p.data(), 16));
    EXPECT_CUDA(cudaMemcpyAsync(pinned, p.data(), 64, cudaMemcpyDeviceToHost, stream));
    EXPECT_CUDA(cudaLaunchHostFunc(
        stream, [](void* q) { *static_cast<int*>(q) = 8; }, pinned));
    EXPECT_CUDA(cudaEventRecord(behind, stream));
    EXPECT_EQ(cudaEventSynchronize(behind), cudaErrorIllegalAddress);
    EXPECT_EQ(*pinned, 7);
    reset();
  }
  EXPECT_CUDA(cudaFreeHost(pinned));
}

__global__ void read_at(const uint8_t* p, int i, uint8_t* out) { *out = p[i]; }

TEST_F(FaultDetection, ReadOneByteOutOfBoundsIsReported) {
  const Buffer<uint8_t> p(std::vector<uint8_t>(13, 1)), out(1);
  EXPECT_EQ(run(1, 1, 0, read_at, p.data(), 12, out.data()), "");
  EXPECT_THAT(run(1, 1, 0, read_at, p.data(), 13, out.data()),
              HasSubstr("invalid read of 1 byte: cuda:0, 0 bytes past the end"));
  reset();
  EXPECT_THAT(run(1, 1, 0, read_at, p.data(), -1, out.data()), HasSubstr("invalid read of 1 byte: cuda:0, "));
}

TEST_F(FaultDetection, UseAfterFreeIsReported) {
  float* p = nullptr;
  ASSERT_CUDA(cudaMalloc(&p, 64));
  ASSERT_CUDA(cudaFree(p));
  EXPECT_THAT(run(1, 4, 0, write_at, p, 0), HasSubstr("invalid write of 4 bytes: cuda:0, in a block that was freed"));
}

TEST_F(FaultDetection, HostAndNullPointersAreReported) {
  std::vector<float> host(4, 0.0F);
  EXPECT_THAT(run(1, 4, 0, write_at, host.data(), 0), HasSubstr("invalid write of 4 bytes: memory of the host"));
  EXPECT_EQ(host[0], 0.0F);
  reset();
  EXPECT_THAT(run(1, 4, 0, write_at, static_cast<float*>(nullptr), 0), HasSubstr("a null pointer"));
  reset();
  static float global[4];
  EXPECT_THAT(run(1, 4, 0, write_at, static_cast<float*>(global), 0), HasSubstr("data of the program"));
}

TEST_F(FaultDetection, PeerMemoryWithoutAccessIsReported) {
  ASSERT_CUDA(cudaSetDevice(1));
  float* there = nullptr;
  ASSERT_CUDA(cudaMalloc(&there, 64));
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_THAT(run(1, 4, 0, write_at, there, 1), HasSubstr("invalid write of 4 bytes: cuda:1, 4 bytes into a block of "
                                                          "64 bytes, which this device has no peer access to"));
  reset();
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(run(1, 4, 0, write_at, there, 1), "");
  EXPECT_THAT(run(1, 4, 0, write_at, there, 16), HasSubstr("cuda:1, 0 bytes past the end of a block of 64 bytes"));
  reset();
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaFree(there));
}

__global__ void wide_write(float* p) { *reinterpret_cast<double*>(p) = 1.0; }
__global__ void wide_atomic(char* p) { atomicAdd(reinterpret_cast<int*>(p), 1); }

TEST_F(FaultDetection, MisalignedAddressesAreReported) {
  const Buffer<float> wide(4);
  EXPECT_EQ(run(1, 1, 0, wide_write, wide.data() + 2), "");
  EXPECT_THAT(run(1, 1, 0, wide_write, wide.data() + 1),
              HasSubstr("misaligned address: 8 bytes at cuda:0, 4 bytes into"));
  reset();
  const Buffer<char> p(16);
  EXPECT_THAT(run(1, 1, 0, wide_atomic, p.data() + 2), HasSubstr("misaligned"));
  EXPECT_EQ(error_, cudaErrorMisalignedAddress);
}

__global__ void neighbours(int* out, bool barrier) {
  __shared__ int tile[64];
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) {
    __syncthreads();
  }
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST_F(FaultDetection, MissingSyncthreadsIsReported) {
  const Buffer<int> out(64);
  EXPECT_EQ(run(1, 64, 0, neighbours, out.data(), true), "");
  for (const char* order : {"lazy", "random:1", "random:2", "random:3"}) {
    ASSERT_TRUE(set_order(order));
    const std::string report = run(1, 64, 0, neighbours, out.data(), false);
    EXPECT_TRUE(report.find("race: ") == 0 || report.find("read of uninitialised shared memory") == 0) << report;
    EXPECT_THAT(report, HasSubstr("::tile' of 256 bytes"));
    reset();
  }
}

__global__ void write_after_read(int* data) {  // shifts by one; a barrier between reads and writes is missing
  const int value = data[(threadIdx.x + 1) % 64];
  data[threadIdx.x] = value;
}

TEST_F(FaultDetection, WriteAfterReadRaceIsReported) {
  const Buffer<int> data(std::vector<int>(64, 1));
  EXPECT_THAT(run(1, 64, 0, write_after_read, data.data()),
              AllOf(HasSubstr("race: "), HasSubstr("of the block with no barrier between"),
                    HasSubstr("into a block of 256 bytes")));
}

__global__ void second_reader(int* data, int* out, int writer) {  // threads 0..2 read, one of them writes
  const int t = static_cast<int>(threadIdx.x);
  if (t != writer && t % 32 < 3) {
    out[t] = data[0];
  }
  if (t == writer) {
    data[0] = 1;
  }
}

TEST_F(FaultDetection, RaceWithAnyReaderIsReported) {
  const Buffer<int> data(std::vector<int>(1, 1)), out(64);
  for (const int writer : {0, 1, 2, 3, 32, 34, 63}) {
    EXPECT_THAT(run(1, 64, 0, second_reader, data.data(), out.data(), writer), HasSubstr("race: ")) << writer;
    reset();
  }
}

__global__ void exchange_in_warp(int* out) {
  __shared__ int tile[32];
  tile[threadIdx.x] = 1;
  __shfl_xor_sync(0xFFFFFFFFU, 1, 1);
  out[threadIdx.x] = tile[threadIdx.x ^ 1U];
}

TEST_F(FaultDetection, ShufflesDoNotOrderMemory) {
  const Buffer<int> out(32);
  EXPECT_THAT(run(1, 32, 0, exchange_in_warp, out.data()), HasSubstr("race: read of 4 bytes"));
}

__global__ void one_place(int* out, int mode) {
  const int value = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    if (mode == 0) {
      *out = value;
    } else if (mode == 1) {
      atomicAdd(out, value);
    } else if (blockIdx.x == 0) {
      *out = value;
    } else {
      atomicAdd(out, value);
    }
  }
}

TEST_F(FaultDetection, RaceBetweenBlocksIsReported) {
  const Buffer<int> out(std::vector<int>(1, 0));
  EXPECT_THAT(
      run(3, 32, 0, one_place, out.data(), 0),
      AllOf(
          HasSubstr("race: write of 4 bytes, cuda:0, 0 bytes into a block of 4 bytes, after a write by another block, "
                    "(0,0,0), thread (0,0,0)"),
          HasSubstr("block (1,0,0)")));
  reset();
  EXPECT_EQ(run(3, 32, 0, one_place, out.data(), 1), "");
  EXPECT_THAT(run(3, 32, 0, one_place, out.data(), 2), HasSubstr("race: atomic access"));
  reset();
  ASSERT_TRUE(set_order("random:5"));
  EXPECT_THAT(run(3, 32, 0, one_place, out.data(), 2), HasSubstr("race: "));
}

__global__ void next_block_reads(int* data) {  // reads memory that the next block writes
  if (threadIdx.x == 0) {
    data[8 + blockIdx.x] = data[blockIdx.x + 1];
    __syncthreads();
    data[blockIdx.x] = 1;
  }
}

TEST_F(FaultDetection, ReadWriteRaceBetweenBlocksIsReported) {
  const Buffer<int> data(std::vector<int>(16, 0));
  EXPECT_THAT(run(4, 1, 0, next_block_reads, data.data()), HasSubstr("after a read by another block, (0,0,0)"));
}

__global__ void bytes_of_a_word(uint8_t* p, int same) {
  p[threadIdx.x % 4] = 1;
  if (threadIdx.x == 9) {
    p[same] = 2;
  }
}

TEST_F(FaultDetection, RaceOnSingleBytesIsReported) {
  const Buffer<uint8_t> p(8);
  EXPECT_EQ(run(1, 4, 0, bytes_of_a_word, p.data(), 0), "");
  EXPECT_THAT(run(1, 10, 0, bytes_of_a_word, p.data(), 2), HasSubstr("race: write of 1 byte"));
}

__global__ void uninitialised(float* out) {
  __shared__ float tile[32];
  if (threadIdx.x != 7) {
    tile[threadIdx.x] = 0.0F;
  }
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

TEST_F(FaultDetection, UninitializedSharedMemoryReadIsReported) {
  const Buffer<float> out(32);
  EXPECT_THAT(run(1, 32, 0, uninitialised, out.data()),
              AllOf(HasSubstr("read of uninitialised shared memory: 4 bytes of 28 bytes into the shared variable"),
                    HasSubstr("thread (7,0,0)")));
}

__global__ void only_first_block_writes(float* out) {
  auto* tile = static_cast<float*>(dynamic_shared_memory());
  if (blockIdx.x == 0) {
    tile[threadIdx.x] = 0.0F;
  }
  __syncthreads();
  out[threadIdx.x + 32 * blockIdx.x] = tile[threadIdx.x];
}

TEST_F(FaultDetection, SharedMemoryDoesNotOutliveItsBlock) {
  const Buffer<float> out(64);
  EXPECT_EQ(run(1, 32, 128, only_first_block_writes, out.data()), "");
  EXPECT_THAT(run(2, 32, 128, only_first_block_writes, out.data()),
              AllOf(HasSubstr("uninitialised shared memory"), HasSubstr("block (1,0,0)")));
}

TEST_F(FaultDetection, WriteBeyondDynamicSharedMemoryIsReported) {
  const Buffer<float> out(64);
  EXPECT_THAT(run(1, 32, 124, only_first_block_writes, out.data()),
              HasSubstr("invalid write of 4 bytes: 0 bytes past the 124 bytes of dynamic shared memory"));
}

__global__ void divergent_barrier() {
  if (threadIdx.x < 16) {
    __syncthreads();
  }
  __shfl_xor_sync(0xFFFFFFFFU, 1, 1);
}

TEST_F(FaultDetection, DivergentBarrierIsReportedAsDeadlock) {
  EXPECT_THAT(run(1, 32, 0, divergent_barrier),
              AllOf(HasSubstr("deadlock"), HasSubstr("threads (0,0,0) to (15,0,0) wait in __syncthreads"),
                    HasSubstr("threads (16,0,0) to (31,0,0) wait in __shfl_xor_sync(0xffffffff)")));
  EXPECT_EQ(error_, cudaErrorLaunchFailure);
}

__global__ void absent_lane(int* out, unsigned int mask, unsigned int first, unsigned int last) {
  if (threadIdx.x < first || threadIdx.x > last) {
    return;
  }
  out[threadIdx.x] = __shfl_xor_sync(mask, 1, 16);
}

TEST_F(FaultDetection, ShuffleWithInactiveThreadIsReported) {
  const Buffer<int> out(32);
  EXPECT_THAT(run(1, 32, 0, absent_lane, out.data(), 0xFFFFFFFFU, 0U, 8U),
              AllOf(HasSubstr("lane 9 ended"), HasSubstr("__shfl_xor_sync(0xffffffff)")));
  reset();
  EXPECT_THAT(run(1, 32, 0, absent_lane, out.data(), 0xFFFFFFFFU, 1U, 31U),
              HasSubstr("__shfl_xor_sync(0xffffffff) waits for lane 0, which has ended"));
  reset();
  EXPECT_THAT(run(1, 32, 0, absent_lane, out.data(), 0x0000FFFFU, 0U, 15U),
              HasSubstr("lane 0 takes the value of lane 16, which is not in the mask"));
  reset();
  EXPECT_THAT(run(1, 20, 0, absent_lane, out.data(), 0xFFFFFFFFU, 0U, 31U),
              HasSubstr("lane 20, which the block does not have"));
  reset();
  EXPECT_EQ(run(1, 32, 0, absent_lane, out.data(), 0xFFFFFFFFU, 0U, 31U), "");
}

__global__ void different_operations() {
  if (threadIdx.x == 4) {
    __shfl_up_sync(0xFFFFFFFFU, 1, 1);
  } else {
    __shfl_xor_sync(0xFFFFFFFFU, 1, 1);
  }
}

TEST_F(FaultDetection, MismatchedWarpOperationsAreReported) {
  EXPECT_THAT(run(1, 32, 0, different_operations), HasSubstr("execute different operations"));
}

__global__ void others_stack(int* out) {
  __shared__ int* place;
  int own[4] = {1, 2, 3, static_cast<int>(threadIdx.x)};
  if (threadIdx.x == 0) {
    place = own;
  }
  __syncthreads();
  out[threadIdx.x] = place[own[3] % 4];
}

TEST_F(FaultDetection, AccessToAnotherThreadsStackIsReported) {
  const Buffer<int> out(32);
  EXPECT_THAT(run(1, 32, 0, others_stack, out.data()),
              AllOf(HasSubstr("the stack of another thread"), HasSubstr("thread (1,0,0)")));
}

__attribute__((noinline)) int deep(volatile int* p, int n) {
  volatile int large[1000];
  large[n % 1000] = n;
  return n == 0 ? *p : deep(p, n - 1) + large[n % 1000];
}
__global__ void recursion(int* out) { *out = deep(out, 1000); }

TEST_F(FaultDetection, StackOverflowIsReported) {
  const Buffer<int> out(1);
  EXPECT_THAT(run(1, 1, 0, recursion, out.data()), HasSubstr("overflow of a thread's stack (256 KiB)"));
  reset();
  EXPECT_EQ(run(1, 4, 0, write_at, reinterpret_cast<float*>(out.data()), 0), "");
}

// Without access checks, page protection remains.
TEST_F(FaultDetection, InvalidAddressesAreReportedWithoutChecks) {
  set_checks(false);
  float* there = nullptr;
  ASSERT_CUDA(cudaMalloc(&there, 64));
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_THAT(run(1, 4, 0, write_at, there, 1), HasSubstr("invalid access: cuda:0, 4 bytes into a block of 64 bytes"));
  EXPECT_EQ(error_, cudaErrorIllegalAddress);
  reset();
  EXPECT_THAT(run(1, 4, 0, write_at, static_cast<float*>(nullptr), 0), HasSubstr("invalid access: a null pointer"));
  reset();
  EXPECT_EQ(run(1, 32, 0, divergent_barrier).find("deadlock"), 0U);
  reset();
  EXPECT_CUDA(cudaFree(there));
}

}}  // namespace cuda_emulation::testing

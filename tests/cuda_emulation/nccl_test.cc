// The emulated NCCL: its reports, and where it waits, as NCCL does. One thread acts as both ranks, each with its own
// device.
#include <gmock/gmock.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNan;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

constexpr size_t kCount = 3;

/// Stream and memory of a rank.
struct Side {
  explicit Side(int rank) : values(Floats(kCount, static_cast<float>(rank + 1))) {}
  Stream stream;
  Buffer<float> values;
};

class Nccl : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (int rank = 0; rank < 2; ++rank) {
      cudaSetDevice(rank);
      sides_[static_cast<size_t>(rank)] = std::make_unique<Side>(rank);
    }
    comms_ = join();
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms_) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    for (auto& side : sides_) side.reset();
    CudaTest::TearDown();
  }

  std::array<ncclComm_t, 2> join(int max_blocks = 0) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::array<ncclComm_t, 2> comms = {};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (max_blocks > 0) config.maxCTAs = max_blocks;
    for (int rank = 0; rank < 2; ++rank) {
      cudaSetDevice(rank);
      EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &config), ncclInProgress);
    }
    for (const ncclComm_t comm : comms) EXPECT_EQ(settled(comm), ncclSuccess);
    return comms;
  }

  static ncclResult_t state(ncclComm_t comm) {
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
  }
  static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t result = state(comm);
    for (; result == ncclInProgress; result = state(comm)) std::this_thread::sleep_for(1ms);
    return result;
  }
  static bool stays_in_progress(ncclComm_t comm) {
    std::this_thread::sleep_for(100ms);
    return state(comm) == ncclInProgress;
  }

  Side& side(size_t rank) { return *sides_[rank]; }
  float* data(size_t rank) { return side(rank).values.data(); }
  ncclResult_t all_reduce(ncclComm_t comm, size_t rank) {
    return ncclAllReduce(data(rank), data(rank), kCount, ncclFloat32, ncclSum, comm, side(rank).stream);
  }
  ncclResult_t all_reduce(size_t rank) { return all_reduce(comms_[rank], rank); }
  void all_reduce() {
    for (const size_t rank : {0U, 1U}) EXPECT_EQ(all_reduce(rank), ncclInProgress);
    for (const ncclComm_t comm : comms_) EXPECT_EQ(settled(comm), ncclSuccess);
    for (const size_t rank : {0U, 1U}) EXPECT_CUDA(cudaStreamSynchronize(side(rank).stream));
  }

  /// Graphs of an all-reduce.
  std::array<cudaGraphExec_t, 2> capture() {
    std::array<cudaGraphExec_t, 2> made = {};
    for (const size_t rank : {0U, 1U}) {
      cudaGraph_t graph = nullptr;
      EXPECT_CUDA(cudaStreamBeginCapture(side(rank).stream, cudaStreamCaptureModeRelaxed));
      EXPECT_EQ(all_reduce(rank), ncclInProgress);
      EXPECT_EQ(settled(comms_[rank]), ncclSuccess);
      EXPECT_CUDA(cudaStreamEndCapture(side(rank).stream, &graph));
      EXPECT_CUDA(cudaGraphInstantiate(&made[rank], graph, 0));
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    return made;
  }

  std::array<std::unique_ptr<Side>, 2> sides_;
  std::array<ncclComm_t, 2> comms_ = {};
};

TEST_F(Nccl, FirstCallOfEachKindAwaitsAllRanks) {
  EXPECT_EQ(all_reduce(0), ncclInProgress);
  EXPECT_TRUE(stays_in_progress(comms_[0]));
  EXPECT_EQ(all_reduce(0), ncclInvalidArgument);  // rejected: the previous call is in progress
  EXPECT_EQ(ncclCommDestroy(comms_[0]), ncclInvalidArgument);
  EXPECT_EQ(all_reduce(1), ncclInProgress);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  EXPECT_EQ(settled(comms_[1]), ncclSuccess);
  EXPECT_EQ(all_reduce(0), ncclInProgress);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);  // its links are open
  const auto broadcast = [&](size_t rank) {
    return ncclBroadcast(data(rank), data(rank), kCount, ncclFloat32, 0, comms_[rank], side(rank).stream);
  };
  EXPECT_EQ(broadcast(0), ncclInProgress);
  EXPECT_TRUE(stays_in_progress(comms_[0]));
}

TEST_F(Nccl, FirstSendWaitsForMatchingReceive) {
  ASSERT_EQ(ncclSend(data(0), kCount, ncclFloat32, 1, comms_[0], side(0).stream), ncclInProgress);
  EXPECT_TRUE(stays_in_progress(comms_[0]));
  ASSERT_EQ(ncclRecv(data(1), kCount, ncclFloat32, 0, comms_[1], side(1).stream), ncclInProgress);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  EXPECT_EQ(settled(comms_[1]), ncclSuccess);
  EXPECT_CUDA(cudaStreamSynchronize(side(1).stream));
  EXPECT_EQ(side(1).values.values(), Floats(kCount, 1));
}

// Tasks queued on the stream before the call is queued run before it.
TEST_F(Nccl, CallIsEnqueuedOnStreamAfterConnecting) {
  EXPECT_EQ(all_reduce(0), ncclInProgress);
  const Buffer<float> zeros(Floats(kCount, 0));
  EXPECT_CUDA(cudaMemcpyAsync(data(0), zeros.data(), zeros.num_bytes(), cudaMemcpyDeviceToDevice, side(0).stream));
  EXPECT_EQ(all_reduce(1), ncclInProgress);
  for (const ncclComm_t comm : comms_) EXPECT_EQ(settled(comm), ncclSuccess);
  for (const size_t rank : {0U, 1U}) EXPECT_CUDA(cudaStreamSynchronize(side(rank).stream));
  EXPECT_EQ(side(0).values.values(), Floats(kCount, 2));
}

TEST_F(Nccl, CapturedCallRunsInEachLaunch) {
  all_reduce();
  const auto graphs = capture();
  for (const size_t rank : {0U, 1U}) EXPECT_EQ(side(rank).values.values(), Floats(kCount, 3));
  for (int round = 0; round < 2; ++round) {
    for (const size_t rank : {0U, 1U}) EXPECT_CUDA(cudaGraphLaunch(graphs[rank], side(rank).stream));
  }
  all_reduce();
  for (const size_t rank : {0U, 1U}) {
    EXPECT_EQ(side(rank).values.values(), Floats(kCount, 24));
    EXPECT_CUDA(cudaGraphExecDestroy(graphs[rank]));
  }
}

TEST_F(Nccl, CapturedCallsMatchOnlyWithinOneCapture) {
  for (const bool captured : {false, true}) {
    all_reduce();
    const auto first = capture(), second = capture();
    EXPECT_CUDA(cudaGraphLaunch(first[0], side(0).stream));
    if (captured) {
      EXPECT_CUDA(cudaGraphLaunch(second[1], side(1).stream));
    } else {
      EXPECT_EQ(all_reduce(1), ncclInProgress);
      EXPECT_EQ(settled(comms_[1]), ncclSuccess);
    }
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(cudaStreamQuery(side(0).stream), cudaErrorNotReady);
    for (const auto& graphs : {first, second}) {
      for (const cudaGraphExec_t graph : graphs) EXPECT_CUDA(cudaGraphExecDestroy(graph));
    }
    for (const ncclComm_t comm : comms_) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    comms_ = join();
  }
}

TEST_F(Nccl, DestroyAndAbortWaitForGraphs) {
  for (const bool aborts : {false, true}) {
    all_reduce();
    const auto graphs = capture();
    std::array<std::atomic<bool>, 2> ended = {};
    std::vector<std::thread> ends;
    for (const size_t rank : {0U, 1U}) {
      ends.emplace_back([&, rank] {
        EXPECT_EQ(aborts ? ncclCommAbort(comms_[rank]) : ncclCommDestroy(comms_[rank]), ncclSuccess);
        ended[rank] = true;
      });
    }
    std::this_thread::sleep_for(100ms);
    for (const size_t rank : {0U, 1U}) {
      EXPECT_FALSE(ended[rank]);
      EXPECT_CUDA(cudaGraphExecDestroy(graphs[rank]));
    }
    for (std::thread& end : ends) end.join();
    comms_ = join();
  }
}

TEST_F(Nccl, AbortEndsCallInProgress) {
  EXPECT_EQ(all_reduce(0), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess);
  comms_[0] = nullptr;
  EXPECT_CUDA(cudaStreamSynchronize(side(0).stream));
}

TEST_F(Nccl, AbortDrainsTheStream) {
  all_reduce();
  EXPECT_EQ(all_reduce(0), ncclInProgress);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(cudaStreamQuery(side(0).stream), cudaErrorNotReady);
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess);
  comms_[0] = nullptr;
  EXPECT_CUDA(cudaStreamSynchronize(side(0).stream));
  EXPECT_THAT(side(0).values.values(), Each(IsNan()));
}

TEST_F(Nccl, DestroyWaitsForAllRanks) {
  for (const bool aborts : {false, true}) {
    std::atomic<bool> ended{false};
    std::thread first([&] {
      EXPECT_EQ(ncclCommDestroy(comms_[0]), ncclSuccess);
      ended = true;
    });
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(ended);
    EXPECT_EQ(aborts ? ncclCommAbort(comms_[1]) : ncclCommDestroy(comms_[1]), ncclSuccess);
    first.join();
    comms_ = join();
  }
}

TEST_F(Nccl, AbortUnblocksWaitingDestroy) {
  std::thread first([&] { EXPECT_EQ(ncclCommDestroy(comms_[0]), ncclSuccess); });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess);
  first.join();
  comms_[0] = nullptr;
}

using NcclDeathTest = Nccl;

TEST_F(NcclDeathTest, UseAfterAbortIsReported) {
  EXPECT_DEATH(
      {
        ncclCommAbort(comms_[0]);
        all_reduce(0);
      },
      "ncclAllReduce after the communicator was destroyed or aborted");
}

TEST_F(NcclDeathTest, AbortInsideOpenGroupIsReported) {
  EXPECT_DEATH(
      {
        ncclGroupStart();
        all_reduce(0);
        std::thread([&] { ncclCommAbort(comms_[0]); }).join();
        ncclGroupEnd();
      },
      "ncclGroupEnd after the communicator was destroyed or aborted");
}

TEST_F(NcclDeathTest, ConcurrentUseByTwoThreadsIsReported) {
  EXPECT_DEATH(
      {
        ncclGroupStart();
        all_reduce(0);
        std::thread([&] { state(comms_[0]); }).join();
      },
      "ncclCommGetAsyncError while another thread is in ncclAllReduce of an open group on the communicator of rank 0");
  EXPECT_DEATH(
      {
        std::thread first([&] { ncclCommDestroy(comms_[0]); });
        std::this_thread::sleep_for(100ms);
        state(comms_[0]);
        first.join();
      },
      "ncclCommGetAsyncError while another thread is in ncclCommDestroy on the communicator of rank 0");
}

TEST_F(NcclDeathTest, MisalignedBuffersAreReported) {
  char* const odd = reinterpret_cast<char*>(data(0)) + 2;
  EXPECT_DEATH(ncclAllReduce(odd, odd, 1, ncclFloat32, ncclSum, comms_[0], side(0).stream),
               "ncclAllReduce: a buffer is not aligned to its type");
}

// As in NCCL's documentation: in place, a rank's part of the larger buffer is the smaller one.
TEST_F(NcclDeathTest, OverlappingBuffersAreReported) {
  const cudaStream_t stream = side(1).stream;
  float* const values = data(1);
  EXPECT_DEATH(ncclAllReduce(values, values + 1, 2, ncclFloat32, ncclSum, comms_[1], stream),
               "ncclAllReduce: the sent buffer overlaps the received one");
  EXPECT_DEATH(ncclAllGather(values, values, 1, ncclFloat32, comms_[1], stream),
               "ncclAllGather: the sent buffer overlaps the received one");
  EXPECT_DEATH(ncclReduceScatter(values, values, 1, ncclFloat32, ncclSum, comms_[1], stream),
               "ncclReduceScatter: the sent buffer overlaps the received one");
  EXPECT_EQ(ncclAllGather(values + 1, values, 1, ncclFloat32, comms_[1], stream), ncclInProgress);
}

TEST_F(Nccl, WriteToBuffersDuringCallIsReported) {
  all_reduce();
  for (const bool input : {false, true}) {
    cudaSetDevice(0);
    const Buffer<float> from(Floats(kCount, 1)), to(Floats(kCount, 1)), mine(Floats(1, 0));
    const Stream other;
    EXPECT_EQ(ncclAllReduce(from.data(), to.data(), kCount, ncclFloat32, ncclSum, comms_[0], side(0).stream),
              ncclInProgress);
    EXPECT_EQ(settled(comms_[0]), ncclSuccess);
    while (!std::isnan(to.values()[0])) std::this_thread::sleep_for(1ms);  // the call has not started
    EXPECT_CUDA(cudaMemcpyAsync(input ? from.data() : to.data(), mine.data(), 4, cudaMemcpyDeviceToDevice, other));
    EXPECT_CUDA(cudaStreamSynchronize(other));
    EXPECT_EQ(all_reduce(1), ncclInProgress);
    EXPECT_EQ(cudaStreamSynchronize(side(0).stream), cudaErrorIllegalAddress);
    EXPECT_EQ(last_report(), "NCCL: memory of cuda:0 was written while a call had it");
    reset();
    EXPECT_EQ(settled(comms_[1]), ncclSuccess);
  }
}

TEST_F(Nccl, RanksOutOfRangeAreRejected) {
  float* const data = side(0).values.data();
  for (const int rank : {-1, 2}) {
    EXPECT_EQ(ncclBroadcast(data, data, kCount, ncclFloat32, rank, comms_[0], side(0).stream), ncclInvalidArgument);
    EXPECT_EQ(ncclReduce(data, data, kCount, ncclFloat32, ncclSum, rank, comms_[0], side(0).stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(data, kCount, ncclFloat32, rank, comms_[0], side(0).stream), ncclInvalidArgument);
    EXPECT_EQ(ncclRecv(data, kCount, ncclFloat32, rank, comms_[0], side(0).stream), ncclInvalidArgument);
  }
}

TEST_F(Nccl, UnorderedCommunicatorsOnOneDeviceAreRejected) {
  all_reduce();
  const auto others = join();
  cudaSetDevice(0);
  const Side mine(0);
  const auto other = [&] {
    return ncclAllReduce(mine.values.data(), mine.values.data(), kCount, ncclFloat32, ncclSum, others[0], mine.stream);
  };
  EXPECT_EQ(all_reduce(0), ncclInProgress);
  EXPECT_EQ(settled(comms_[0]), ncclSuccess);
  EXPECT_EQ(other(), ncclInvalidUsage);
  EXPECT_THAT(last_report(), HasSubstr("calls of two communicators are queued on one device and no event orders them"));
  EXPECT_THAT(ncclGetLastError(others[0]), HasSubstr("no event orders them"));
  const Event event;
  const Stream between;
  EXPECT_CUDA(cudaEventRecord(event, side(0).stream));
  EXPECT_CUDA(cudaStreamWaitEvent(between, event, 0));
  EXPECT_CUDA(cudaEventRecord(event, between));
  EXPECT_CUDA(cudaStreamWaitEvent(mine.stream, event, 0));
  EXPECT_EQ(other(), ncclInProgress);
  for (const ncclComm_t comm : others) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(all_reduce(1), ncclInProgress);
  EXPECT_CUDA(cudaStreamSynchronize(mine.stream));
}

// The emulated GPU has four multiprocessors.
TEST_F(Nccl, UnorderedCommunicatorsMayRunIfTheirBlocksFit) {
  const auto first = join(2), second = join(1), third = join(2);
  cudaSetDevice(0);
  const Side other(0), another(0);
  const auto send = [&](ncclComm_t comm, const Side& from) {
    return ncclSend(from.values.data(), kCount, ncclFloat32, 1, comm, from.stream);
  };
  EXPECT_EQ(send(first[0], side(0)), ncclInProgress);
  EXPECT_EQ(send(second[0], other), ncclInProgress);
  EXPECT_EQ(send(third[0], another), ncclInvalidUsage);
  EXPECT_THAT(last_report(), HasSubstr("maxCTAs"));
  cudaSetDevice(1);
  for (const ncclComm_t comm : {second[1], first[1]}) {
    EXPECT_EQ(ncclRecv(data(1), kCount, ncclFloat32, 0, comm, side(1).stream), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
  }
  EXPECT_CUDA(cudaStreamSynchronize(side(1).stream));
  EXPECT_EQ(side(1).values.values(), Floats(kCount, 1));
  for (const auto& comms : {first, second, third}) {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
}

}}  // namespace cuda_emulation::testing

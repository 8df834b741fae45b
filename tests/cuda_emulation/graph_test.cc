// Graphs: capture of one and of several streams, and launches.
#include <gmock/gmock.h>

#include <functional>
#include <vector>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

using ::testing::Each;

__global__ void add(int* data, int n, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    data[i] += value;
  }
}

class CudaGraphs : public EveryOrder {};
IN_EVERY_ORDER(CudaGraphs);

TEST_P(CudaGraphs, GraphReplaysCapturedStreamWork) {
  const Stream stream, other;
  const Buffer<int> x(std::vector<int>(64, 0)), y(64);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaErrorInvalidValue);
  EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
  EXPECT_CUDA(cudaMemcpyAsync(y.data(), x.data(), x.num_bytes(), cudaMemcpyDeviceToDevice, stream));
  EXPECT_CUDA(launch(other, 1, 64, 0, add, x.data(), 64, 10));  // is not captured
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaStreamSynchronize(other));
  EXPECT_THAT(x.values(), Each(10));
  ASSERT_CUDA(cudaGraphInstantiate(&launchable, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  for (int round = 1; round < 4; ++round) {
    EXPECT_CUDA(cudaGraphLaunch(launchable, other));
    EXPECT_CUDA(cudaStreamSynchronize(other));
    EXPECT_THAT(y.values(), Each(10 + round));
  }
  EXPECT_CUDA(cudaGraphExecDestroy(launchable));
  EXPECT_EQ(cudaGraphLaunch(launchable, other), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorInvalidValue);

  int value = 0;
  const std::function<cudaError_t()> spoilers[] = {
      [&] { return cudaStreamSynchronize(stream); }, [&] { return cudaStreamQuery(stream); },
      [&] { return cudaMemcpyAsync(&value, x.data(), 4, cudaMemcpyDeviceToHost, stream); }};
  for (const auto& spoiler : spoilers) {
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_EQ(spoiler(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  reset();  // of the refused calls
}

TEST_P(CudaGraphs, StreamThatWaitsForCapturedEventIsCapturedToo) {
  const Stream stream, branch, outside;
  const Event fork, join;
  const Buffer<int> x(std::vector<int>(64, 0)), y(std::vector<int>(64, 0));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
  EXPECT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  EXPECT_CUDA(cudaMemcpyAsync(y.data(), x.data(), x.num_bytes(), cudaMemcpyDeviceToDevice, branch));
  EXPECT_CUDA(cudaEventRecord(join, branch));
  EXPECT_EQ(cudaEventQuery(join), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(join), cudaErrorCapturedEvent);
  EXPECT_CUDA(cudaStreamWaitEvent(stream, join, 0));
  EXPECT_CUDA(launch(stream, 1, 64, 0, add, y.data(), 64, 10));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(cudaStreamWaitEvent(outside, join, 0), cudaErrorCapturedEvent);
  ASSERT_CUDA(cudaGraphInstantiate(&launchable, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_THAT(x.values(), Each(0));
  for (int round = 1; round < 4; ++round) EXPECT_CUDA(cudaGraphLaunch(launchable, outside));
  EXPECT_CUDA(cudaGraphExecDestroy(launchable));  // the launches still run
  EXPECT_CUDA(cudaStreamSynchronize(outside));
  EXPECT_THAT(x.values(), Each(3));
  EXPECT_THAT(y.values(), Each(13));
  EXPECT_CUDA(cudaMemcpyAsync(y.data(), x.data(), x.num_bytes(), cudaMemcpyDeviceToDevice, branch));
  EXPECT_CUDA(cudaStreamSynchronize(branch));  // it is not captured any more
  EXPECT_THAT(y.values(), Each(3));
  reset();
}

TEST_P(CudaGraphs, InvalidDependenciesOfCapturesAreRejected) {
  const Stream stream, branch, other;
  const Event outside, fork, of_other;
  const Buffer<int> x(std::vector<int>(64, 0));
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaEventRecord(outside, other));
  const auto begin = [&] {
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_CUDA(launch(stream, 1, 64, 0, add, x.data(), 64, 1));
    EXPECT_CUDA(cudaEventRecord(fork, stream));
    EXPECT_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  };
  begin();  // the branch is not joined
  EXPECT_CUDA(launch(branch, 1, 64, 0, add, x.data(), 64, 1));
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  begin();
  EXPECT_EQ(cudaStreamEndCapture(branch, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(branch, outside, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  begin();
  ASSERT_CUDA(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaEventRecord(of_other, other));
  EXPECT_EQ(cudaStreamWaitEvent(stream, of_other, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(x.values(), Each(0));
  reset();
}

}}  // namespace cuda_emulation::testing

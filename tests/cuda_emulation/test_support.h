// Helpers for tests of the emulation.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <cuda_emulation/control.h>
#include <cuda_runtime.h>

namespace cuda_emulation::testing {

#define EXPECT_CUDA(call) EXPECT_EQ((call), cudaSuccess)
#define ASSERT_CUDA(call) ASSERT_EQ((call), cudaSuccess)

class Stream {
 public:
  Stream() { EXPECT_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned int flags = cudaEventDisableTiming) { EXPECT_CUDA(cudaEventCreateWithFlags(&event_, flags)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Memory of the current device.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t n) : n_(n) { EXPECT_CUDA(cudaMalloc(&data_, n * sizeof(T))); }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    EXPECT_CUDA(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() const { return data_; }
  size_t num_bytes() const { return n_ * sizeof(T); }
  std::vector<T> values() const {
    std::vector<T> result(n_);
    EXPECT_CUDA(cudaMemcpy(result.data(), data_, num_bytes(), cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  T* data_ = nullptr;
  size_t n_;
};

template <typename... Params, typename... Args>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared, void (*kernel)(Params...),
                   Args&&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

/// Tests start and end without a failed device, in lazy order, with checks enabled.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    reset();
    set_order("lazy");
    set_checks(true);
    cudaSetDevice(0);
  }
  void TearDown() override {
    set_order("lazy");
    reset();
  }

  /// Runs a kernel and synchronizes; returns the report.
  template <typename... Params, typename... Args>
  std::string run(dim3 grid, dim3 block, size_t shared, void (*kernel)(Params...), Args&&... args) {
    Stream stream;
    EXPECT_CUDA(launch(stream, grid, block, shared, kernel, std::forward<Args>(args)...));
    error_ = cudaStreamSynchronize(stream);
    return last_report();
  }
  cudaError_t error_ = cudaSuccess;
};

/// Instantiates a suite for lazy and two random orders.
class EveryOrder : public CudaTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    ASSERT_TRUE(set_order(GetParam()));
  }
  void TearDown() override {
    EXPECT_EQ(last_report(), "");
    CudaTest::TearDown();
  }
};

#define IN_EVERY_ORDER(suite)                                                                       \
  INSTANTIATE_TEST_SUITE_P(Orders, suite, ::testing::Values("lazy", "random:1", "random:20240607"), \
                           [](const auto& order) {                                                  \
                             std::string name = order.param;                                        \
                             for (char& c : name) {                                                 \
                               c = c == ':' ? '_' : c;                                              \
                             }                                                                      \
                             return name;                                                           \
                           })

}  // namespace cuda_emulation::testing

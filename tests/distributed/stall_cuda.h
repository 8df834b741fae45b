// A stream that does not go on, in tests.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>

#include <tandem/tensor/cuda.h>

namespace tandem::inline v0::distributed {

/// What `stream` is given from now on begins when this has ended.
class Stall {
 public:
  explicit Stall(const cuda::Stream& stream) {
    auto* const ended = new std::shared_future<void>(end_.get_future().share());
    EXPECT_EQ(cudaLaunchHostFunc(
                  static_cast<cudaStream_t>(stream.handle()),
                  [](void* p) { std::unique_ptr<std::shared_future<void>>(static_cast<std::shared_future<void>*>(p))->wait(); },
                  ended),
              cudaSuccess);
  }
  void end() { end_.set_value(); }

 private:
  std::promise<void> end_;  // destroying it ends the stall too
};

}  // namespace tandem::inline v0::distributed

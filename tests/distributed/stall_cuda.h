// A blocked stream and a failed GPU for tests.
#pragma once

#include <cuda_runtime.h>
#ifdef TANDEM_CUDA_EMULATED
#include <cuda_emulation/control.h>
#include <nccl.h>
#endif
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Blocks work enqueued on `stream` from now on until destroyed. Waits until earlier work is complete.
class Stall {
 public:
  explicit Stall(const cuda::Stream& stream) : passed_(stream.device()) {
    auto* const state = new State{{}, end_.get_future()};
    std::future<void> begun = state->begun.get_future();
    EXPECT_EQ(cudaLaunchHostFunc(
                  static_cast<cudaStream_t>(stream.handle()),
                  [](void* p) {
                    const std::unique_ptr<State> own(static_cast<State*>(p));
                    own->begun.set_value();
                    own->ended.wait();
                  },
                  state),
              cudaSuccess);
    passed_.record(stream);
    // Work of an emulated stream runs on the thread that waits for it, which must not be a thread of the test or of a
    // backend that holds its lock.
    waiter_ = std::thread([this] {
      try {
        passed_.synchronize();
      } catch (const Error&) {
      }
    });
    EXPECT_EQ(begun.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  ~Stall() {
    end();
    waiter_.join();
  }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

  void end() {
    if (!is_over_.exchange(true)) end_.set_value();
  }

 private:
  struct State {
    std::promise<void> begun;
    std::future<void> ended;
  };

  const cuda::Event passed_;
  std::promise<void> end_;
  std::atomic<bool> is_over_{false};
  std::thread waiter_;
};

#ifdef TANDEM_CUDA_EMULATED
/// Simulates an illegal memory access of a kernel until repaired.
inline void fail_gpu(Device device) { cuda_emulation::fail(device.index, "a kernel of the test"); }
inline void mend_gpus() { cuda_emulation::reset(); }
#endif

}}}  // namespace tandem::v0::distributed

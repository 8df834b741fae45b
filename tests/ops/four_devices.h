// The fixture of tests with several devices.
#pragma once

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing {

inline constexpr int kDevices = 4;

/// cpu .. cpu:3, or four GPUs if TANDEM_TEST_DEVICE is cuda. Fails if a test leaves memory allocated on a device.
class FourDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on(0).is_cpu() && cpu_device_count() < kDevices) set_cpu_device_count(kDevices);
    for (int i = 0; i < kDevices; ++i) {
      empty_cache(on(i));
      reset_peak_memory(on(i));
      set_memory_limit(on(i), 48 << 20);  // so that measuring bandwidths takes a moment
      before_[static_cast<size_t>(i)] = memory_stats(on(i)).allocated;
    }
  }
  void TearDown() override {
    for (int i = 0; i < kDevices; ++i) {
      set_memory_limit(on(i), 0);
      EXPECT_EQ(taken(i), 0) << on(i);
    }
  }

  static Device on(int i) { return Device(test_device().type, i); }
  /// CPU device i, whatever TANDEM_TEST_DEVICE is: for error texts that name the device.
  static Device cpu(int i) {
    if (cpu_device_count() < kDevices) set_cpu_device_count(kDevices);
    return Device(DeviceType::kCPU, i);
  }
  /// Bytes allocated on device i since the test began, and their peak.
  int64_t taken(int i) const { return memory_stats(on(i)).allocated - before_[static_cast<size_t>(i)]; }
  int64_t most_taken(int i) const { return memory_stats(on(i)).peak_allocated - before_[static_cast<size_t>(i)]; }

  /// Random values, contiguous or not, on device i.
  static Tensor random_on(int i, const Shape& shape, uint64_t seed, DType dtype = kFloat32,
                          Layout layout = Layout::kContiguous) {
    return make_tensor(random_dense(shape, seed), dtype, layout, on(i));
  }
  /// Whether `tensor` is on device i and has the bits of `expected`, which may be on any device.
  static ::testing::AssertionResult is_copy(const Tensor& tensor, const Tensor& expected, int i) {
    if (tensor.device() != on(i)) return ::testing::AssertionFailure() << "it is on " << tensor.device();
    if (tensor.shape() != expected.shape() || tensor.dtype() != expected.dtype()) {
      return ::testing::AssertionFailure() << describe(tensor) << " in place of " << describe(expected);
    }
    // GPU tensors are compared on the CPU, because a test may have filled the GPU's memory.
    const auto at = [](const Tensor& x, Device device) {
      if (x.device() == device) return x;
      const Tensor copy = empty(x.shape(), {x.dtype(), device});
      primitives::copy(x, copy);
      return copy;
    };
    const Device device = on(i).is_cpu() ? on(i) : Device();
    if (!primitives::bytes_equal(at(tensor, device), at(expected, device))) {
      return ::testing::AssertionFailure() << "values differ";
    }
    return ::testing::AssertionSuccess();
  }

 private:
  std::array<int64_t, kDevices> before_{};
};

}  // namespace tandem::testing

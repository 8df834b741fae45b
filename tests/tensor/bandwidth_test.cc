#include <tandem/tensor/bandwidth.h>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

class Bandwidth : public ::testing::Test {
 protected:
  void SetUp() override {
    set_cpu_device_count(4);
    for (int i = 0; i < 4; ++i) set_memory_limit(Device(DeviceType::kCPU, i), 12 << 20);
  }
  void TearDown() override {
    for (int i = 0; i < 4; ++i) {
      const Device device(DeviceType::kCPU, i);
      EXPECT_EQ(memory_stats(device).allocated, 0) << "measuring left something on " << device;
      set_memory_limit(device, 0);
    }
  }
};

TEST_F(Bandwidth, EachPairIsMeasuredOnce) {
  const Device here, there("cpu:1");
  const double first = device_bandwidth(here, there);
  EXPECT_GT(first, 1e6);  // a megabyte per second: any machine
  EXPECT_EQ(device_bandwidth(here, there), first) << "it was measured again";
  EXPECT_GT(device_bandwidth(there, here), 1e6);
  EXPECT_GT(device_bandwidth(here, here), 1e6);
}

TEST_F(Bandwidth, MeasurementStaysWithinFreeMemory) {
  const Device tight("cpu:2"), full("cpu:3");
  set_memory_limit(tight, 4 << 20);
  empty_cache(tight);
  reset_peak_memory(tight);
  EXPECT_GT(device_bandwidth(Device(), tight), 0);
  EXPECT_GT(memory_stats(tight).peak_allocated, 0);
  EXPECT_LE(memory_stats(tight).peak_allocated, 4 << 20);
  // With less than 3 MiB free nothing is measured or cached; a later call measures.
  set_memory_limit(full, (3 << 20) - 1);
  EXPECT_EQ(device_bandwidth(Device(), full), 0);
  set_memory_limit(full, 12 << 20);
  EXPECT_GT(device_bandwidth(Device(), full), 0);
}

TEST_F(Bandwidth, UnknownDevicesAreRejected) {
  EXPECT_THROW(static_cast<void>(device_bandwidth(Device(), Device("cpu:63"))), DeviceError);
  EXPECT_THROW(static_cast<void>(device_bandwidth(Device("cuda:99"), Device())), DeviceError);
}

}}  // namespace tandem

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>

namespace tandem { namespace {

TEST(CpuDevicesEnv, VariableDeclaresCpuDevices) {
  EXPECT_EQ(cpu_device_count(), 3);
  EXPECT_EQ(ones({3}, {kFloat32, Device("cpu:2")}).device(), Device("cpu:2"));
  EXPECT_THROW(empty({3}, {kFloat32, Device("cpu:3")}), DeviceError);
}

}}  // namespace tandem

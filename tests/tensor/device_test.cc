#include <tandem/tensor/device.h>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using testing::error_text;

TEST(Device, NamesAreParsedAndPrinted) {
  EXPECT_EQ(Device("cpu"), Device());
  EXPECT_EQ(Device("cpu:0"), Device(DeviceType::kCPU, 0));
  EXPECT_EQ(Device("cpu:31"), Device(DeviceType::kCPU, 31));
  EXPECT_EQ(Device("cuda"), Device(DeviceType::kCUDA, 0));
  EXPECT_EQ(Device("cuda:7"), Device(DeviceType::kCUDA, 7));
  EXPECT_EQ(to_string(Device("cpu:0")), "cpu");
  EXPECT_EQ(to_string(Device("cpu:3")), "cpu:3");
  EXPECT_EQ(to_string(Device("cuda")), "cuda:0");
  std::ostringstream out;
  out << Device("cuda:1");
  EXPECT_EQ(out.str(), "cuda:1");
}

TEST(Device, MalformedNamesAreRejected) {
  for (const char* text : {"", "gpu", "cpu:", "cpu:x", "cpu:-1", "cpu:1x", "cpu1", "cpu: 1", "cuda:128",
                           "cpu:99999999999", "CPU", "cpu:+1"}) {
    EXPECT_ERROR(ValueError, Device(text),
                 "Device: '" + std::string(text) + "' is not one of cpu, cpu:N, cuda, cuda:N");
  }
}

TEST(Device, CountGrowsButCannotRemoveUsedDevices) {
  EXPECT_EQ(cpu_device_count(), 1);
  set_cpu_device_count(4);
  EXPECT_EQ(cpu_device_count(), 4);
  const Tensor t = ones({3}, {kFloat32, Device("cpu:3")});
  EXPECT_EQ(t.device(), Device("cpu:3"));
  EXPECT_EQ(t.to_vector<float>(), std::vector<float>(3, 1.0f));
  set_cpu_device_count(4);  // removes no device
  EXPECT_ERROR(StateError, set_cpu_device_count(3),
               "set_cpu_device_count: 3 would remove cpu:3, where tensors hold 64 bytes");
  EXPECT_EQ(cpu_device_count(), 4);
}

TEST(Device, CountOutsideLimitsIsRejected) {
  for (int n : {0, -1, 65}) {
    EXPECT_ERROR(ValueError, set_cpu_device_count(n),
                 "set_cpu_device_count: " + std::to_string(n) + " is not in 1 .. 64");
  }
  set_cpu_device_count(64);
  empty({1}, {kFloat32, Device("cpu:63")});
  set_cpu_device_count(1);
}

TEST(Device, UnknownDevicesAreRejected) {
  set_cpu_device_count(1);
  EXPECT_ERROR(DeviceError, empty({3}, {kFloat32, Device("cpu:1")}),
               "cpu:1: there is no such device; 1 CPU device is declared, see TANDEM_CPU_DEVICES and "
               "set_cpu_device_count");
  const Device gpu = Device::cuda(99);
  const std::pair<const char*, std::function<void()>> uses[] = {
      {"empty",
       [&] {
         empty({3}, {kFloat32, gpu});
       }},
      {"device_properties", [&] { cuda::device_properties(gpu); }},
      {"current_stream", [&] { cuda::current_stream(gpu); }},
      {"side_stream", [&] { cuda::side_stream(gpu, 0); }},
      {"Stream", [&] { cuda::Stream stream(gpu); }},
      {"Event", [&] { cuda::Event event(gpu); }},
      {"Graph", [&] { cuda::Graph graph(gpu); }},
      {"synchronize", [&] { cuda::synchronize(gpu); }},
  };
  for (const auto& [name, use] : uses) {
    EXPECT_EQ(error_text<DeviceError>(use),
              cuda::is_built() ? str("cuda:99: there is no such device; ", cuda::device_count(), " GPUs are available")
                               : "cuda:99: this build of tandem has no CUDA support; build with --config=cuda")
        << name;
  }
  EXPECT_THROW(memory_stats(Device(DeviceType::kCPU, -1)), DeviceError);
  EXPECT_THROW(memory_stats(Device(DeviceType::kCPU, 256)), DeviceError);  // not cpu:0
}

}}  // namespace tandem

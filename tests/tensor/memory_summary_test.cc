#include <tandem/tensor/memory_summary.h>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;

namespace {

TEST(MemorySummary, StatisticsOfAllDevicesAreListed) {
  td::set_cpu_device_count(3);
  const td::Device device("cpu:1");
  const td::Block block = td::allocate(device, 4 << 20);
  td::deallocate(device, td::allocate(device, 6 << 20));
  td::set_memory_limit(device, 512);
  std::string gpus;
  for (int i = 0; i < td::cuda::device_count(); ++i) {
    gpus += "\ncuda:" + std::to_string(i) + "         0 B         0 B         0 B        none";
  }
  EXPECT_EQ(td::memory_summary(),
            "device   allocated        peak    reserved       limit\n"
            "cpu            0 B         0 B         0 B        none\n"
            "cpu:1      4.0 MiB    10.0 MiB    10.0 MiB       512 B\n"
            "cpu:2          0 B         0 B         0 B        none" +
                gpus);
  td::set_memory_limit(device, 0);
  td::deallocate(device, block);
}

TEST(MemorySummary, LargestNamedTensorsAreListed) {
  td::set_cpu_device_count(3);
  std::vector<std::pair<std::string, td::Tensor>> named = {{"none", td::Tensor()}};
  for (int i = 0; i < 12; ++i)
    named.emplace_back("layer" + std::to_string(i) + ".bias", td::zeros({i, 2}, {td::kFloat64}));
  named.emplace_back("head", td::zeros({100}, {td::kFloat32, td::Device("cpu:2")}));
  const std::string text = td::memory_summary(named);
  EXPECT_EQ(text.substr(text.find("\n12 named")),
            "\n12 named tensors on cpu: 1.0 KiB"
            "\n1 named tensors on cpu:2: 400 B"
            "\n  head               400 B  float32 [100] on cpu:2"
            "\n  layer11.bias       176 B  float64 [11, 2] on cpu"
            "\n  layer10.bias       160 B  float64 [10, 2] on cpu"
            "\n  layer9.bias        144 B  float64 [9, 2] on cpu"
            "\n  layer8.bias        128 B  float64 [8, 2] on cpu"
            "\n  layer7.bias        112 B  float64 [7, 2] on cpu"
            "\n  layer6.bias         96 B  float64 [6, 2] on cpu"
            "\n  layer5.bias         80 B  float64 [5, 2] on cpu"
            "\n  layer4.bias         64 B  float64 [4, 2] on cpu"
            "\n  layer3.bias         48 B  float64 [3, 2] on cpu");
}

}  // namespace

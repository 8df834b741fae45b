// The log line about the GPUs of a group.
#include <tandem/distributed/group/gpu_report.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>

namespace tandem::distributed { namespace {

Tensor cards_of(const std::vector<Tensor>& infos) {
  const int64_t bytes = infos.front().numel();
  const Tensor all = empty({static_cast<int64_t>(infos.size()), bytes}, {kUInt8});
  for (size_t i = 0; i < infos.size(); ++i) {
    std::memcpy(all.data<uint8_t>() + static_cast<int64_t>(i) * bytes, infos[i].data_ptr(), static_cast<size_t>(bytes));
  }
  return all;
}

TEST(GpuReport, IdenticalGpusAreCounted) {
  const Device gpu = Device::cuda(0);
  const cuda::Versions versions = cuda::versions();
  EXPECT_NE(versions.runtime.find('.'), std::string::npos);
  EXPECT_NE(versions.driver.find('.'), std::string::npos);
  const std::string info =
      cuda::device_properties(gpu).name + ", CUDA " + versions.runtime + ", driver for " + versions.driver;
  const Tensor mine = pack_gpu_info(gpu);
  EXPECT_EQ(describe_gpus(cards_of({mine, mine}), "1 host x 2: shm between processes", "2.27.3"),
            "2 ranks, 1 host x 2: shm between processes; nccl 2.27.3 between 2 x " + info);
}

TEST(GpuReport, DifferentGpusAreListedInRankOrder) {
  const Tensor mine = pack_gpu_info(Device::cuda(0)), other = pack_gpu_info(Device::cuda(0)),
               longest = pack_gpu_info(Device::cuda(0));
  std::fill_n(longest.data<uint8_t>(), 127, uint8_t{'x'});
  other.data<uint8_t>()[0] = '?';
  longest.data<uint8_t>()[127] = 0;
  const std::string text =
      describe_gpus(cards_of({longest, mine, longest, other}), "2 hosts x 2: gloo over eth0", "2.27.3");
  const std::string info = reinterpret_cast<const char*>(mine.data<uint8_t>());
  EXPECT_EQ(text, "4 ranks, 2 hosts x 2: gloo over eth0; nccl 2.27.3 between 2 x " + std::string(127, 'x') +
                      " and 1 x " + info + " and 1 x ?" + info.substr(1));
}

TEST(GpuReport, GpuSharedByTwoRanksIsDetected) {
  const Tensor first = pack_gpu_info(Device::cuda(0)), second = pack_gpu_info(Device::cuda(1)),
               third = pack_gpu_info(Device::cuda(0));
  EXPECT_EQ(find_shared_gpu(cards_of({first, second}), {0, 1}), "");
  const cuda::DeviceProperties& gpu = cuda::device_properties(Device::cuda(0));
  EXPECT_EQ(gpu.uuid.size(), 40U);
  const std::string found = find_shared_gpu(cards_of({second, first, third}), {2, 5, 7});
  EXPECT_EQ(found.find("ranks 5 and 7 are both on " + gpu.name + " " + gpu.uuid + " of "), 0U) << found;
  setenv("NCCL_HOSTID", "another", 1);
  const Tensor elsewhere = pack_gpu_info(Device::cuda(0));
  unsetenv("NCCL_HOSTID");
  EXPECT_EQ(find_shared_gpu(cards_of({first, elsewhere}), {0, 1}), "");
}

}}  // namespace tandem::distributed

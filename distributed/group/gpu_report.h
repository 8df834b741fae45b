// What a group's GPUs are, in one line. Private to distributed/.
#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// What a rank tells the others of its GPU, [512] uint8 on the CPU: "NVIDIA H200, CUDA 13.0, driver for 13.1" and
/// zeros; from 128 on which one it is, "GPU-b4c1... of host-7", and behind a newline what tells NCCL one host from the
/// other. Throws DeviceError.
Tensor gpu_card(Device device);

/// "4 ranks, 2 hosts x 2: gloo over eth0; nccl 2.27.3 between 4 x NVIDIA H200, CUDA 13.0, driver for 13.1", where ranks
/// differ "3 x NVIDIA H200, ... and 1 x NVIDIA A100, ...". `cards`: of all ranks, [ranks, 512]; `cpu_backend`: what its
/// CPU backend says of itself.
std::string describe_gpus(const Tensor& cards, const std::string& cpu_backend, const std::string& nccl_version);

/// "ranks 0 and 1 are both on NVIDIA H200 GPU-b4c1... of host-7", which NCCL does not do; "" where each has one of its
/// own. `ranks`: the numbers to show.
std::string find_shared_gpu(const Tensor& cards, const std::vector<int>& ranks);

}}}  // namespace tandem::v0::distributed

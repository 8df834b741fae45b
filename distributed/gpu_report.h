// What a group's GPUs are, in one line.  Private to distributed/.
#pragma once

#include <string>

#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::distributed {

/// What a rank tells the others of its GPU: "NVIDIA H200, CUDA 13.0, driver for 13.1" and zeros, [128] uint8 on the CPU.  Throws
/// DeviceError.
Tensor gpu_card(Device device);

/// "4 ranks, 2 hosts x 2: gloo over eth0; nccl 2.27.3 between 4 x NVIDIA H200, CUDA 13.0, driver for 13.1", where ranks differ
/// "3 x NVIDIA H200, ... and 1 x NVIDIA A100, ...".  `cards`: of all ranks, [ranks, 128]; `cpu_backend`: what its CPU backend says of
/// itself.
std::string describe_gpus(const Tensor& cards, const std::string& cpu_backend, const std::string& nccl_version);

}  // namespace tandem::inline v0::distributed

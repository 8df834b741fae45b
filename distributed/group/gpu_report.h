// Describes a group's GPUs in one line. Private to distributed/.
#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Information about this rank's GPU for the other ranks, [512] uint8 on the CPU. From byte 0: "NVIDIA H200, CUDA 13.0,
/// driver for 13.1" and zeros. From byte 128: the identity of the GPU, "GPU-b4c1... of host-7", a newline, and NCCL's
/// identity of the host. Throws DeviceError.
Tensor pack_gpu_info(Device device);

/// The identity in pack_gpu_info(), of which NCCL requires that it differs between ranks. Throws DeviceError.
std::string gpu_identity(Device device);

/// "4 ranks, 2 hosts x 2: gloo over eth0; nccl 2.27.3 between 4 x NVIDIA H200, CUDA 13.0, driver for 13.1"; if the GPUs
/// differ, "3 x NVIDIA H200, ... and 1 x NVIDIA A100, ...". `infos`: of all ranks, [ranks, 512]; `cpu_backend`:
/// describe() of the CPU backend.
std::string describe_gpus(const Tensor& infos, const std::string& cpu_backend, const std::string& nccl_version);

/// "ranks 0 and 1 are both on NVIDIA H200 GPU-b4c1... of host-7" if two ranks share a GPU, which NCCL does not support;
/// else "". `ranks`: the rank numbers for the text.
std::string find_shared_gpu(const Tensor& infos, const std::vector<int>& ranks);

}}}  // namespace tandem::v0::distributed

// cuDNN's handles, for the emulation of its two interfaces.
#pragma once

#include <cuda_runtime.h>
#include <cudnn.h>

struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
};

namespace cuda_emulation {

/// The handle's contents; ends the process if it does not exist.
const cudnnContext& checked_handle(cudnnHandle_t handle, const char* call);

/// Whether cuDNN computes anything; without (TANDEM_EMULATED_CUDNN=0) tandem's own kernels compute.
bool has_cudnn_engines();

}  // namespace cuda_emulation

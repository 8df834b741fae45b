// Types of the driver API, for functions found by cudaGetDriverEntryPointByVersion.
#pragma once

using CUdevice = int;
enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
};

// The driver's types, as far as its functions are asked for by name (cudaGetDriverEntryPointByVersion).
#pragma once

using CUdevice = int;
enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
};

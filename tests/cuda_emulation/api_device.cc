// Devices and errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <cuda.h>

#include <tandem/tests/cuda_emulation/runtime.h>

using cuda_emulation::Call;
using cuda_emulation::current_device;
using cuda_emulation::kDefaultDynamicShared;
using cuda_emulation::kMaxDynamicShared;
using cuda_emulation::kMaxThreads;
using cuda_emulation::kMultiprocessors;
using cuda_emulation::result;
using cuda_emulation::Runtime;

namespace {

constexpr int kSharedOfMultiprocessor = 228 << 10;
constexpr int kCacheBytes = 50 << 20;

bool is_device(int device) { return device >= 0 && device < Runtime::get().num_devices(); }

cudaError_t checked(int device) {
  if (cuda_emulation::inside_host_function()) {
    return cudaErrorNotPermitted;
  }
  return Runtime::get().num_devices() == 0 ? cudaErrorNoDevice
         : is_device(device)               ? cudaSuccess
                                           : cudaErrorInvalidDevice;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  *count = Runtime::get().num_devices();
  return result(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = checked(device); error != cudaSuccess) {
    return result(error);
  }
  cuda_emulation::set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  *device = current_device();
  return result(Runtime::get().num_devices() == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = checked(device); error != cudaSuccess || value == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = kMaxThreads; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7FFFFFFF; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(kDefaultDynamicShared); break;
    case cudaDevAttrTotalConstantMemory: *value = 65536; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported: *value = 1; break;
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    case cudaDevAttrPciBusId: *value = device + 1; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 64; break;
    case cudaDevAttrL2CacheSize: *value = kCacheBytes; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrAsyncEngineCount: *value = 2; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedOfMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(kMaxDynamicShared); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    default: return result(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (const cudaError_t error = checked(device); error != cudaSuccess || p == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  const auto value = [device](cudaDeviceAttr attribute) {
    int v = 0;
    cudaDeviceGetAttribute(&v, attribute, device);
    return v;
  };
  *p = {};
  std::snprintf(p->name, sizeof(p->name), "tandem emulated GPU");
  p->uuid.bytes[15] = static_cast<char>(device);  // equal in all processes
  p->totalGlobalMem = Runtime::get().device(device).memory.limit();
  p->sharedMemPerBlock = kDefaultDynamicShared;
  p->regsPerBlock = p->regsPerMultiprocessor = value(cudaDevAttrMaxRegistersPerBlock);
  p->warpSize = 32;
  p->maxThreadsPerBlock = kMaxThreads;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = kMaxThreads;
  p->maxThreadsDim[2] = value(cudaDevAttrMaxBlockDimZ);
  p->maxGridSize[0] = value(cudaDevAttrMaxGridDimX);
  p->maxGridSize[1] = p->maxGridSize[2] = value(cudaDevAttrMaxGridDimY);
  p->totalConstMem = static_cast<size_t>(value(cudaDevAttrTotalConstantMemory));
  p->major = value(cudaDevAttrComputeCapabilityMajor);
  p->minor = value(cudaDevAttrComputeCapabilityMinor);
  p->multiProcessorCount = kMultiprocessors;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
  p->pciBusID = value(cudaDevAttrPciBusId);
  p->asyncEngineCount = value(cudaDevAttrAsyncEngineCount);
  p->memoryBusWidth = value(cudaDevAttrGlobalMemoryBusWidth);
  p->l2CacheSize = kCacheBytes;
  p->maxThreadsPerMultiProcessor = value(cudaDevAttrMaxThreadsPerMultiProcessor);
  p->sharedMemPerMultiprocessor = kSharedOfMultiprocessor;
  p->sharedMemPerBlockOptin = kMaxDynamicShared;
  p->maxBlocksPerMultiProcessor = value(cudaDevAttrMaxBlocksPerMultiprocessor);
  p->reservedSharedMemPerBlock = static_cast<size_t>(value(cudaDevAttrReservedSharedMemoryPerBlock));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const cudaError_t error = checked(device); error != cudaSuccess || id == nullptr || length < 13) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", static_cast<unsigned int>(device + 1) & 0xFFU);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = checked(current_device()); error != cudaSuccess) {
    return result(error);
  }
  Call call;
  auto& device = call.runtime().device(current_device());
  ++call.runtime().counts.synchronizations;
  call.runtime().synchronize(call.lock(), device);
  return result(device.failed);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) {
    *least = 0;
  }
  if (greatest != nullptr) {
    *greatest = -5;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  if (!is_device(device) || !is_device(peer)) {
    return result(cudaErrorInvalidDevice);
  }
  static const bool have_none = [] {
    const char* const text = std::getenv("TANDEM_EMULATED_PEERS");
    return text != nullptr && std::atoi(text) == 0;
  }();
  *can = device != peer && !have_none ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  if (const cudaError_t error = checked(peer); error != cudaSuccess || peer == current_device() || flags != 0) {
    return result(error != cudaSuccess ? error : flags != 0 ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
  }
  Call call;
  auto& device = call.runtime().device(current_device());
  call.runtime().device(peer).has_context = true;
  return result(device.failed != cudaSuccess       ? device.failed
                : device.peers.insert(peer).second ? cudaSuccess
                                                   : cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  if (const cudaError_t error = checked(peer); error != cudaSuccess) {
    return result(error);
  }
  Call call;
  auto& device = call.runtime().device(current_device());
  call.runtime().synchronize(call.lock(), device);
  return result(device.peers.erase(peer) != 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const cudaError_t error = checked(current_device());
      error != cudaSuccess || free_bytes == nullptr || total_bytes == nullptr) {
    return result(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  Call call;
  const auto& device = call.runtime().device(current_device());
  *total_bytes = device.memory.limit();
  *free_bytes = device.memory.limit() - device.memory.live_bytes();
  return result(device.failed);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

namespace {

CUresult get_state_of_context(CUdevice device, unsigned int* flags, int* is_active) {
  if (!is_device(device) || flags == nullptr || is_active == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = 0;
  *is_active = Runtime::get().device(device).has_context ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  if (symbol == nullptr || function == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  const bool is_known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = is_known ? reinterpret_cast<void*>(&get_state_of_context) : nullptr;
  if (found != nullptr) {
    *found = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return result(is_known ? cudaSuccess : cudaErrorSymbolNotFound);
}

namespace {

cudaError_t last_error(bool forget) {
  const cudaError_t error = cuda_emulation::take_last_error(forget);
  if (!is_device(current_device())) {
    return error;
  }
  const std::lock_guard lock(Runtime::get().mutex());
  const cudaError_t failed = Runtime::get().device(current_device()).failed;
  return failed != cudaSuccess ? failed : error;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define TANDEM_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    TANDEM_ERROR(cudaSuccess, "no error"),
    TANDEM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    TANDEM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    TANDEM_ERROR(cudaErrorInitializationError, "initialization error"),
    TANDEM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TANDEM_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    TANDEM_ERROR(cudaErrorInvalidHostPointer, "invalid host pointer"),
    TANDEM_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    TANDEM_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TANDEM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TANDEM_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    TANDEM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TANDEM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    TANDEM_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    TANDEM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TANDEM_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    TANDEM_ERROR(cudaErrorNotReady, "device not ready"),
    TANDEM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TANDEM_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    TANDEM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    TANDEM_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    TANDEM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    TANDEM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    TANDEM_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    TANDEM_ERROR(cudaErrorNotSupported, "operation not supported"),
    TANDEM_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TANDEM_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    TANDEM_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    TANDEM_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    TANDEM_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TANDEM_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    TANDEM_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    TANDEM_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef TANDEM_ERROR

}  // namespace

cudaError_t cudaGetLastError() { return last_error(true); }
cudaError_t cudaPeekAtLastError() { return last_error(false); }

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) {
      return entry.name;
    }
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) {
      return entry.text;
    }
  }
  return "unrecognized error code";
}

// Devices and errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <cuda.h>

#include <tandem/tests/cuda_emulation/runtime.h>

using cuda_emulation::Call;
using cuda_emulation::current_device;
using cuda_emulation::kMaxDynamicShared;
using cuda_emulation::kMaxThreads;
using cuda_emulation::kMultiprocessors;
using cuda_emulation::result;
using cuda_emulation::Runtime;

namespace {

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
    case cudaDevAttrMaxThreadsPerBlock: *value = kMaxThreads; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(kMaxDynamicShared); break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrEccEnabled: *value = 0; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 64; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrAsyncEngineCount: *value = 2; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
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
  *p = {};
  std::snprintf(p->name, sizeof(p->name), "tandem emulated GPU");
  p->uuid.bytes[15] = static_cast<char>(device);  // equal in all processes
  p->totalGlobalMem = Runtime::get().device(device).memory.limit();
  p->major = 9;
  p->minor = 0;
  p->multiProcessorCount = kMultiprocessors;
  p->l2CacheSize = 50 << 20;
  p->sharedMemPerBlockOptin = 227 << 10;
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
    TANDEM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TANDEM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    TANDEM_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    TANDEM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TANDEM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    TANDEM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TANDEM_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    TANDEM_ERROR(cudaErrorNotReady, "device not ready"),
    TANDEM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TANDEM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
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
};
#undef TANDEM_ERROR

}  // namespace

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_emulation::take_last_error();
  if (!is_device(current_device())) {
    return error;
  }
  const std::lock_guard lock(Runtime::get().mutex());
  const cudaError_t failed = Runtime::get().device(current_device()).failed;
  return failed != cudaSuccess ? failed : error;
}

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

#include <cuda.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/cuda_primitives.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// Called before the first CUDA call. With lazy loading, the first launch of a kernel may wait, while it holds CUDA's
/// lock, for a GPU on which an NCCL kernel waits for another rank of this process; that rank waits for the same lock.
/// So all kernels are loaded at the start.
void load_kernels_eagerly() {
  static const int status = setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // a value set by the user has priority
  static_cast<void>(status);
}

/// The GPUs visible to the process, read once.
struct Devices {
  cudaError_t status = cudaSuccess;  // of cudaGetDeviceCount
  std::vector<DeviceProperties> properties;

  /// UUID in the format of nvidia-smi.
  static std::string text_of(const char (&bytes)[16]) {
    std::string text = "GPU-";
    for (size_t i = 0; i < 16; ++i) {
      char digits[4];
      std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
      text += str(i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", digits);
    }
    return text;
  }

  Devices() {
    load_kernels_eagerly();
    int count = 0;
    status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // clear: not an error of the next call
      return;
    }
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp found;
      TANDEM_CUDA_CHECK(cudaGetDeviceProperties(&found, i));
      properties.push_back({.name = found.name,
                            .uuid = text_of(found.uuid.bytes),
                            .compute_major = found.major,
                            .compute_minor = found.minor,
                            .num_multiprocessors = found.multiProcessorCount,
                            .memory_bytes = static_cast<int64_t>(found.totalGlobalMem),
                            .l2_bytes = found.l2CacheSize,
                            .shared_bytes = static_cast<int64_t>(found.sharedMemPerBlockOptin)});
    }
  }
};

const Devices& devices() {
  static const Devices* const found = new Devices;
  return *found;
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  static_cast<void>(cudaGetLastError());  // clear: reported here
  throw BackendError(str(call, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), "):"), status);
}

bool has_context(Device device) noexcept {
  // Not linked to the driver, so that programs also start on machines without one.
  using GetState = CUresult (*)(CUdevice, unsigned int* flags, int* is_active);
  static const GetState get_state = [] {
    load_kernels_eagerly();
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    constexpr unsigned int kSinceVersion = 7000;
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, kSinceVersion,
                                                                cudaEnableDefault, &result);
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());  // clear: not an error of the next call
    return result == cudaDriverEntryPointSuccess ? reinterpret_cast<GetState>(found) : nullptr;
  }();
  unsigned int flags = 0;
  int is_active = 1;  // if unknown
  if (get_state != nullptr && get_state(device.index, &flags, &is_active) != CUDA_SUCCESS) is_active = 0;
  return is_active != 0;
}

bool is_built() { return true; }

int device_count() { return static_cast<int>(devices().properties.size()); }

void check_device(Device device) {
  TANDEM_CHECK(DeviceError, !device.is_cpu(), device, ": is not a GPU");
  const int count = device_count();
  if (device.index >= 0 && device.index < count) [[likely]]
    return;
  const cudaError_t status = devices().status;
  // CUDA also returns this status if there is no driver.
  TANDEM_CHECK(DeviceError, status != cudaErrorInsufficientDriver, device,
               ": this machine has no NVIDIA driver, or one too old for this build of tandem");
  TANDEM_CHECK(DeviceError, status == cudaSuccess, device, ": no usable GPU: ", cudaGetErrorString(status), " (",
               cudaGetErrorName(status), ")");
  throw DeviceError(with_module_scope(
      str(device, ": there is no such device; ", count, count == 1 ? " GPU is" : " GPUs are", " available")));
}

bool can_access_peer(Device device, Device memory) {
  if (device == memory) return true;
  static std::mutex* const mutex = new std::mutex;
  static auto* const known = new std::map<std::pair<int8_t, int8_t>, bool>;
  std::lock_guard lock(*mutex);
  const std::pair pair(device.index, memory.index);
  if (const auto found = known->find(pair); found != known->end()) return found->second;
  int can = 0;
  TANDEM_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, device.index, memory.index));
  if (can != 0) {
    const DeviceGuard guard(device);
    const cudaError_t status = cudaDeviceEnablePeerAccess(memory.index, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
    } else {
      check(status, "cudaDeviceEnablePeerAccess");
    }
  }
  return (*known)[pair] = can != 0;
}

const DeviceProperties& device_properties(Device device) {
  check_device(device);
  return devices().properties[static_cast<size_t>(device.index)];
}

Versions versions() {
  const auto text = [](int version) { return str(version / 1000, ".", version % 1000 / 10); };
  int runtime = 0, driver = 0;
  TANDEM_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  TANDEM_CUDA_CHECK(cudaDriverGetVersion(&driver));
  return {text(runtime), text(driver)};
}

void set_allow_tf32(bool allow) { RankContext::current().allow_tf32 = allow; }
bool allow_tf32() { return RankContext::current().allow_tf32; }

}}}  // namespace tandem::v0::cuda

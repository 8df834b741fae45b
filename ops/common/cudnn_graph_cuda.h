// cuDNN's failures, handles, and descriptors of its graph API. Private to ops/.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// A status of cuDNN that is not CUDNN_STATUS_SUCCESS, as text.
struct CudnnFailure {
  std::string reason;
};

/// Throws CudnnFailure unless the call succeeded.
inline void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char details[256] = "";
  cudnnGetLastErrorString(details, sizeof(details));
  throw CudnnFailure{str(call, ": ", cudnnGetErrorString(status), details[0] != '\0' ? ", " : "", details)};
}
#define TANDEM_CUDNN_CHECK(call) check_cudnn((call), #call)

/// The handle of one GPU, and the plans of a family of operations. The mutex is held while they are in use, because a
/// handle has one stream at a time.
template <class Plans>
struct CudnnHandle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  Plans plans;

  static CudnnHandle& of(Device device) {
    // Never destroyed: the driver may be unloaded first.
    static CudnnHandle* const handles = new CudnnHandle[static_cast<size_t>(device_count())];
    return handles[device.index];
  }
};

/// Owns a descriptor. Its functions throw CudnnFailure.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    TANDEM_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &descriptor_));
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnDescriptor() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    TANDEM_CUDNN_CHECK(cudnnBackendSetAttribute(descriptor_, name, type, count, values));
  }
  void set(cudnnBackendAttributeName_t name, std::initializer_list<int64_t> values) {
    set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.begin());
  }
  void set(cudnnBackendAttributeName_t name, int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) { set(name, CUDNN_TYPE_DATA_TYPE, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  void set(cudnnBackendAttributeName_t name, std::initializer_list<const CudnnDescriptor*> values) {
    std::vector<cudnnBackendDescriptor_t> pointers;
    for (const CudnnDescriptor* value : values) pointers.push_back(value->descriptor_);
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(pointers.size()), pointers.data());
  }
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value) { set(name, CUDNN_TYPE_HANDLE, 1, &value); }
  void finalize() { TANDEM_CUDNN_CHECK(cudnnBackendFinalize(descriptor_)); }

  /// The values of an attribute, at most `most`.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most) const {
    std::vector<T> all(static_cast<size_t>(most));
    int64_t count = 0;
    TANDEM_CUDNN_CHECK(cudnnBackendGetAttribute(descriptor_, name, type, most, &count, all.data()));
    all.resize(static_cast<size_t>(std::min(most, count)));
    return all;
  }
  int64_t integer(cudnnBackendAttributeName_t name) const { return values<int64_t>(name, CUDNN_TYPE_INT64, 1).at(0); }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}}}  // namespace tandem::v0::cuda

// cuDNN's handles and descriptors, for the emulation of its interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <cudnn.h>

#include <tandem/tests/cuda_emulation/library.h>

struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
};

namespace cuda_emulation {

/// The handle's contents; ends the process if it does not exist.
const cudnnContext& checked_handle(cudnnHandle_t handle, const char* call);

/// Whether cuDNN computes anything; without (TANDEM_EMULATED_CUDNN=0) tandem's own kernels compute.
bool has_cudnn_engines();

inline int64_t bytes_of(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
std::vector<double> load_elements(cudnnDataType_t type, const void* data, size_t count);
void store_elements(cudnnDataType_t type, const std::vector<double>& values, void* data);

namespace cudnn_objects {

/// Ends the process: a call violates a documented rule.
[[noreturn]] inline void fault(const std::string& text) { end_process("cuDNN: " + text); }

// The handles and descriptors that exist.
void insert(const void* object);
void check(const void* object, const char* call);  ///< ends the process if it does not exist
void erase(const void* object);

template <class T>
T& checked(T* object, const char* call) {
  check(object, call);
  return *object;
}
template <class T>
void add(T** result, T* object) {
  insert(object);
  *result = object;
}
template <class T>
cudnnStatus_t destroy(T* object, const char* call) {
  check(object, call);
  erase(object);
  delete object;
  return static_cast<cudnnStatus_t>(record_library_call(call));
}

}  // namespace cudnn_objects

}  // namespace cuda_emulation

/// Records a call; returns from the function if the call is to fail.
#define TANDEM_RECORD_AS(name)                                                     \
  if (const int status = ::cuda_emulation::record_library_call(name); status != 0) \
  return static_cast<cudnnStatus_t>(status)
#define TANDEM_RECORD() TANDEM_RECORD_AS(__func__)

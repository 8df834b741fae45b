// Functions shared by the emulated libraries: cuBLASLt, cuDNN and NCCL.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <cuda_runtime.h>

namespace cuda_emulation {

/// Ends the process: a call violates a documented rule of a library.
[[noreturn]] void end_process(const std::string& text);

/// Records a call for library_calls(). Returns the status set by fail_library_call(), 0 for none.
int record_library_call(const std::string& call);

/// Ends the process unless the `num_bytes` at p are inside a live block of the device, and p is aligned.
void check_device_memory(const std::string& what, const void* p, size_t num_bytes, size_t alignment, int device);

/// Ends the process if p is device memory.
void check_host_memory(const std::string& what, const void* p);

/// Ends the process if two ranges overlap.
void check_disjoint(const std::string& what_a, const void* a, size_t a_bytes, const std::string& what_b, const void* b,
                    size_t b_bytes);

/// Queues the computation of a library call: a task of the stream that runs where kernels run.
void compute_on(cudaStream_t stream, std::function<void()> work);

/// The device of a stream; ends the process if it does not exist.
int device_of(const std::string& call, cudaStream_t stream);

}  // namespace cuda_emulation

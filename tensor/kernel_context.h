// KernelContext: the argument that every kernel takes in addition to pointers, sizes and strides.
#pragma once

#include <tandem/base/error.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// The device and stream on which a kernel runs. Kernels never allocate, validate arguments or synchronize; they divide
/// work by parallel_for, whose pieces depend only on sizes, or over the threads of a GPU.
///
/// An operator function gets its context from ops::check_same_device; the context's `span` is the operation's trace
/// span.
struct KernelContext {
  Device device;           ///< device of the kernel's operands
  TraceSpan span = {};     ///< trace span of the operation
  void* stream = nullptr;  ///< cudaStream_t on a GPU, else null
};

/// The calling thread's current cudaStream_t on `device`; null for a CPU device. Throws DeviceError for a GPU that does
/// not exist.
inline void* stream_for(Device device) { return device.is_cpu() ? nullptr : cuda::current_stream(device).handle(); }

/// A context without a trace span, for kernels of backward.
inline KernelContext kernel_context(Device device) { return {device, {}, stream_for(device)}; }

/// Context of a kernel that exists only for CPUs: throws DeviceError for any other device.
struct CpuContext : KernelContext {
  /// A context without a trace span.
  CpuContext(Device on) : KernelContext{on} { check_device(); }
  /// The context of an operation.
  CpuContext(const KernelContext& context) : KernelContext{context.device} { check_device(); }

 private:
  void check_device() const {
    TANDEM_CHECK(DeviceError, device.is_cpu(), device,
                 ": this operation has no GPU kernel; move its tensors to the CPU");
  }
};

#ifdef TANDEM_WITH_CUDA
/// Declares kernels once for each kind of device of this build: in namespace cpu and, with CUDA, in namespace cuda.
#define TANDEM_KERNELS(...) \
  namespace cpu {           \
  __VA_ARGS__               \
  }                         \
  namespace cuda {          \
  __VA_ARGS__               \
  }
#else
/// Declares kernels once for each kind of device of this build: in namespace cpu and, with CUDA, in namespace cuda.
#define TANDEM_KERNELS(...) \
  namespace cpu {           \
  __VA_ARGS__               \
  }
#endif

#ifdef TANDEM_WITH_CUDA
/// Calls the kernel `name` for the context's device; `context` is evaluated once.
#define TANDEM_KERNEL(context, name, ...)                                                       \
  [&](const KernelContext& once) {                                                              \
    return once.device.is_cpu() ? cpu::name(once, __VA_ARGS__) : cuda::name(once, __VA_ARGS__); \
  }(context)
#else
/// Calls the kernel `name` for the context's device; `context` is evaluated once.
#define TANDEM_KERNEL(context, name, ...) cpu::name(context, __VA_ARGS__)
#endif

}}  // namespace tandem::v0

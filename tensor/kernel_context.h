// What a kernel is given besides pointers, sizes and strides.
#pragma once

#include <tandem/base/error.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// The device on which a kernel runs.  Kernels never allocate, validate or synchronise; they split work with
/// parallel_for, whose pieces depend on sizes alone, or over the threads of a GPU.
///
/// What ops::check_same_device makes for an operation's front lives as long as the front does and carries its span in the
/// trace.
struct KernelContext {
  Device device;
  TraceSpan span = {};
  void* stream = nullptr;  ///< of a GPU: its cudaStream_t
};

/// Where the calling thread's kernels on `device` queue: null for a CPU.  Throws DeviceError for a GPU that is not there.
inline void* stream_for(Device device) { return device.is_cpu() ? nullptr : cuda::current_stream(device).handle(); }

/// A context without a span: for what an operation's gradient starts.
inline KernelContext kernel_context(Device device) { return {device, {}, stream_for(device)}; }

/// What a kernel takes that exists for CPUs alone: throws DeviceError for another device.
struct CpuContext : KernelContext {
  CpuContext(Device on) : KernelContext{on} { check(); }
  CpuContext(const KernelContext& context) : KernelContext{context.device} { check(); }

 private:
  void check() const {
    TANDEM_CHECK(DeviceError, device.is_cpu(), device,
                 ": there is no kernel for GPUs yet; move the operands to the CPU");
  }
};

/// Declares kernels for every kind of device that this build has: what a family's kernels' header says once.
#ifdef TANDEM_WITH_CUDA
#define TANDEM_KERNELS(...) \
  namespace cpu {           \
  __VA_ARGS__               \
  }                         \
  namespace cuda {          \
  __VA_ARGS__               \
  }
#else
#define TANDEM_KERNELS(...) \
  namespace cpu {           \
  __VA_ARGS__               \
  }
#endif

/// Calls the kernel of that name for the context's device; `context` is evaluated once.
#ifdef TANDEM_WITH_CUDA
#define TANDEM_KERNEL(context, name, ...)                                                       \
  [&](const KernelContext& once) {                                                              \
    return once.device.is_cpu() ? cpu::name(once, __VA_ARGS__) : cuda::name(once, __VA_ARGS__); \
  }(context)
#else
#define TANDEM_KERNEL(context, name, ...) cpu::name(context, __VA_ARGS__)
#endif

}}  // namespace tandem::v0

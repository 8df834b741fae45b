// What a kernel is given besides pointers, sizes and strides.
#pragma once

#include <tandem/tensor/device.h>

namespace tandem::inline v0 {

/// The device on which a kernel runs.  Kernels never allocate, validate or synchronise; they split work with
/// parallel_for, whose pieces depend on sizes alone.  Streams join here with the first device that has them.
struct KernelContext {
  Device device;
};

}  // namespace tandem::inline v0

// What a kernel is given besides pointers, sizes and strides.
#pragma once

#include <tandem/base/trace.h>
#include <tandem/tensor/device.h>

namespace tandem::inline v0 {

/// The device on which a kernel runs.  Kernels never allocate, validate or synchronise; they split work with
/// parallel_for, whose pieces depend on sizes alone.  Streams join here with the first device that has them.
///
/// What ops::check_same_device makes for an operation's front lives as long as the front does and carries its span in the
/// trace.
struct KernelContext {
  Device device;
  TraceSpan span = {};
};

}  // namespace tandem::inline v0

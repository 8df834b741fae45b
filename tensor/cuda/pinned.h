// Copies between pageable CPU memory and GPU memory, staged through pinned memory. Private to tensor/.
#pragma once

#include <cstdint>

#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Copies between CPU and GPU on the GPU's current stream, and returns when the copy has finished. Large copies are
/// divided into pieces and use two pinned blocks alternately: the GPU transfers one while the CPU fills or empties the
/// other.
void copy_pageable(Device gpu, void* out, const void* src, int64_t num_bytes, bool to_gpu);

/// Bytes of pinned memory that the process holds for copies.
int64_t pinned_bytes();

}}}  // namespace tandem::v0::cuda

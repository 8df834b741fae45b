// Copies between the CPU's ordinary memory and a GPU's through pinned memory, which the GPU reads and writes by itself.  Private to
// tensor/.
#pragma once

#include <cstdint>

#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Copies from the CPU to a GPU, or from there, in the order of its current stream, and returns when the data is there.
/// Large copies go in pieces through two blocks of pinned memory: while the GPU moves one, the CPU fills or empties the other.
void copy_pageable(Device gpu, void* out, const void* src, int64_t num_bytes, bool to_gpu);

/// Pinned memory that the process keeps for such copies.
int64_t pinned_bytes();

}}}  // namespace tandem::v0::cuda

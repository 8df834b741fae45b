// What a GPU does without tandem: the peers of the rows.
#pragma once

#include <cstdint>

#include <tandem/tensor/device.h>
#include <tandem/tensor/dtype.h>

namespace tandem::benchmarks {

/// GB/s of cudaMemcpyAsync between a GPU and the CPU's pinned memory, or what malloc gave; the best of several.
double raw_copy(Device gpu, int64_t num_bytes, bool to_gpu, bool is_pinned);
/// Milliseconds of an n x n x n product by the fastest of the algorithms that cuBLASLt proposes; 0 in the emulation.
double fastest_product(Device gpu, DType dtype, int64_t n);

}  // namespace tandem::benchmarks

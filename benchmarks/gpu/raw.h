// What a GPU does without tandem: the peers of the rows.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/benchmarks/support/report.h>
#include <tandem/tensor/tensor.h>

namespace tandem::benchmarks {

/// What the driver and CUDA's libraries report: the GPU's limits, clocks and caches, and versions.
Json gpu_properties(Device gpu);
/// GB/s of cudaMemcpyAsync between a GPU and the CPU's pinned memory, or what malloc gave; the best of several.
double raw_copy(Device gpu, int64_t num_bytes, bool to_gpu, bool is_pinned);
/// Milliseconds of a call of its argument, which gets the call's number.
using TimeCalls = std::function<double(const std::function<void(int call)>&)>;
/// Milliseconds, as `time` measures them, of a b^T by the fastest of the algorithms that cuBLASLt proposes; 0 in the emulation.
/// Square matrices; the calls take those of `a` and `b` in turn.
double fastest_product(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const TimeCalls& time);

}  // namespace tandem::benchmarks

// Baselines measured with CUDA and cuBLASLt directly, without tandem's operations.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/benchmarks/support/report.h>
#include <tandem/tensor/tensor.h>

namespace tandem::benchmarks {

/// The GPU's limits, clocks and cache sizes, and the versions of driver and libraries.
Json gpu_properties(Device gpu);
/// GB/s of cudaMemcpyAsync between the GPU and host memory, pinned or pageable; the best of several calls.
double memcpy_gb_per_s(Device gpu, int64_t num_bytes, bool to_gpu, bool is_pinned);
/// Returns the milliseconds per call of its argument, which receives the index of the call.
using TimeCalls = std::function<double(const std::function<void(int call)>&)>;
/// Milliseconds of a b^T with the fastest algorithm that cuBLASLt's heuristic proposes, measured by `time`; 0 in the
/// emulation. Call i uses the square matrices a[i % a.size()] and b[i % b.size()].
double fastest_cublaslt_ms(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const TimeCalls& time);

}  // namespace tandem::benchmarks

// The CPU's model and the measured peak rates of one core.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::benchmarks {

/// The model name in /proc/cpuinfo, or "unknown".
std::string cpu_model();

/// Peak float32 rate of the calling core in GFLOP/s (two per multiply-add): the best of a few short runs with the
/// widest vectors of the CPU.
double fma_peak_gflops();

/// Copy rate of the calling core in GB/s, counting bytes read and bytes written: the best of a few runs. The two blocks
/// have `num_bytes` in total, so small blocks stay in caches.
double copy_gb_per_s(int64_t num_bytes);

}  // namespace tandem::benchmarks

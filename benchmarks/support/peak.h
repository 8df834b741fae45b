// The machine beside a figure: its CPU and what one of its cores can do.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::benchmarks {

/// The model name in /proc/cpuinfo, "unknown" where there is none.
std::string cpu_model();

/// float32 multiply-adds that the calling core completes, in 10^9 operations per second (two per multiply-add): the best of
/// a few short runs with the widest vectors that the CPU has.
double fma_peak_gflops();

/// 10^9 bytes per second, read and written ones both counted, at which the calling core copies between two blocks that are
/// `num_bytes` long together: the best of a few runs.  Small blocks stay in caches.
double copy_gb_per_s(int64_t num_bytes);

}  // namespace tandem::benchmarks

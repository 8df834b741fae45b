// The machine beside a figure: its CPU and what one of its cores can do.
#pragma once

#include <string>

namespace tandem::benchmarks {

/// The model name in /proc/cpuinfo, "unknown" where there is none.
std::string cpu_model();

/// float32 multiply-adds that the calling core completes, in 10^9 operations per second (two per multiply-add): the best of
/// a few short runs with the widest vectors that the CPU has.
double fma_peak_gflops();

}  // namespace tandem::benchmarks

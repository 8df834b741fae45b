// Multiply-adds with AVX-512, for peak.cc.
#pragma once

#include <cstdint>

namespace tandem::benchmarks {

/// Runs `rounds` times 12 independent multiply-adds of 16 floats; returns the number of operations. Needs AVX-512.
double fma_rounds_avx512(int64_t rounds);

}  // namespace tandem::benchmarks

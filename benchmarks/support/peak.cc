#include <tandem/benchmarks/support/peak.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>

#if defined(__x86_64__)
#include <tandem/benchmarks/support/peak_avx512.h>
#endif

namespace tandem::benchmarks {

namespace {

constexpr int64_t kRounds = 2'000'000;

/// 12 independent chains of 8 lanes: enough to hide the latency of two units.
double run_portable(int64_t rounds) {
  constexpr int kLanes = 96;
  float sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = static_cast<float>(i);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kLanes; ++i) sums[i] = std::fma(sums[i], 0.9999f, 0.0001f);
  }
  volatile float kept = 0;  // the work must not be optimised away
  for (const float sum : sums) kept = kept + sum;
  return 2.0 * kLanes * static_cast<double>(rounds);
}

double run(int64_t rounds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return fma_rounds_avx512(rounds);
#endif
  return run_portable(rounds);
}

}  // namespace

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

double fma_peak_gflops() {
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    const double operations = run(kRounds);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, operations / took.count() * 1e-9);
  }
  return best;
}

}  // namespace tandem::benchmarks

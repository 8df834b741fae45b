#include <tandem/benchmarks/support/peak.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>

#if defined(__x86_64__)
#include <tandem/base/macros.h>
#include <tandem/benchmarks/support/peak_avx512.h>
#endif

namespace tandem::benchmarks {

namespace {

constexpr int64_t kRounds = 2'000'000;

/// 12 independent chains of 8-wide vectors: enough to hide the latency of two FMA units.
double run_portable(int64_t rounds) {
  constexpr int kFloats = 96;
  float sums[kFloats];
  for (int i = 0; i < kFloats; ++i) sums[i] = static_cast<float>(i);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kFloats; ++i) sums[i] = std::fma(sums[i], 0.9999f, 0.0001f);
  }
  volatile float kept = 0;  // keeps the compiler from removing the loop
  for (const float sum : sums) kept = kept + sum;
  return 2.0 * kFloats * static_cast<double>(rounds);
}

/// Floats on huge pages if available, like large tensors.
class Block {
 public:
  explicit Block(int64_t count) {
    constexpr size_t kHugePage = 2 << 20;
    const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
    data_.reset(static_cast<float*>(std::aligned_alloc(kHugePage, bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    madvise(data_.get(), bytes, MADV_HUGEPAGE);
    std::fill_n(data_.get(), count, 1.0f);
  }
  float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
};

/// memcpy uses non-temporal stores for large blocks, a loop does not; either may be faster. The loop adds 1 so that the
/// compiler does not turn it into memcpy.
void copy_block(const float* from, float* to, int64_t count, bool use_memcpy) {
  if (use_memcpy) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    TANDEM_IVDEP
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] + 1;
  }
  asm volatile("" : : "r"(to) : "memory");  // keeps the compiler from removing the copy
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

double copy_gb_per_s(int64_t num_bytes) {
  constexpr int64_t kBytesPerRun = 1 << 26;
  const int64_t count = std::max<int64_t>(num_bytes / 8, 16);  // floats of a block
  const int64_t copies = std::max<int64_t>(1, kBytesPerRun / (8 * count));
  const Block from(count), to(count);
  double best = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < copies; ++i) copy_block(from.data(), to.data(), count, repeat % 2 == 0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 8e-9 * static_cast<double>(count) * static_cast<double>(copies) / took.count());
  }
  return best;
}

}  // namespace tandem::benchmarks

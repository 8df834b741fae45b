// Kernels of random tensors.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem::inline v0 {

/// floor(word * range / 2^64): an integer in [0, range).
inline uint64_t scale_to_range(uint64_t word, uint64_t range) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * range) >> 64);
}

/// The uniform values that ops/random.h documents.
inline float uniform_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
inline double uniform_double(uint32_t first, uint32_t second) {
  return (static_cast<double>(first >> 5) * 0x1p26 + static_cast<double>(second >> 6)) * 0x1p-53;
}

/// Words of the stream that one value takes.
constexpr int64_t words_per_uniform(DType dtype) { return dtype == kFloat64 ? 2 : 1; }

namespace cpu {

/// n values, as ops/random.h says; out row-major.
void uniform(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, void* out);
void normal(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, void* out);
/// low + an integer in [0, range); range 0 stands for 2^64.  Integer dtypes.
void integers(const KernelContext& context, DType dtype, PhiloxState state, int64_t low, uint64_t range, int64_t n,
              void* out);
void permutation(const KernelContext& context, PhiloxState state, int64_t n, int64_t* out);
/// The position of the first probability outside [0, 1], or -1.
int64_t find_bad_probability(const KernelContext& context, DType dtype, int64_t n, const void* p);
void bernoulli(const KernelContext& context, DType dtype, PhiloxState state, int64_t n, const void* p, void* out);
/// What is wrong with the first bad row of weights [rows, classes].
struct BadRow {
  int64_t row = -1;       ///< -1: all rows can be drawn from
  int64_t position = -1;  ///< of a negative or not finite number; -1: there are too few positive ones
  int64_t positive = 0;   ///< how many there are
};
/// The first row that holds a negative or not finite number, or fewer than `needed` positive ones.
BadRow find_bad_row(const KernelContext& context, DType dtype, int64_t rows, int64_t classes, int64_t needed,
                    const void* weights);
/// Samples as ops/random.h says; out [rows, samples].  workspace: rows x classes float64.
void multinomial(const KernelContext& context, DType dtype, PhiloxState state, int64_t rows, int64_t classes,
                 int64_t samples, bool replacement, const void* weights, double* workspace, int64_t* out);
/// out[i] = word i >= threshold ? x[i] * scale : 0.
void dropout(const KernelContext& context, DType dtype, PhiloxState state, uint64_t threshold, double scale, int64_t n,
             const void* x, void* out);

}  // namespace cpu
}  // namespace tandem::inline v0

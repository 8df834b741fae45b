// Maximum and sum of exponentials of a row, one block per row, for softmax and the losses. Private to the *.cu files of
// ops/.
#pragma once

#include <cstdint>
#include <limits>

#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// The maximum of a row, and the sum of exp(x - maximum).
template <class C>
struct RowSum {
  C max;
  C sum;
};

/// A sum whose error does not grow with the number of terms (W. Kahan, "Further remarks on reducing truncation errors",
/// 1965).
template <class C>
struct CompensatedSum {
  C sum = 0;
  C excess = 0;  ///< of sum
  __device__ void add(C x) {
    const C term = x - excess, next = sum + term;
    excess = (next - sum) - term;
    sum = next;
  }
};

/// Elements i to i + kPack - 1 of a row, with `step` between elements, 1 if kPack is not 1.
template <int kPack, class T>
__device__ Pack<T, kPack> load_of_row(const T* row, int64_t i, int64_t step) {
  return load_pack<kPack>(row + (kPack == 1 ? i * step : i), kPack);
}
template <int kPack, class T>
__device__ void store_to_row(T* row, int64_t i, int64_t step, const Pack<T, kPack>& values) {
  store_pack(row + (kPack == 1 ? i * step : i), values, kPack);
}

/// The RowSum of a row of n elements, a multiple of kPack, returned to all threads of the block. Each element is read
/// once.
template <int kPack, class T>
__device__ RowSum<Accumulator<T>> sum_of_exponentials(const T* row, int64_t n, int64_t step) {
  using C = Accumulator<T>;
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  C max = kNone;
  CompensatedSum<C> total;
  for (int64_t begin = threadIdx.x * kPack; begin < n; begin += blockDim.x * kPack) {
    const auto x = load_of_row<kPack>(row, begin, step);
    C largest = max;
#pragma unroll
    for (int v = 0; v < kPack; ++v) largest = Larger()(largest, static_cast<C>(x.values[v]));
    if (largest == kNone) continue;  // -infinity - -infinity would be NaN
    if (max != largest) {
      const C scale = exp_for<T>(max - largest);
      total = {total.sum * scale, total.excess * scale};
    }
    max = largest;
    C sum = 0;
#pragma unroll
    for (int v = 0; v < kPack; ++v) sum += exp_for<T>(static_cast<C>(x.values[v]) - max);
    total.add(sum);
  }
  const C largest = block_reduce(max, kNone, Larger());
  return {largest, block_reduce(total.sum * exp_for<T>(max - largest), C{0}, Plus())};
}

__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

}}}  // namespace tandem::v0::cuda

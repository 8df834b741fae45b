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

/// The RowSum of element(0) .. element(n - 1), returned to all threads of the block.
template <class C, class Element>
__device__ RowSum<C> sum_of_exponentials(int64_t n, Element element) {
  C max = -std::numeric_limits<C>::infinity();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) max = Larger()(max, element(i));
  max = block_reduce(max, -std::numeric_limits<C>::infinity(), Larger());
  C sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += exp_element(element(i) - max);
  return {max, block_reduce(sum, C{0}, Plus())};
}

/// The RowSum of a row of contiguous elements, which are read once, kPack by one access; n is a multiple of kPack.
template <class C, int kPack, class T>
__device__ RowSum<C> sum_of_exponentials(const T* row, int64_t n) {
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  C max = kNone, sum = 0;
  for (int64_t begin = threadIdx.x * kPack; begin < n; begin += blockDim.x * kPack) {
    const auto x = load_pack<kPack>(row + begin, kPack);
    C largest = max;
#pragma unroll
    for (int v = 0; v < kPack; ++v) largest = Larger()(largest, static_cast<C>(x.values[v]));
    if (largest == kNone) continue;  // -infinity - -infinity would be NaN
    if (max != largest) sum *= exp_element(max - largest);
    max = largest;
#pragma unroll
    for (int v = 0; v < kPack; ++v) sum += exp_element(static_cast<C>(x.values[v]) - max);
  }
  const C largest = block_reduce(max, kNone, Larger());
  return {largest, block_reduce(sum * exp_element(max - largest), C{0}, Plus())};
}

__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

}}}  // namespace tandem::v0::cuda

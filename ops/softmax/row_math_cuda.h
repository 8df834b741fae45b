// Maximum and sum of exponentials of a row, one block per row, for softmax and the losses. Private to the *.cu files of
// ops/.
#pragma once

#include <cstdint>
#include <limits>

#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/tensor/cuda/block.h>

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

__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

}}}  // namespace tandem::v0::cuda

// GPU kernel of minima and maxima: one block per row; one thread per column if there are many columns.
#include <tandem/ops/common/order_key.h>
#include <tandem/ops/reduce/reduce_kernels.h>
#include <tandem/tensor/cuda/block.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kManyColumns = 4096;

/// The key of an element and its index; no element if the index is negative.
template <class Key>
struct Candidate {
  Key key;
  int64_t index;

  __device__ bool beats(const Candidate& other) const {
    if (other.index < 0 || index < 0) return other.index < 0;
    return key > other.key || (key == other.key && index < other.index);
  }
};

/// The best candidate of a block, returned to all of its threads.
template <class Key>
__device__ Candidate<Key> best_of_block(Candidate<Key> mine) {
  __shared__ Key keys[kMaxRowThreads];
  __shared__ int64_t indices[kMaxRowThreads];
  __syncthreads();
  keys[threadIdx.x] = mine.key;
  indices[threadIdx.x] = mine.index;
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) {
      const Candidate<Key> other{keys[threadIdx.x + width], indices[threadIdx.x + width]};
      if (other.beats({keys[threadIdx.x], indices[threadIdx.x]})) {
        keys[threadIdx.x] = other.key;
        indices[threadIdx.x] = other.index;
      }
    }
    __syncthreads();
  }
  return {keys[0], indices[0]};
}

template <class T>
struct Extremum {
  ReduceSizes sizes;
  bool largest;
  const T* in;
  T* values;
  int64_t* indices;

  /// The first element of result i; the others follow at distance sizes.inner.
  __device__ const T* line(int64_t i) const {
    return in + i / sizes.inner * sizes.reduce * sizes.inner + i % sizes.inner;
  }
  /// The best of every `step`-th element from `begin` on.
  __device__ Candidate<OrderKey<T>> best(int64_t i, int64_t begin, int64_t step) const {
    const T* from = line(i);
    Candidate<OrderKey<T>> result{0, -1};
    for (int64_t r = begin; r < sizes.reduce; r += step) {
      const Candidate<OrderKey<T>> next{extremum_key(from[r * sizes.inner], largest, indices != nullptr), r};
      if (next.beats(result)) result = next;
    }
    return result;
  }
  __device__ void store(int64_t i, Candidate<OrderKey<T>> best) const {
    if (indices == nullptr) {
      values[i] = value_of_key<T>(best.key, largest);
      return;
    }
    indices[i] = best.index;
    if (values != nullptr) values[i] = line(i)[best.index * sizes.inner];
  }
};

template <class T>
__global__ void extremum_rows_kernel(int64_t n, Extremum<T> f) {
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const auto best = best_of_block(f.best(i, threadIdx.x, blockDim.x));
    if (threadIdx.x == 0) f.store(i, best);
  }
}

template <class T>
__global__ void extremum_columns_kernel(int64_t n, Extremum<T> f) {
  for (int64_t i = thread_index(); i < n; i += num_threads()) f.store(i, f.best(i, 0, 1));
}

}  // namespace

void extremum(const KernelContext& context, DType dtype, const ReduceSizes& sizes, bool largest, const void* in,
              void* values, int64_t* indices) {
  const int64_t n = sizes.outer * sizes.inner;
  if (n == 0) return;
  visit_dtype(dtype, [&]<class T>() {
    const Extremum<T> f{sizes, largest, static_cast<const T*>(in), static_cast<T*>(values), indices};
    if (sizes.inner > 1 && n >= kManyColumns) {
      launch_kernel(context, extremum_columns_kernel<T>, blocks_for(n), kBlock, 0, n, f);
    } else {
      launch_kernel(context, extremum_rows_kernel<T>, blocks_for(n, 1), threads_for_row(sizes.reduce), 0, n, f);
    }
  });
}

}}}  // namespace tandem::v0::cuda

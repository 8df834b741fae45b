// GPU kernels of cumulative operations: one thread per line if there are many adjacent lines, else one block per line,
// tile by tile. The tree of combinations depends only on the sizes.
#include <tandem/ops/scan/scan_kernels.h>
#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kManyLines = 4096;

/// Element i of a line, in the order of the scan.
__device__ int64_t element_of(const Extents& sizes, bool reverse, int64_t line, int64_t i) {
  const int64_t row = line / sizes.inner * sizes.size + (reverse ? sizes.size - 1 - i : i);
  return row * sizes.inner + line % sizes.inner;
}

template <class F>
__global__ void scan_by_threads_kernel(Extents sizes, bool reverse, F f) {
  for (int64_t line = thread_index(); line < sizes.outer * sizes.inner; line += num_threads()) {
    typename F::State state = f.start();
    for (int64_t i = 0; i < sizes.size; ++i) {
      const int64_t at = element_of(sizes, reverse, line, i);
      state = f.combine(state, f.load(at, i));
      f.store(at, i, state);
    }
  }
}

/// Each thread combines `items` adjacent elements of a tile; the results are scanned by doubling distances (W. D.
/// Hillis and G. L. Steele, "Data parallel algorithms", 1986).
template <class F>
__global__ void scan_by_blocks_kernel(Extents sizes, bool reverse, int items, F f) {
  using State = typename F::State;
  __shared__ State states[kBlock];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t line = blockIdx.x; line < sizes.outer * sizes.inner; line += gridDim.x) {
    State before = f.start();  // of the tiles so far
    for (int64_t tile = 0; tile < sizes.size; tile += threads * items) {
      const int64_t begin = tile + thread * items, end = ::min(begin + items, sizes.size);
      State state = f.start();
      for (int64_t i = begin; i < end; ++i) {
        state = f.combine(state, f.load(element_of(sizes, reverse, line, i), i));
      }
      for (int distance = 1; distance < threads; distance *= 2) {
        states[thread] = state;
        __syncthreads();
        if (thread >= distance) state = f.combine(states[thread - distance], state);
        __syncthreads();
      }
      states[thread] = state;
      __syncthreads();
      state = f.combine(before, thread > 0 ? states[thread - 1] : f.start());
      before = f.combine(before, states[threads - 1]);
      __syncthreads();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = element_of(sizes, reverse, line, i);
        state = f.combine(state, f.load(at, i));
        f.store(at, i, state);
      }
    }
  }
}

template <class F>
void scan_lines(const KernelContext& context, const Extents& sizes, bool reverse, const F& f) {
  const int64_t lines = sizes.outer * sizes.inner;
  if (lines * sizes.size == 0) return;
  if (sizes.inner > 1 && lines >= kManyLines) {
    launch_kernel(context, scan_by_threads_kernel<F>, blocks_for(lines), kBlock, 0, sizes, reverse, f);
  } else {
    const int threads = sizes.size <= 32 ? 32 : sizes.size <= 128 ? 128 : kBlock;
    const int items = sizes.size > 4 * kBlock ? 8 : 1;
    launch_kernel(context, scan_by_blocks_kernel<F>, blocks_for(lines, 1), threads, 0, sizes, reverse, items, f);
  }
}

}  // namespace

void scan(const KernelContext& context, ScanKind kind, DType dtype, const Extents& sizes, bool reverse, const void* in,
          void* out) {
  visit_scan<false>(kind, dtype, in, out, [&](const auto& f) { scan_lines(context, sizes, reverse, f); });
}

void linear_scan(const KernelContext& context, DType dtype, const Extents& sizes, bool reverse, const void* factors,
                 const void* in, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    scan_lines(context, sizes, reverse,
               scans::Linear<T, Accumulator<T>>{static_cast<const T*>(factors), static_cast<const T*>(in),
                                                static_cast<T*>(out), reverse ? sizes.inner : 0});
  });
}

void extremum_scan(const KernelContext& context, DType dtype, const Extents& sizes, bool largest, const void* in,
                   void* values, int64_t* indices) {
  visit_dtype(dtype, [&]<class T>() {
    scan_lines(context, sizes, false,
               scans::Extremum<T>{static_cast<const T*>(in), static_cast<T*>(values), indices, largest, sizes.inner});
  });
}

}}}  // namespace tandem::v0::cuda

// Elementwise kernels on strided operands. For *.cu files.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Shape and strides (in elements, outermost dimension first) of N operands, as a kernel argument. In the common case
/// of one dimension the offsets need no division.
template <int N>
struct Strided {
  static constexpr int kMaxDims = 12;

  int64_t num_elements = 0;
  int num_dims = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[N][kMaxDims];

  /// Throws ShapeError for more than kMaxDims dimensions.
  Strided(std::span<const int64_t> shape, const std::array<std::span<const int64_t>, N>& steps) {
    TANDEM_CHECK(ShapeError, shape.size() <= kMaxDims, "GPU kernels support at most ", kMaxDims,
                 " dimensions after merging contiguous ones, got ", shape.size());
    num_elements = 1;
    num_dims = static_cast<int>(shape.size());
    for (int d = 0; d < num_dims; ++d) {
      sizes[d] = shape[d];
      num_elements *= shape[d];
      for (int k = 0; k < N; ++k) strides[k][d] = steps[k][d];
    }
  }

  /// Computes the offset of element i in each operand.
  __device__ void offsets(int64_t i, int64_t (&out)[N]) const {
    for (int k = 0; k < N; ++k) out[k] = 0;
    if (num_elements <= INT32_MAX) {  // 64-bit divisions are several times as slow
      uint32_t rest = static_cast<uint32_t>(i);
      for (int d = num_dims - 1; d > 0; --d) {
        const uint32_t size = static_cast<uint32_t>(sizes[d]);
        const uint32_t next = rest / size;
        add(d, rest - next * size, out);
        rest = next;
      }
      if (num_dims > 0) add(0, rest, out);
      return;
    }
    for (int d = num_dims - 1; d > 0; --d) {
      const int64_t next = i / sizes[d];
      add(d, i - next * sizes[d], out);
      i = next;
    }
    if (num_dims > 0) add(0, i, out);
  }

 private:
  __device__ void add(int d, int64_t index, int64_t (&out)[N]) const {
    for (int k = 0; k < N; ++k) out[k] += index * strides[k][d];
  }
};

/// Calls f(offsets) for every element.
template <int N, class F>
__global__ void for_each_element_kernel(Strided<N> where, F f) {
  for (int64_t i = thread_index(); i < where.num_elements; i += num_threads()) {
    int64_t offsets[N];
    where.offsets(i, offsets);
    f(offsets);
  }
}

/// Calls f(i) for every i < n.
template <class F>
__global__ void for_each_index_kernel(int64_t n, F f) {
  for (int64_t i = thread_index(); i < n; i += num_threads()) f(i);
}

template <int N, class F>
void for_each_element(const KernelContext& context, const Strided<N>& where, F f) {
  if (where.num_elements == 0) return;
  launch_kernel(context, for_each_element_kernel<N, F>, blocks_for(where.num_elements), kBlock, 0, where, f);
}

template <class F>
void for_each_index(const KernelContext& context, int64_t n, F f) {
  if (n == 0) return;
  launch_kernel(context, for_each_index_kernel<F>, blocks_for(n), kBlock, 0, n, f);
}

}}}  // namespace tandem::v0::cuda

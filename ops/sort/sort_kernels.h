// Kernels of sorting and searching. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/common/order_key.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// Computes element i of searchsorted by bisection.
template <class T>
struct SearchSorted {
  int64_t size, row_size;  ///< sizes of a sequence and of a row of values; row_size is 0 if there is only one sequence
  bool right;
  const T* sequence;
  const T* values;
  int64_t* out;
  TANDEM_HOST_DEVICE void operator()(int64_t i) const {
    const T* row = sequence + (row_size == 0 ? 0 : i / row_size * size);
    const OrderKey<T> key = order_key(values[i]);
    int64_t begin = 0, end = size;
    while (begin < end) {
      const int64_t middle = begin + (end - begin) / 2;
      const OrderKey<T> other = order_key(row[middle]);
      if (other < key || (right && other == key)) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    out[i] = begin;
  }
};

TANDEM_KERNELS(
    /// Sorts each row of n elements, 1 <= n < 2^32; equal elements in order of position. values [rows, n] has `dtype`.
    void sort(const KernelContext& context, DType dtype, int64_t rows, int64_t n, bool descending, const void* input,
              void* workspace, void* values, int64_t* indices);
    /// Bytes of the workspace of sort.
    int64_t sort_workspace_bytes(const KernelContext& context, DType dtype, int64_t rows, int64_t n);

    /// The insertion positions of num_values values in rows of `size` sorted elements. Each sequence has `row_size`
    /// values, or if that is 0, there is one sequence.
    void searchsorted(const KernelContext& context, DType dtype, int64_t size, int64_t num_values, int64_t row_size,
                      bool right, const void* sequence, const void* values, int64_t* out);)

}}  // namespace tandem::v0

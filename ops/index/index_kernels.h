// Kernels of selection by index.  Private to ops/.
//
// Tensors are row-major and seen as [outer, size, inner] around the dimension that indices point into.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

// clang-format off
TANDEM_KERNELS(
/// out[o, i, k] = input[o, index[o, i, k], k]: n numbers along the middle of out and index, `size` along input's.
/// Elements of `element_bytes` (1, 2, 4 or 8).
void gather(const KernelContext& context, int64_t element_bytes, int64_t outer, int64_t n, int64_t inner, int64_t size,
            const int64_t* index, const void* input, void* out);
/// Bytes of scratch memory that gather_backward needs.
int64_t gather_backward_workspace_bytes(const KernelContext& context, int64_t outer, int64_t n, int64_t inner);
/// out[o, index[o, i, k], k] += grad[o, i, k], i ascending; the rest of out is 0.  grad has `dtype`, out its accumulator's.
void gather_backward(const KernelContext& context, DType dtype, int64_t outer, int64_t n, int64_t inner, int64_t size,
                     const int64_t* index, const void* grad, void* workspace, void* out);

/// out[o, i, :] = input[o, index[i], :], rows of `row_bytes`.
void index_select(const KernelContext& context, int64_t row_bytes, int64_t outer, int64_t n, int64_t size,
                  const int64_t* index, const void* input, void* out);
/// Bytes of scratch memory that index_select_backward needs.
int64_t index_select_backward_workspace_bytes(const KernelContext& context, int64_t n, int64_t size);
/// out[o, index[i], k] += grad[o, i, k], i ascending; the rest of out is 0.  grad has `dtype`, out its accumulator's.
void index_select_backward(const KernelContext& context, DType dtype, int64_t outer, int64_t n, int64_t inner,
                           int64_t size, const int64_t* index, const void* grad, void* workspace, void* out);

/// out (int64, n x classes) = 1 at (i, labels[i]), else 0.
void one_hot(const KernelContext& context, int64_t n, int64_t classes, const int64_t* labels, int64_t* out);

/// The k first of each row of `size` numbers in descending (largest) or ascending order, equal ones by position; NaN counts
/// as the largest.  values [rows, k] has `dtype`, indices [rows, k] is int64.
void topk(const KernelContext& context, DType dtype, int64_t rows, int64_t size, int64_t k, bool largest,
          const void* input, void* values, int64_t* indices);

/// Row-major matrices rows x columns, of elements of `element_bytes`: out[i, j] = input[i, j] where j <= i + diagonal, else 0.
void tril(const KernelContext& context, int64_t element_bytes, int64_t matrices, int64_t rows, int64_t columns,
          int64_t diagonal, const void* input, void* out);
)
// clang-format on

}}  // namespace tandem::v0

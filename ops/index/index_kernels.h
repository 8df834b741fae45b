// Kernels of gather, index_select, one_hot, topk and tril. Private to ops/.
//
// Tensors are row-major, with shape [outer, size, inner] around the indexed dimension.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

// clang-format off
TANDEM_KERNELS(
/// out[o, i, k] = input[o, index[o, i, k], k]; the middle dimension has size n in out and index, and `size` in input.
/// Elements have `element_bytes` (1, 2, 4 or 8) bytes.
void gather(const KernelContext& context, int64_t element_bytes, int64_t outer, int64_t n, int64_t inner, int64_t size,
            const int64_t* index, const void* input, void* out);
/// Bytes of the workspace of gather_backward.
int64_t gather_backward_workspace_bytes(const KernelContext& context, int64_t outer, int64_t n, int64_t inner);
/// out[o, index[o, i, k], k] += grad[o, i, k] in ascending order of i; all other elements of out are 0. grad has
/// `dtype`, out its accumulation dtype.
void gather_backward(const KernelContext& context, DType dtype, int64_t outer, int64_t n, int64_t inner, int64_t size,
                     const int64_t* index, const void* grad, void* workspace, void* out);

/// out[o, i, :] = input[o, index[i], :], in rows of `row_bytes`.
void index_select(const KernelContext& context, int64_t row_bytes, int64_t outer, int64_t n, int64_t size,
                  const int64_t* index, const void* input, void* out);
/// Bytes of the workspace of index_select_backward.
int64_t index_select_backward_workspace_bytes(const KernelContext& context, int64_t n, int64_t size);
/// out[o, index[i], k] += grad[o, i, k] in ascending order of i; all other elements of out are 0. grad has `dtype`, out
/// its accumulation dtype.
void index_select_backward(const KernelContext& context, DType dtype, int64_t outer, int64_t n, int64_t inner,
                           int64_t size, const int64_t* index, const void* grad, void* workspace, void* out);

/// out (int64, n x classes) = 1 at (i, labels[i]), else 0.
void one_hot(const KernelContext& context, int64_t n, int64_t classes, const int64_t* labels, int64_t* out);

/// The first k elements of each row of `size` elements in descending (largest) or ascending order; equal elements in
/// order of position. NaN counts as the largest. values [rows, k] has `dtype`, indices [rows, k] is int64.
void topk(const KernelContext& context, DType dtype, int64_t rows, int64_t size, int64_t k, bool largest,
          const void* input, void* values, int64_t* indices);

/// out[i, j] = input[i, j] if j <= i + diagonal, else 0, for row-major matrices rows x columns with elements of
/// `element_bytes`.
void tril(const KernelContext& context, int64_t element_bytes, int64_t matrices, int64_t rows, int64_t columns,
          int64_t diagonal, const void* input, void* out);
)
// clang-format on

}}  // namespace tandem::v0

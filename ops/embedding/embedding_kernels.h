// Kernels of embedding. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

TANDEM_KERNELS(
    /// out[i] = weight[indices[i]], `rows` rows of d elements of element_bytes.
    void embedding(const KernelContext& context, int64_t element_bytes, int64_t n, int64_t rows, int64_t d,
                   const int64_t* indices, const void* weight, void* out);

    /// Bytes of the workspace of embedding_backward.
    int64_t embedding_backward_workspace_bytes(const KernelContext& context, int64_t n, int64_t rows);
    /// grad_weight[r] = or += the sum of grad[i] over all i with indices[i] == r, in ascending order; 0 for the row
    /// `padding` (-1: no row). All `rows` rows are written.
    void embedding_backward(const KernelContext& context, DType dtype, int64_t n, int64_t rows, int64_t d,
                            int64_t padding, const int64_t* indices, const void* grad, bool accumulate, void* workspace,
                            void* grad_weight);)

}}  // namespace tandem::v0

// Kernels of reductions. All reduce the middle dimension of a row-major block [outer, reduce, inner]: inner is 1 for
// row sums, outer is 1 for column sums.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

struct ReduceSizes {
  int64_t outer = 1;
  int64_t reduce = 1;
  int64_t inner = 1;
};

TANDEM_KERNELS(
    /// out[o, i] = the sum over r of in[o, r, i], divided by `divisor`. out has the dtype of `in` if that is floating,
    /// else int64 (and the divisor must be 1).
    void sum(const KernelContext& context, DType dtype, const ReduceSizes& sizes, double divisor, const void* in,
             void* workspace, void* out);
    /// Bytes of the workspace of sum; often 0.
    int64_t sum_workspace_bytes(const KernelContext& context, const ReduceSizes& sizes);

    /// out[0] = the largest of n >= 1 elements, or NaN.
    void max(const KernelContext& context, DType dtype, int64_t n, const void* in, void* out);

    /// out[o, i] (int64) = the first r with the largest in[o, r, i], or with the first NaN; sizes.reduce >= 1.
    void argmax(const KernelContext& context, DType dtype, const ReduceSizes& sizes, const void* in, void* out);)

}}  // namespace tandem::v0

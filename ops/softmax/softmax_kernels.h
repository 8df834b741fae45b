// Kernels of softmax and its logarithm. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// A row-major tensor as [outer, size, inner]; the operation runs over the middle dimension.
struct SoftmaxShape {
  int64_t outer;
  int64_t size;
  int64_t inner;
};

TANDEM_KERNELS(
    /// out = softmax(input), or its logarithm. Floating dtype; row-major.
    void softmax(const KernelContext& context, DType dtype, SoftmaxShape shape, bool log, const void* input, void* out);

    /// grad_input from the gradient of the output and the output; grad_input may be the same memory as grad.
    void softmax_backward(const KernelContext& context, DType dtype, SoftmaxShape shape, bool log, const void* grad,
                          const void* output, void* grad_input);)

}}  // namespace tandem::v0

// Kernels of softmax and its logarithm. Private to ops/.
#pragma once

#include <tandem/ops/common/extents.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

TANDEM_KERNELS(
    /// out = softmax(input), or its logarithm, over the middle dimension. Floating dtype; row-major.
    void softmax(const KernelContext& context, DType dtype, Extents shape, bool log, const void* input, void* out);

    /// grad_input from the gradient of the output and the output; grad_input may be the same memory as grad.
    void softmax_backward(const KernelContext& context, DType dtype, Extents shape, bool log, const void* grad,
                          const void* output, void* grad_input);)

}}  // namespace tandem::v0

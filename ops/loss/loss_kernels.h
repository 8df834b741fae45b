// Kernels of losses. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

TANDEM_KERNELS(
    /// shifts[2 i], shifts[2 i + 1] = max, log sum_j exp(logits[i, j] - max) of row i, in the compute type (float32 for
    /// half types): two numbers, because their sum would lose the digits of the smaller one. losses[i] (float64) = max
    /// + log - logits[i, labels[i]]. For a label ignore_index the loss is 0 and shifts are not written. logits:
    /// row-major n x classes, floating.
    void cross_entropy_rows(const KernelContext& context, DType dtype, int64_t n, int64_t classes, const void* logits,
                            const int64_t* labels, int64_t ignore_index, void* shifts, double* losses);

    /// out (0-dim, dtype) = mean of the losses whose labels are not ignore_index, summed in order; shifts[2 n] = their
    /// number. dtype may be wider than that of the logits, if their compute types are equal.
    void mean_of_losses(const KernelContext& context, DType dtype, int64_t n, const int64_t* labels,
                        int64_t ignore_index, const double* losses, void* shifts, void* out);

    /// grad_logits[i, j] = (exp(logits[i, j] - max - log) - (j == labels[i])) * grad / shifts[2 n], or 0 where the
    /// label is ignore_index; grad is 0-dim, of the compute type.
    void cross_entropy_backward(const KernelContext& context, DType dtype, int64_t n, int64_t classes,
                                const void* logits, const int64_t* labels, int64_t ignore_index, const void* shifts,
                                const void* grad, void* grad_logits);)

}}  // namespace tandem::v0

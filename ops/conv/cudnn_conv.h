// Convolutions by cuDNN.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// What the library works in for a pass, at least 1; 0 where it has no deterministic algorithm for it that sums products: in
/// float64, and in the emulation, it is not asked.
int64_t library_conv_bytes(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry);

// As the functions of conv_kernels.h, without bias and relu, and with filters in the order [filter][tap][channel].  False where
// nothing was computed.

bool library_conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                          const void* filters, void* workspace, void* out);
bool library_conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                                 const void* grad, const void* filters, void* workspace, void* input_grad);
bool library_conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                                  const void* input, const void* grad, void* workspace, void* filters_grad);

}}}  // namespace tandem::v0::cuda

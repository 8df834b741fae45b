// Convolutions by cuDNN.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Bytes of cuDNN's scratch memory for a pass, at least 1. 0 if cuDNN has no deterministic algorithm that sums
/// products, for float64, and in the emulation.
int64_t cudnn_workspace_bytes(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry);

// The functions of conv_kernels.h without bias and relu, and with filters in the order [filter][tap][channel]. Return
// false if nothing was computed.

bool cudnn_conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                        const void* filters, void* workspace, void* out);
bool cudnn_conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                               const void* grad, const void* filters, void* workspace, void* input_grad);
bool cudnn_conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                                const void* input, const void* grad, void* workspace, void* filters_grad);

}}}  // namespace tandem::v0::cuda

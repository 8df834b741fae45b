// Convolutions whose groups have one channel of the input, on a GPU: for the dispatch of conv_cuda.cu alone.  Private to ops/.
#pragma once

#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Whether each group has one channel of the input, and any number of filters.
bool depthwise_can(const ConvGeometry& geometry);

// The kernels of conv_kernels.h, for such convolutions that have results, channels and filters.

int64_t depthwise_workspace_bytes(ConvPass pass, const ConvGeometry& geometry);

void depthwise_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                       const void* weight, const void* bias, bool relu, void* out);

void depthwise_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                              const void* weight, void* input_grad);

void depthwise_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                               const void* input, const void* grad, double beta, void* workspace, void* weight_grad);

}}}  // namespace tandem::v0::cuda

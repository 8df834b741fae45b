// GPU convolutions with one input channel per group; called by conv_cuda.cu only. Private to ops/.
#pragma once

#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Whether each group has one input channel, and any number of filters.
bool depthwise_can(const ConvGeometry& geometry);

// The kernels of conv_kernels.h for convolutions with one input channel per group. Results, channels and filters must
// not be empty.

int64_t depthwise_workspace_bytes(ConvPass pass, const ConvGeometry& geometry);

void depthwise_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                       const void* weight, const void* bias, bool relu, void* out);

void depthwise_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                              const void* weight, const void* bias, void* input_grad);

void depthwise_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                               const void* input, const void* grad, double beta, void* workspace, void* weight_grad);

}}}  // namespace tandem::v0::cuda

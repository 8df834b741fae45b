// Convolutions by cuDNN. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Bytes of cuDNN's workspace for a pass, at least 1; 0 if tandem's own kernels must compute it: for float64, for a
/// bias in the gradient of an input whose channels are not multiples of 8, and where cuDNN has no suitable plan
/// (cudnn_plan.h), which is logged once per problem as a warning.
int64_t cudnn_workspace_bytes(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry);

/// Computes input, filters or output from the other two, depending on `pass`; `filters` in the order
/// [filter][tap][channel]; `bias` is null if !has_bias. Each result is rounded once. Returns false if tandem's own
/// kernels must compute it, for instance because a tensor is not aligned to 16 bytes or cuDNN failed.
bool cudnn_conv(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry,
                const void* input, const void* filters, const void* bias, const void* output, void* workspace);

}}}  // namespace tandem::v0::cuda

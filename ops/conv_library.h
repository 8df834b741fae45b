// Convolutions by cuDNN.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/conv_kernels.h>

namespace tandem::inline v0::cuda {

/// What the library may use of a pass's workspace; 0 where it is not asked: in the emulation, and for float64.
int64_t conv_library_bytes(DType dtype);

// As the functions of conv_kernels.h, with filters in the order [filter][tap][channel]; false where the library has no deterministic
// algorithm for the sizes, or needs more than that workspace.

bool library_conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                          const void* filters, const void* bias, bool relu, void* workspace, void* out);
bool library_conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                                 const void* filters, void* workspace, void* input_grad);
bool library_conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                                  const void* grad, void* workspace, void* filters_grad);

}  // namespace tandem::inline v0::cuda

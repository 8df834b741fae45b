// The algorithms behind conv_kernels.h; called by conv_cpu.cc only. Private to ops/.
#pragma once

#include <tandem/ops/conv/conv_kernels.h>
#include <tandem/ops/matmul/gemm_tile.h>

namespace tandem { inline namespace v0 { namespace cpu {

/// Operands of a pass; pointers that it does not use are null.
template <class T>
struct ConvData {
  const T* input = nullptr;
  const T* weight = nullptr;
  const T* grad = nullptr;  ///< gradient of the output
  const T* bias = nullptr;
  bool relu = false;
  double beta = 0;  ///< factor of the old value of the weight's gradient
  void* workspace = nullptr;
  T* out = nullptr;
};

template <class T>
void direct_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data);

/// im2col and matrix products: float by the micro-kernels of `kernels`, double by Eigen (`kernels` is not used).
template <class T>
int64_t im2col_conv_workspace_bytes(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels);
template <class T>
void im2col_conv(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels, const ConvData<T>& data);

/// Depthwise convolutions: one filter per channel.
bool depthwise_can(const ConvGeometry& geometry);
int64_t depthwise_workspace_elements(const ConvGeometry& geometry);
template <class T>
void depthwise_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data);

/// Winograd's algorithm, for convolutions for which winograd_can is true.
bool winograd_can(const ConvGeometry& geometry);
int64_t winograd_workspace_bytes(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels);
void winograd_conv(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels,
                   const ConvData<float>& data);

}}}  // namespace tandem::v0::cpu

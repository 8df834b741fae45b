// The algorithms behind conv_kernels.h, for its dispatch alone.  Private to ops/.
#pragma once

#include <tandem/ops/conv/conv_kernels.h>
#include <tandem/ops/matmul/gemm_tile.h>

namespace tandem { inline namespace v0 { namespace cpu {

/// Pointers of a pass: those it does not read or write are null.
template <class T>
struct ConvData {
  const T* input = nullptr;
  const T* weight = nullptr;
  const T* grad = nullptr;  ///< of the output
  const T* bias = nullptr;
  bool relu = false;
  double beta = 0;  ///< of the weight's gradient
  void* workspace = nullptr;
  T* out = nullptr;
};

template <class T>
void direct_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data);

/// Products of pieces of patches; float through the tiles of `kernels`, double through Eigen (`kernels` is not read).
template <class T>
int64_t patch_conv_workspace_bytes(ConvPass pass, const ConvGeometry& geometry, const ProductKernels& kernels);
template <class T>
void patch_conv(ConvPass pass, const ConvGeometry& geometry, const ProductKernels& kernels, const ConvData<T>& data);

/// One filter per channel.
bool depthwise_can(const ConvGeometry& geometry);
int64_t depthwise_workspace_elements(const ConvGeometry& geometry);
template <class T>
void depthwise_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data);

/// Winograd's algorithm, for the convolutions that it can compute.
bool winograd_can(const ConvGeometry& geometry);
int64_t winograd_workspace_bytes(ConvPass pass, const ConvGeometry& geometry, const ProductKernels& kernels);
void winograd_conv(ConvPass pass, const ConvGeometry& geometry, const ProductKernels& kernels,
                   const ConvData<float>& data);

}}}  // namespace tandem::v0::cpu

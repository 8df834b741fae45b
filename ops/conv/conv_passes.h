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
  const T* bias = nullptr;  ///< added to each pixel of the output or, in the backward pass of input, of the input
  bool relu = false;
  double beta = 0;  ///< factor of the old value of the weight's gradient
  void* workspace = nullptr;
  T* out = nullptr;
};

/// The operands of one group: pointers to the group's first channels and filters.
template <class T>
ConvData<T> group_data(ConvPass pass, const ConvGeometry& g, ConvData<T> data, int64_t group) {
  const int64_t input = group * g.group_channels(), output = group * g.group_out_channels();
  const int64_t weight = group * (g.weight_elements() / g.groups);
  const auto advance = [](auto*& pointer, int64_t elements) {
    if (pointer != nullptr) pointer += elements;
  };
  advance(data.input, input);
  advance(data.weight, weight);
  advance(data.grad, output);
  advance(data.bias, pass == ConvPass::kForward ? output : input);
  advance(data.out, pass == ConvPass::kForward ? output : pass == ConvPass::kBackwardInput ? input : weight);
  return data;
}

template <class T>
void direct_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data);

/// im2col and matrix products: float by the micro-kernels of `kernels`, double by Eigen (`kernels` is not used).
template <class T>
int64_t im2col_conv_workspace_bytes(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels);
template <class T>
void im2col_conv(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels, const ConvData<T>& data);

/// bfloat16 on CPUs with AVX512_BF16, for convolutions for which bf16_conv_can is true.
bool bf16_conv_can(const ConvGeometry& geometry);
int64_t bf16_conv_workspace_bytes(ConvPass pass, const ConvGeometry& geometry);
void bf16_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<BFloat16>& data);

/// Groups of one channel and one filter; for float also of 2, 4 or 8 channels and as many filters.
bool depthwise_can(const ConvGeometry& geometry);
template <class T>
int64_t depthwise_workspace_bytes(ConvPass pass, const ConvGeometry& geometry);
template <class T>
void depthwise_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data);

/// Winograd's algorithm, for convolutions for which winograd_can is true.
bool winograd_can(const ConvGeometry& geometry);
int64_t winograd_workspace_bytes(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels);
void winograd_conv(ConvPass pass, const ConvGeometry& geometry, const GemmKernels& kernels,
                   const ConvData<float>& data);

}}}  // namespace tandem::v0::cpu

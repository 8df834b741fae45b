// Kernels of convolutions. Private to ops/.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tandem/ops/size2d.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// The sizes and options of a convolution. `out` usually follows from the other sizes. It may be larger, then the last
/// results read zeros after `padding`, or smaller, then the convolution has further results that are not computed.
struct ConvGeometry {
  int64_t batch = 0;
  int64_t channels = 0;
  Size2d size = 0;
  int64_t out_channels = 0;
  Size2d out = 0;
  Size2d kernel = 1;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  int64_t groups = 1;
  bool has_bias = false;  ///< whether the pass adds a bias

  constexpr int64_t group_channels() const { return channels / groups; }
  constexpr int64_t group_out_channels() const { return out_channels / groups; }
  constexpr int64_t taps() const { return kernel.height * kernel.width; }
  constexpr int64_t out_pixels() const { return batch * out.height * out.width; }
  constexpr int64_t weight_elements() const { return out_channels * group_channels() * taps(); }
  /// Rows and columns of zeros after the input: `padding`, unless the last results read more.
  constexpr Size2d end_padding() const {
    return {std::max(padding.height, (out.height - 1) * stride.height + dilation.height * (kernel.height - 1) + 1 -
                                         size.height - padding.height),
            std::max(padding.width, (out.width - 1) * stride.width + dilation.width * (kernel.width - 1) + 1 -
                                        size.width - padding.width)};
  }
  /// Number of multiplications, including multiplications with padding.
  int64_t work() const { return out_pixels() * weight_elements(); }
};

/// Algorithms of convolutions on CPUs; see docs/decisions/005-convolutions.md.
enum class ConvAlgorithm : int8_t {
  kDirect,     ///< loops that sum in float64: the reference, for any sizes
  kDepthwise,  ///< loops over channels; groups of 1, 2, 4 or 8 channels and as many filters only
  kTilesAvx2,  ///< im2col in pieces, multiplied by the GEMM micro-kernels of gemm_tile.h
  kTilesAvx512,
  kWinogradAvx2,  ///< Winograd for 3 x 3 and 5 x 5 filters of stride 1, by the same micro-kernels
  kWinogradAvx512,
  kTilesAvx512Bf16,  ///< bfloat16: im2col in pieces, multiplied by dot products of pairs; without groups
};

enum class ConvPass : int8_t { kForward, kBackwardInput, kBackwardWeight };

const char* to_string(ConvAlgorithm algorithm);

/// The algorithm for a pass of a float32 convolution; depends only on sizes and the instruction set.
ConvAlgorithm conv_algorithm(ConvPass pass, const ConvGeometry& geometry);

/// Whether the kernels on this CPU compute a pass in the half type `dtype`: where float32 would be computed by tiles.
/// Otherwise float32 copies are convolved. Throws as conv_workspace_bytes.
bool has_half_conv(DType dtype, ConvPass pass, const ConvGeometry& geometry);

/// Whether this CPU supports `algorithm`, and it can compute the convolution.
bool is_available(ConvAlgorithm algorithm, const ConvGeometry& geometry);

namespace cpu {

// The kernels below with the algorithm as an argument. float64 has kDirect, kDepthwise for groups of one channel and,
// for everything else, im2col with products by Eigen. bfloat16 has only kTilesAvx512Bf16.

int64_t conv_workspace_bytes(DType dtype, ConvAlgorithm algorithm, ConvPass pass, const ConvGeometry& geometry);

void conv_forward(const CpuContext& context, DType dtype, ConvAlgorithm algorithm, const ConvGeometry& geometry,
                  const void* input, const void* weight, const void* bias, bool relu, void* workspace, void* out);

void conv_backward_input(const CpuContext& context, DType dtype, ConvAlgorithm algorithm, const ConvGeometry& geometry,
                         const void* grad, const void* weight, const void* bias, void* workspace, void* input_grad);

void conv_backward_weight(const CpuContext& context, DType dtype, ConvAlgorithm algorithm, const ConvGeometry& geometry,
                          const void* input, const void* grad, double beta, void* workspace, void* weight_grad);

}  // namespace cpu

// Inputs, outputs and their gradients are channels-last, weights and their gradients row-major. CPUs: float32, float64
// and, if has_half_conv, a half type; GPUs: any floating dtype. Half types are summed in float32. clang-format off
TANDEM_KERNELS(
    /// Bytes of the workspace of a pass. On CPUs throws ValueError for an invalid TANDEM_CONV_ALGORITHM.
    int64_t conv_workspace_bytes(const KernelContext& context, DType dtype, ConvPass pass,
                                 const ConvGeometry& geometry);

    /// out = conv2d(input, weight, bias), negative values replaced by 0 if `relu`; bias may be null.
    void conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                      const void* weight, const void* bias, bool relu, void* workspace, void* out);

    /// The gradient of the input for the gradient `grad` of the output, plus `bias` of the input's channels, which may
    /// be null. Half types are rounded once, after the addition.
    void conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                             const void* weight, const void* bias, void* workspace, void* input_grad);

    /// weight_grad = beta * weight_grad + the gradient of the weight; beta is 0 (weight_grad is not read) or 1.
    void conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                              const void* input, const void* grad, double beta, void* workspace, void* weight_grad);)
// clang-format on

}}  // namespace tandem::v0

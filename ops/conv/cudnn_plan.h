// Execution plans of cuDNN's graph API for convolutions. Private to ops/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/ops/common/cudnn_graph_cuda.h>
#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// The GPU for which a plan is made: the GPU of a handle, or a GPU that is only described by its properties and need
/// not exist.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;  ///< used if handle is null
};

/// The tensors' ids in a plan: channels-last input and output (or their gradients), filters (or their gradient) in the
/// order [filter][tap][channel], and the bias.
inline constexpr int64_t kInputId = 'x', kFiltersId = 'w', kOutputId = 'y', kBiasId = 'b';

/// Bytes to which a plan's tensors are aligned.
inline constexpr int64_t kPlanAlignment = 16;

/// A finalized plan, with the descriptors that it was made from.
struct ConvPlan {
  std::vector<CudnnDescriptor> parts;
  CudnnDescriptor plan;
  int64_t engine;           ///< cuDNN's number of the engine
  int64_t workspace_bytes;  ///< at most 256 MiB
};

/// "forward float32 [8, 3, 32, 32], 16 filters 3x3, stride 1x1, padding 1x1, dilation 1x1, groups 1, bias"
std::string conv_text(ConvPass pass, DType dtype, const ConvGeometry& geometry);

/// The first plan, in the order of cuDNN's heuristics, that is deterministic, sums products (no transforms) and the
/// bias in float32, and rounds float32 operands only if `tf32`. Depends only on sizes and the GPU. Throws CudnnFailure
/// if there is none.
ConvPlan make_conv_plan(const CudnnTarget& target, ConvPass pass, DType dtype, bool tf32, const ConvGeometry& geometry);

}}}  // namespace tandem::v0::cuda

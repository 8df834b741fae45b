// Attention by cuDNN. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/attention/attention_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Bytes of the workspace, at least 1, for the forward pass (`grads` is null) or the backward pass; 0 if tandem's own
/// kernels must compute it. cuDNN computes attention of half types, of head sizes that are multiples of 8 up to 256,
/// where it has a plan; its backward is deterministic and needs two queries. For a problem without a plan a warning is
/// logged once.
///
/// Causal masks, windows, and offsets that align the last query with the last key are options of cuDNN. All other
/// bands, and masks, become a bias (attention_bias.h). Dropout uses the generator's numbers: a tensor of kept weights.
int64_t cudnn_attention_workspace_bytes(const KernelContext& context, const AttentionCall& call,
                                        const AttentionGradients* grads);

/// Computes the pass. Returns false if tandem's own kernels must compute it: also if cuDNN fails.
bool cudnn_attention(const KernelContext& context, const AttentionCall& call, const AttentionGradients* grads,
                     void* workspace);

}}}  // namespace tandem::v0::cuda

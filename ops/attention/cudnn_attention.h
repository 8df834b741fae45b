// Attention by cuDNN. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/ops/attention/attention_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Bytes of cuDNN's workspace, at least 1, for the forward pass (`grads` is null) or the backward pass; 0 if tandem's
/// own kernels must compute it. cuDNN computes attention of half types without a mask, a window, an offset or dropout,
/// of head sizes that are multiples of 8 up to 256, also of grouped heads, where it has a plan; its backward is
/// deterministic and needs two queries. For a problem without a plan a warning is logged once.
///
/// A mask is added by tandem's kernels, because the result of a query without keys must be 0 and not NaN; so are
/// windows that are limited on the left. Dropout's numbers must be those of the generator on every device.
int64_t cudnn_attention_workspace_bytes(const KernelContext& context, const AttentionCall& call,
                                        const AttentionGradients* grads);

/// Computes the pass. Returns false if tandem's own kernels must compute it: also if cuDNN fails.
bool cudnn_attention(const KernelContext& context, const AttentionCall& call, const AttentionGradients* grads,
                     void* workspace);

}}}  // namespace tandem::v0::cuda

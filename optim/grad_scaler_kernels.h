// The kernel of loss scaling. Private to optim/.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/optim/clip_grad_kernels.h>

namespace tandem { inline namespace v0 { namespace optim {

// clang-format off
TANDEM_KERNELS(
/// values *= factor; sets *found to 1 if a value was infinite or NaN before, else leaves *found unchanged. Floating
/// dtypes only. If `replay_factor` is not null, *replay_factor replaces the factor: in a cuda::Graph, the factor of
/// each replay.
void unscale(const KernelContext& context, DType dtype, std::span<const Values> tensors, double factor,
             const double* replay_factor, int32_t* found);
)
// clang-format on

}}}  // namespace tandem::v0::optim

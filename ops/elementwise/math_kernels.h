// Kernels of roots, powers and bounds.  Private to ops/.
#pragma once

#include <cstdint>
#include <optional>

#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/scalar.h>

namespace tandem { inline namespace v0 {

enum class RootOp : int8_t { kSqrt, kRsqrt };

// clang-format off
TANDEM_KERNELS(
/// out = op(a).  Floating dtypes.
void root(const KernelContext& context, RootOp op, DType dtype, const StridedLoop<2>& loop, const void* a, void* out);

/// out = a^exponent.  Any dtype but bool; for integers the exponent is an integer >= 0.
void pow(const KernelContext& context, DType dtype, const StridedLoop<2>& loop, Scalar exponent, const void* a, void* out);
/// out = a^b, both of `dtype`.
void pow(const KernelContext& context, DType dtype, const StridedLoop<3>& loop, const void* a, const void* b, void* out);

/// out = min(max(a, low), high).  Any dtype but bool.
void clamp(const KernelContext& context, DType dtype, const StridedLoop<2>& loop, std::optional<Scalar> low,
           std::optional<Scalar> high, const void* a, void* out);
/// out = low < a < high ? grad : 0, where a missing bound does not bind.  Floating dtypes.
void clamp_backward(const KernelContext& context, DType dtype, const StridedLoop<3>& loop, std::optional<Scalar> low,
                    std::optional<Scalar> high, const void* grad, const void* a, void* out);
)
// clang-format on

}}  // namespace tandem::v0

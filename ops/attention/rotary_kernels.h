// Kernel of rotary_embedding. Private to ops/.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// Rotations of pairs of elements. `shape` is [batch ..., T, d / 2], one element per pair; strides are those of the
/// first element of a pair, and the second one is `partner` elements behind it. The tables are [T, d / 2], row-major,
/// in float64 for float64, else float32.
struct RotaryCall {
  DType dtype;
  std::span<const int64_t> shape, x_strides, out_strides;
  int64_t partner;
  const void *x, *cos, *sin;
  bool is_inverse;  ///< rotates by the negative angles
  void* out;
};

// clang-format off
TANDEM_KERNELS(
void rotary_embedding(const KernelContext& context, const RotaryCall& call);
)
// clang-format on

}}  // namespace tandem::v0

// Kernels of the elementwise family, and the mathematics of single elements.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/scalar.h>
#include <tandem/tensor/shape.h>

namespace tandem::inline v0 {

/// Where the N operands of an elementwise kernel lie; operand 0 is the output.  `sizes` holds at least one dimension and
/// is merged: neighbouring dimensions that all operands walk in one go are one.  Strides in elements, 0 for a broadcast.
template <int N>
struct Loop {
  int64_t num_elements = 0;
  Shape sizes;
  Shape strides[N];
};

enum class BinaryOp : int8_t { kAdd, kSub, kMul, kDiv, kReluBackward };
enum class CompareOp : int8_t { kEqual, kNotEqual, kLess, kLessEqual };
enum class UnaryOp : int8_t { kNegate, kExp, kLog, kRelu };

/// e^x within 2 units in the last place, without branches so that a loop over it becomes vector code.
///
/// x = k ln 2 + r with |r| <= ln(2)/2, then e^r by its Taylor polynomial (the first term left out is below 6e-9), then 2^k
/// as two factors because k reaches from -150 (subnormal results) to 128.
inline float exp_element(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = x > 89.0f ? 89.0f : x;             // written so that NaN passes
  x = x < -104.0f ? -104.0f : x;
  const float shifted = __builtin_fmaf(x, 1.44269504f, kRound);
  const float n = shifted - kRound;
  const float r = __builtin_fmaf(n, 2.12194440e-4f, __builtin_fmaf(n, -0.693359375f, x));
  float p = 1.0f / 5040;
  p = __builtin_fmaf(p, r, 1.0f / 720);
  p = __builtin_fmaf(p, r, 1.0f / 120);
  p = __builtin_fmaf(p, r, 1.0f / 24);
  p = __builtin_fmaf(p, r, 1.0f / 6);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  p = __builtin_fmaf(p, r, 1.0f);
  const uint32_t k = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(k) >> 1);
  return p * std::bit_cast<float>((half + 127u) << 23) * std::bit_cast<float>((k - half + 127u) << 23);
}
inline double exp_element(double x) { return std::exp(x); }

/// log(x) within 2 units in the last place, without branches.
///
/// x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); with s = f / (2 + f), log(1 + f) = 2 atanh(s) = 2 s + 2/3 s^3 + ...,
/// arranged as f minus small terms so that the leading part is exact.
inline float log_element(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3u;  // bits of sqrt(1/2)
  const bool tiny = x < 0x1p-126f;
  const uint32_t bits = std::bit_cast<uint32_t>(tiny ? x * 0x1p23f : x);
  const int32_t k = static_cast<int32_t>(bits - kSqrtHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(k) << 23)) - 1.0f;
  const float n = static_cast<float>(k) - (tiny ? 23.0f : 0.0f);
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.0f / 9;
  p = __builtin_fmaf(p, z, 2.0f / 7);
  p = __builtin_fmaf(p, z, 2.0f / 5);
  p = __builtin_fmaf(p, z, 2.0f / 3);
  const float half_square = 0.5f * f * f;
  const float small = __builtin_fmaf(s, __builtin_fmaf(p, z, half_square), n * -2.12194440e-4f);
  float result = __builtin_fmaf(n, 0.693359375f, f - (half_square - small));
  result = x < INFINITY ? result : x;  // infinity and NaN are their own logarithms
  result = x == 0.0f ? -INFINITY : result;
  return x < 0.0f ? NAN : result;
}
inline double log_element(double x) { return std::log(x); }

namespace cpu {

/// out = a op b; kAdd: a + alpha b.  a, b and out have `dtype`; kDiv and kReluBackward are for floating ones.
/// kReluBackward: 0 where b <= 0, else a.  a or b may be exactly out.
void binary(const KernelContext& context, BinaryOp op, DType dtype, const Loop<3>& loop, Scalar alpha, const void* a,
            const void* b, void* out);
/// out (bool) = a op b; a and b have `dtype`.
void compare(const KernelContext& context, CompareOp op, DType dtype, const Loop<3>& loop, const void* a, const void* b,
             void* out);
/// out = op(a); kExp and kLog are for floating dtypes.
void unary(const KernelContext& context, UnaryOp op, DType dtype, const Loop<2>& loop, const void* a, void* out);
/// out = condition ? a : b, for elements of `element_bytes` (1, 2, 4 or 8).
void where(const KernelContext& context, int64_t element_bytes, const Loop<4>& loop, const void* condition, const void* a,
           const void* b, void* out);

}  // namespace cpu
}  // namespace tandem::inline v0

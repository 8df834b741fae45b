// Elementwise operations: how they are described, and their kernels.  Private to ops/.
//
// A unary or binary operation is one struct, derived from UnaryOp or BinaryOp: its name, the formula on one element for all
// devices, the gradient, what backward saves, the dtype rule and the autocast policy.  The argument checks, the allocation, the
// kernels and the nodes are made from it by the templates of elementwise_op.h, elementwise_map.h and elementwise_map_cuda.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tandem/ops/cast.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/scalar.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 {

/// Sizes and strides of the N tensors of an elementwise kernel; tensor 0 is the output.  `sizes` holds at least one dimension and is
/// merged: neighbouring dimensions that are contiguous in all tensors are one.  Strides in elements, 0 for a broadcast.
template <int N>
struct StridedLoop {
  int64_t num_elements = 0;
  Shape sizes;
  Shape strides[N];
};

/// A formula of one element, inlined into every loop: around a call the compiler makes no vector code.
#define TANDEM_INLINED __attribute__((always_inline))
#define TANDEM_FORMULA TANDEM_HOST_DEVICE TANDEM_INLINED

/// e^x within 2 units in the last place, without branches so that a loop over it becomes vector code.
///
/// x = k ln 2 + r with |r| <= ln(2)/2, then e^r by its Taylor polynomial (the first term left out is below 6e-9), then
/// 2^k as two factors because k reaches from -150 (subnormal results) to 128.
TANDEM_HOST_DEVICE inline float exp_element(float x) {
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
TANDEM_HOST_DEVICE inline double exp_element(double x) { return std::exp(x); }

/// All ones where the highest bit is set, else zero.
TANDEM_HOST_DEVICE inline uint32_t sign_mask(uint32_t bits) {
  return static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
}

/// log(x) within 2 units in the last place, without branches.  The special cases are masks computed from the bits: of
/// comparisons the compiler makes jumps around the computation, and then no vector code.
///
/// x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); with s = f / (2 + f), log(1 + f) = 2 atanh(s) = 2 s + 2/3 s^3 +
/// ..., arranged as f minus small terms so that the leading part is exact.
TANDEM_HOST_DEVICE inline float log_element(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3u;
  constexpr uint32_t kInfinity = 0x7f800000u;
  const uint32_t original = std::bit_cast<uint32_t>(x);
  const uint32_t subnormal = (original - 0x00800000u) >> 31;  // 1 or 0 (for negative numbers it does not matter)
  const float scale = std::bit_cast<float>(0x3f800000u + subnormal * (23u << 23));  // 2^23 or 1
  const uint32_t bits = std::bit_cast<uint32_t>(x * scale);
  const int32_t k = static_cast<int32_t>(bits - kSqrtHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(k) << 23)) - 1.0f;
  const float n = static_cast<float>(k - 23 * static_cast<int32_t>(subnormal));
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.0f / 9;
  p = __builtin_fmaf(p, z, 2.0f / 7);
  p = __builtin_fmaf(p, z, 2.0f / 5);
  p = __builtin_fmaf(p, z, 2.0f / 3);
  const float half_square = 0.5f * f * f;
  const float small = __builtin_fmaf(s, __builtin_fmaf(p, z, half_square), n * -2.12194440e-4f);
  const uint32_t result = std::bit_cast<uint32_t>(__builtin_fmaf(n, 0.693359375f, f - (half_square - small)));
  const uint32_t magnitude = original & 0x7fffffffu;
  const uint32_t is_zero = sign_mask(magnitude - 1u);
  const uint32_t is_nan = sign_mask(kInfinity - magnitude);
  const uint32_t is_negative = sign_mask(original);
  const uint32_t is_regular = sign_mask(magnitude - kInfinity) & ~is_zero & ~is_negative;
  const uint32_t no_number = kInfinity | ((is_negative | is_nan) & 0x00400000u);  // infinity, or NaN
  const uint32_t special = (is_zero & 0xff800000u) | (~is_zero & no_number);
  return std::bit_cast<float>((result & is_regular) | (special & ~is_regular));
}
TANDEM_HOST_DEVICE inline double log_element(double x) { return std::log(x); }

/// What a kernel reads: elements in its device's memory, or one number in the host's memory.
struct Source {
  const void* data;
  bool is_number = false;

  Source(const void* elements, bool number = false) : data(elements), is_number(number) {}
};

/// Type in which arithmetic happens: float for half types, unsigned for integers, where overflow wraps around.
template <class T>
using Compute = std::conditional_t<
    std::is_floating_point_v<T>, T,
    std::conditional_t<!std::is_integral_v<T>, float, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>>;

/// The result of arithmetic as an element of type T.
template <class T, class C>
TANDEM_HOST_DEVICE inline T store(C value) {
  if constexpr (std::is_same_v<T, C>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    return static_cast<T>(value);
  }
}

/// The arithmetic value of an integer, which formulas receive as unsigned.
template <class C>
TANDEM_HOST_DEVICE inline auto signed_value(C value) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<std::make_signed_t<C>>(value);
  } else {
    return value;
  }
}

/// Which dtypes an operation accepts and computes in.  Two arguments are promoted to one dtype in every case.
enum class DTypeRule : int8_t {
  kAny,         ///< every dtype
  kNotBool,     ///< DTypeError for bool
  kFloating,    ///< DTypeError unless floating
  kToFloating,  ///< integers and bools are converted to float32
};

enum class Saves : int8_t { kNothing, kInput, kOutput };

/// out = f(input).  A derived struct has
///
///     static constexpr const char* kName            the public name
///     template <class C> C operator()(C x) const    the formula; C is float, double, or uint32_t or uint64_t for integers
///
/// and its gradient, `saved` being the input or the output, in one of two forms:
///
///     Tensor backward(const Tensor& grad, const Tensor& saved) const         in operations, which record themselves
///     template <class C> C gradient(C g, C saved) const                      g times the derivative, in one kernel
///     Tensor second_factor(const Tensor& saved) const                        with `gradient`: the derivative of the derivative by
///                                                                            `saved`; without it that is 0
/// Optional:
///
///     void prepare(Tensor& input) const                              further checks and conversions of the argument
///     template <class T, class Run> void visit(const Run& run) const  calls run(f), f computing elements of type T: for an operation
///                                                                    with attributes, or whose formula depends on T
struct UnaryOp {
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  static constexpr CastPolicy kCastPolicy = CastPolicy::kWidest;
  static constexpr Saves kSaves = Saves::kNothing;
};

/// out = f(a, b), of tensors or of a tensor and a number.  A derived struct has kName, the formula, and unless it returns bool
///
///     Tensor backward_a(const Tensor& grad, const Tensor& a, b) const          b is a Tensor, or a Scalar in the form with a number
///     Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor& out) const
///
/// of the result's shape, each of what it saves; the rest is undefined.  Optional: visit as above, and
///
///     void check(const char* name, const Tensor& a) const            after promotion
struct BinaryOp {
  enum Argument : unsigned { kA = 1, kB = 2, kOut = 4 };
  static constexpr const char* kArguments[] = {"a", "b"};
  static constexpr DTypeRule kDTypeRule = DTypeRule::kAny;
  static constexpr CastPolicy kCastPolicy = CastPolicy::kWidest;
  static constexpr bool kReturnsBool = false;
  static constexpr unsigned kSavedForA = 0;  ///< what backward_a needs
  static constexpr unsigned kSavedForB = 0;
};

/// Calls run(f) with the functor of `op` for elements of type T.
template <class T, class Op, class Run>
void visit_formula(const Op& op, const Run& run) {
  if constexpr (requires { op.template visit<T>(run); }) {
    op.template visit<T>(run);
  } else {
    run(op);
  }
}

/// visit_dtype for the dtypes that Op computes in.
template <class Op, class F>
void visit_dtype_of(DType dtype, const F& f) {
  if constexpr (Op::kDTypeRule == DTypeRule::kFloating || Op::kDTypeRule == DTypeRule::kToFloating) {
    visit_floating_dtype(dtype, f);
  } else {
    visit_dtype(dtype, f);
  }
}

/// Whether the gradient of Op is a formula of its own.
template <class Op>
inline constexpr bool kHasGradientKernel = !requires(Op op, const Tensor& tensor) {
  op.backward(tensor, tensor);
};

/// The gradient of a formula as a formula of two elements.
template <class F>
struct GradientOf {
  F f;
  template <class C>
  TANDEM_FORMULA C operator()(C g, C saved) const {
    return f.gradient(g, saved);
  }
};

TANDEM_KERNELS(
    /// out = op(a); both have `dtype`.
    template <class Op> void unary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<2>& loop,
                                   const void* a, void* out);
    /// out = grad times the derivative of op.  Floating dtypes.
    template <class Op> void unary_gradient(const KernelContext& context, const Op& op, DType dtype,
                                            const StridedLoop<3>& loop, const void* grad, const void* saved, void* out);
    /// out = op(a, b); a and b have `dtype`, and either may be exactly out.
    template <class Op> void binary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<3>& loop,
                                    Source a, Source b, void* out);
    /// out = -grad ((a / b) / b), the gradient of a / b by b.  Floating dtypes.
    void div_backward(const KernelContext& context, DType dtype, const StridedLoop<4>& loop, const void* grad,
                      const void* a, const void* b, void* out);
    /// out = condition ? a : b, for elements of `element_bytes` (1, 2, 4 or 8).
    void where(const KernelContext& context, int64_t element_bytes, const StridedLoop<4>& loop, const void* condition,
               Source a, Source b, void* out);)

}}  // namespace tandem::v0

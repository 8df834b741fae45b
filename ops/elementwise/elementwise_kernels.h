// Elementwise operations: their descriptions and kernels. Private to ops/.
//
// A unary or binary operation is one struct derived from UnaryOp or BinaryOp: name, formula on one element for all
// devices, gradient, what backward saves, dtype rule and autocast policy. The templates of elementwise_op.h,
// elementwise_map.h and elementwise_map_cuda.h generate argument checks, allocation, kernels and nodes from it.
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

/// Sizes and strides of the N tensors of an elementwise kernel; tensor 0 is the output. `sizes` has at least one
/// dimension. Neighbouring dimensions that are contiguous in all tensors are merged. Strides are in elements, 0 for
/// broadcast dimensions.
template <int N>
struct StridedLoop {
  int64_t num_elements = 0;
  Shape sizes;
  Shape strides[N];
};

/// For formulas of one element: the compiler vectorizes a loop only if all calls in it are inlined.
#define TANDEM_INLINED __attribute__((always_inline))
#define TANDEM_FORMULA TANDEM_HOST_DEVICE TANDEM_INLINED

/// e^r for abs(r) <= ln(2)/2 by its Taylor polynomial; the first omitted term is below 6e-9.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float exp_polynomial(float r) {
  float p = 1.0f / 5040;
  p = __builtin_fmaf(p, r, 1.0f / 720);
  p = __builtin_fmaf(p, r, 1.0f / 120);
  p = __builtin_fmaf(p, r, 1.0f / 24);
  p = __builtin_fmaf(p, r, 1.0f / 6);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  return __builtin_fmaf(p, r, 1.0f);
}

inline constexpr float kRoundFloat = 12582912.0f;  // 1.5 * 2^23: after adding it, the low bits are the nearest integer

/// y = k ln 2 + r with abs(r) <= ln(2)/2.
struct ExpParts {
  float r;
  uint32_t k;
};
TANDEM_HOST_DEVICE TANDEM_INLINED inline ExpParts exp_parts(float y) {
  const float shifted = __builtin_fmaf(y, 1.44269504f, kRoundFloat);
  const float n = shifted - kRoundFloat;
  return {__builtin_fmaf(n, 2.12194440e-4f, __builtin_fmaf(n, -0.693359375f, y)),
          std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRoundFloat)};
}

/// e^x for x <= 0 or NaN within 0.9 units in the last place: a fast form for softmax, attention and losses; exp_element
/// is more accurate. 2^k is one factor, 2^(k+64), if the result is scaled by 2^-64.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float exp_of_nonpositive(float x) {
  x = x < -104.0f ? -104.0f : x;
  const auto [r, k] = exp_parts(x);
  return exp_polynomial(r) * std::bit_cast<float>((k + 191u) << 23) * 0x1p-64f;
}
TANDEM_HOST_DEVICE inline double exp_of_nonpositive(double x) { return std::exp(x); }

/// 2^x and 1 / x within 2^-21, for results of half types: single instructions on GPUs. Subnormal numbers become 0.
TANDEM_HOST_DEVICE inline float approximate_exp2(float x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#else
  return std::exp2(x);
#endif
}
TANDEM_HOST_DEVICE inline float approximate_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#else
  return 1.0f / x;
#endif
}

/// e^x for x <= 0 in kernels on elements of type T; for half types with a relative error of 2^-21 + abs(x) * 2^-24.
template <class T, class C>
TANDEM_HOST_DEVICE inline C exp_for(C x) {
  if constexpr (kIsHalf<T>) {
    return approximate_exp2(x * 1.44269504f);
  } else {
    return exp_of_nonpositive(x);
  }
}

/// Operand of a kernel: elements in device memory, or one number in host memory.
struct Source {
  const void* data;
  bool is_number = false;

  Source(const void* elements, bool number = false) : data(elements), is_number(number) {}
};

/// The type of arithmetic on T: float for half types, unsigned for integers, where overflow wraps around.
template <class T>
using Compute = std::conditional_t<
    std::is_floating_point_v<T>, T,
    std::conditional_t<!std::is_integral_v<T>, float, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>>;

/// Converts a result of arithmetic to an element of type T.
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

/// The signed value of an integer, which formulas receive as unsigned.
template <class C>
TANDEM_HOST_DEVICE inline auto signed_value(C value) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<std::make_signed_t<C>>(value);
  } else {
    return value;
  }
}

/// The accepted dtypes and the compute dtype of an operation. Two operands are always promoted to one dtype first.
enum class DTypeRule : int8_t {
  kAny,         ///< every dtype
  kNotBool,     ///< DTypeError for bool
  kFloating,    ///< DTypeError unless floating
  kToFloating,  ///< integers and bools are converted to float32
  kIntegral,    ///< DTypeError for floating dtypes; no gradient
};

enum class Saves : int8_t { kNothing, kInput, kOutput };

/// out = f(input). A derived struct has
///
///     static constexpr const char* kName            the public name
///     auto operator()(auto x) const                 the formula of a float, double, uint32_t or uint64_t (integers)
///
/// and its gradient in one of two forms, where `saved` is the input or the output:
///
///     Tensor backward(const Tensor& grad, const Tensor& saved) const         in operations, which record themselves
///     auto gradient(auto g, auto saved) const                                g times the derivative, in one kernel
///     Tensor second_factor(const Tensor& saved) const                        d derivative / d saved; the default is 0
/// Optional:
///
///     void prepare(Tensor& input) const                              further checks and conversions of the argument
///     template <class T, class Run> void visit(const Run& run) const  calls run(f), where f computes elements of T;
///                                                                    for attributes, and formulas that depend on T
///     static auto kernel()                                           another description, whose kernels are used:
///                                                                    functions used rarely share kernels
/// A functor f may have a form for float without branches, f.fast(x), for abs(x) <= f.kFastLimit, and forms for half
/// types on GPUs, f.for_half(x) and f.gradient_for_half(g, saved), with approximate instructions.
template <Saves saves = Saves::kNothing, CastPolicy policy = CastPolicy::kWidest>
struct UnaryOp {
  static constexpr DTypeRule kDTypeRule = DTypeRule::kToFloating;
  static constexpr CastPolicy kCastPolicy = policy;
  static constexpr Saves kSaves = saves;
};

/// out = f(a, b) for tensors, or for a tensor and a number. A derived struct has kName and the formula, and unless it
/// returns bool
///
///     Tensor backward_a(const Tensor& grad, const Tensor& a, b) const          b is a Tensor or a Scalar
///     Tensor backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor& out) const
///
/// which return tensors of the result's shape; tensors that are not saved are undefined. Optional: visit and kernel as
/// in UnaryOp, and
///
///     void check(const char* name, const Tensor& a) const            after promotion
struct BinaryOp {
  enum Argument : unsigned { kA = 1, kB = 2, kOut = 4 };
  static constexpr const char* kArguments[] = {"a", "b"};
  static constexpr DTypeRule kDTypeRule = DTypeRule::kAny;
  static constexpr CastPolicy kCastPolicy = CastPolicy::kWidest;
  static constexpr bool kReturnsBool = false;
  static constexpr unsigned kSavedForA = 0;  ///< tensors that backward_a needs
  static constexpr unsigned kSavedForB = 0;
};

/// out = f(a, b, c) for tensors. A derived struct has kName, kArguments, the formula and
///
///     Tensor backward(int i, const Tensor& grad, const Tensor& a, b, c) const    the gradient of argument i
///
/// which returns a tensor of the result's shape, from the tensors that kSavedFor[i] names (1: a, 2: b, 4: c). Optional:
/// visit and check as in BinaryOp.
struct TernaryOp {
  static constexpr DTypeRule kDTypeRule = DTypeRule::kFloating;
};

/// The description whose kernels compute `op`.
template <class Op>
decltype(auto) kernel_of(const Op& op) {
  if constexpr (requires { Op::kernel(); }) {
    return Op::kernel();
  } else {
    return op;
  }
}

/// Calls run(f), where f is the functor of `op` for elements of type T.
template <class T, class Op, class Run>
void visit_formula(const Op& op, const Run& run) {
  if constexpr (requires { op.template visit<T>(run); }) {
    op.template visit<T>(run);
  } else {
    run(op);
  }
}

/// visit_dtype restricted to the compute dtypes of Op.
template <class Op, class F>
void visit_dtype_of(DType dtype, const F& f) {
  if constexpr (Op::kDTypeRule == DTypeRule::kFloating || Op::kDTypeRule == DTypeRule::kToFloating) {
    visit_floating_dtype(dtype, f);
  } else {
    visit_dtype(dtype, [&]<class T>() {
      if constexpr (Op::kDTypeRule != DTypeRule::kIntegral || std::is_integral_v<T>) f.template operator()<T>();
    });
  }
}

/// Whether Op has `gradient`, its derivative as a formula.
template <class Op>
inline constexpr bool kHasGradientKernel = !requires(Op op, const Tensor& tensor) {
  op.backward(tensor, tensor);
};

/// The gradient formula as a functor of two elements (g, saved).
template <class F>
struct GradientOf {
  F f;
  template <class C>
  TANDEM_FORMULA C operator()(C g, C saved) const {
    return f.gradient(g, saved);
  }
  TANDEM_FORMULA float for_half(float g, float saved) const requires requires { f.gradient_for_half(g, saved); }
  { return f.gradient_for_half(g, saved); }
};

TANDEM_KERNELS(
    /// out = op(a); both have `dtype`.
    template <class Op> void unary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<2>& loop,
                                   const void* a, void* out);
    /// out = grad times the derivative of op. Floating dtypes.
    template <class Op> void unary_gradient(const KernelContext& context, const Op& op, DType dtype,
                                            const StridedLoop<3>& loop, const void* grad, const void* saved, void* out);
    /// out = op(a, b); a and b have `dtype`. a or b may be the same memory as out.
    template <class Op> void binary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<3>& loop,
                                    Source a, Source b, void* out);
    /// out = op(a, b, c); all have `dtype`.
    template <class Op>
    void ternary(const KernelContext& context, const Op& op, DType dtype, const StridedLoop<4>& loop, const void* a,
                 const void* b, const void* c, void* out);
    /// out = a + b for n elements; b has the half type `dtype`.
    void add_half(const KernelContext& context, DType dtype, int64_t n, const float* a, const void* b, float* out);
    /// out = condition ? a : b, for elements of `element_bytes` (1, 2, 4 or 8).
    void where(const KernelContext& context, int64_t element_bytes, const StridedLoop<4>& loop, const void* condition,
               Source a, Source b, void* out);)

}}  // namespace tandem::v0

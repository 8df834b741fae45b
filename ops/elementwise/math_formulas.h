// Formulas of single elements for math and activation functions. Private to ops/.
//
// The float forms have no branches, so that the compiler vectorizes loops over them. They select by masks computed from
// the bits: the compiler would turn comparisons of floats into branches. Polynomials without another source were fitted
// at Chebyshev points. The relative error of an exponential is the absolute error of its argument, so large arguments
// are represented as an unevaluated sum of two floats.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <tandem/ops/elementwise/elementwise_kernels.h>

namespace tandem { inline namespace v0 {

/// high + low, where low is below half a unit in the last place of high.
struct FloatPair {
  float high;
  float low;
};
inline constexpr FloatPair kInverseLn2 = {0x1.715476p+0f, 0x1.4ae0c0p-26f};  // 1 / ln 2
inline constexpr FloatPair kLn2 = {0x1.62e43p-1f, -0x1.05c61p-29f};

/// The type in which functions of the C library are computed. On CPUs its functions of double take as long as those of
/// float, and their results rounded to float are within 0.501 ulp.
#ifdef __CUDA_ARCH__
template <class C>
using LibraryType = C;
#else
template <class C>
using LibraryType = double;
#endif

// --- selections ----------------------------------------------------------------------------------

/// All ones if the highest bit is set, else zero.
TANDEM_HOST_DEVICE inline uint32_t sign_mask(uint32_t bits) {
  return static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
}
/// condition ? a : b, where both are computed.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float choose(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & mask) | (std::bit_cast<uint32_t>(b) & ~mask));
}
TANDEM_HOST_DEVICE TANDEM_INLINED inline double choose(bool condition, double a, double b) {
  const uint64_t mask = uint64_t{0} - static_cast<uint64_t>(condition);
  return std::bit_cast<double>((std::bit_cast<uint64_t>(a) & mask) | (std::bit_cast<uint64_t>(b) & ~mask));
}
/// min(abs(x), limit) for limit >= 0; `limit` for NaN.
TANDEM_HOST_DEVICE inline float magnitude_up_to(float x, float limit) {
  return std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x) & 0x7fffffffu, std::bit_cast<uint32_t>(limit)));
}
/// a if x has a minus sign, else b.
TANDEM_HOST_DEVICE inline float by_sign(float x, float a, float b) {
  const uint32_t negative = sign_mask(std::bit_cast<uint32_t>(x));
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & negative) | (std::bit_cast<uint32_t>(b) & ~negative));
}
/// `value`, or NaN if x is NaN.
TANDEM_HOST_DEVICE inline float nan_of(float x, float value) {
  const uint32_t is_nan = sign_mask(0x7f800000u - (std::bit_cast<uint32_t>(x) & 0x7fffffffu));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | is_nan);
}
/// a if abs(x) < limit, else b (also for NaN).
TANDEM_HOST_DEVICE inline float if_below(float x, float limit, float a, float b) {
  const uint32_t below = sign_mask((std::bit_cast<uint32_t>(x) & 0x7fffffffu) - std::bit_cast<uint32_t>(limit));
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & below) | (std::bit_cast<uint32_t>(b) & ~below));
}

// --- exponentials --------------------------------------------------------------------------------

/// e^r = 1 + r + r^2 exp_rest(r) for abs(r) <= ln(2)/2, with a relative error of 4.2e-9. For y >= 1/4 and the nearest
/// integer n to y / ln 2, fma(n, -kLn2.high, y) is exact; the rest of y - n ln 2 is -n kLn2.low.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float exp_rest(float r) {
  float p = 1.38045440e-3f;
  p = __builtin_fmaf(p, r, 8.37063789e-3f);
  p = __builtin_fmaf(p, r, 4.16687317e-2f);
  p = __builtin_fmaf(p, r, 1.66665003e-1f);
  return __builtin_fmaf(p, r, 4.99999911e-1f);
}

/// e^r = 1 + r + r^2 / 2 + r^3 exp_cubic(r) for abs(r) <= ln(2)/2, with a relative error of 1e-10.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float exp_cubic(float r) {
  float p = 1.97402842e-4f;
  p = __builtin_fmaf(p, r, 1.39350863e-3f);
  p = __builtin_fmaf(p, r, 8.33357032e-3f);
  p = __builtin_fmaf(p, r, 4.1666463e-2f);
  return __builtin_fmaf(p, r, 1.66666657e-1f);
}

/// e^y = 2^k (sum + rest), where sum = 1 + r is rounded. Only the lowest 9 bits of k are valid.
struct ExpSum {
  float sum, rest;
  uint32_t k;
};
TANDEM_HOST_DEVICE TANDEM_INLINED inline ExpSum exp_sum(float y) {
  const float shifted = __builtin_fmaf(y, kInverseLn2.high, kRoundFloat), n = shifted - kRoundFloat;
  const float r = __builtin_fmaf(n, -kLn2.high, y), square = r * r, sum = 1.0f + r;
  const float low = __builtin_fmaf(n * -kLn2.low, __builtin_fmaf(0.5f, square, sum), 1.0f - sum + r);
  const float rest = __builtin_fmaf(0.5f, square, __builtin_fmaf(square, exp_cubic(r) * r, low));
  return {sum, rest, std::bit_cast<uint32_t>(shifted)};
}

/// e^x. 2^k is a product of two factors, because k is between -150 (subnormal results) and 150 (infinity).
TANDEM_HOST_DEVICE inline float exp_element(float x) {
  const ExpSum e = exp_sum(choose(std::fabs(x) > 104.0f, std::copysign(104.0f, x), x));  // keeps NaN
  const uint32_t twice = (e.k + 254u) << 22, factor = twice & 0xff800000u;
  return (e.sum + e.rest) * std::bit_cast<float>(factor) * std::bit_cast<float>(twice + twice - factor);
}
TANDEM_HOST_DEVICE inline double exp_element(double x) { return std::exp(x); }

/// 2^f for abs(f) <= 1/2, with a relative error of 3e-9.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float exp2_fraction(float f) {
  float p = 1.53293106e-4f;
  p = __builtin_fmaf(p, f, 1.33909704e-3f);
  p = __builtin_fmaf(p, f, 9.61849932e-3f);
  p = __builtin_fmaf(p, f, 5.55035956e-2f);
  p = __builtin_fmaf(p, f, 2.40226477e-1f);
  p = __builtin_fmaf(p, f, 6.93147182e-1f);
  return __builtin_fmaf(p, f, 1.0f);
}

/// 2^-(w.high + w.low) for w >= 0; 0 below 2^-126.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float exp2_of_minus(FloatPair w) {
  const float high = -magnitude_up_to(w.high, 127.0f);
  const float shifted = high + kRoundFloat;
  const float p = exp2_fraction((high - (shifted - kRoundFloat)) - w.low);
  const uint32_t n = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRoundFloat);
  return p * std::bit_cast<float>((n + 127u) << 23);  // the lowest n gives the factor 0
}

/// 2^x, as exp_element.
TANDEM_HOST_DEVICE inline float exp2_element(float x) {
  const float low = choose(x < -151.0f, -151.0f, x);
  const float y = choose(low > 129.0f, 129.0f, low);
  const float shifted = y + kRoundFloat;
  const float p = exp2_fraction(y - (shifted - kRoundFloat));
  const uint32_t k = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRoundFloat);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(k) >> 1);
  return p * std::bit_cast<float>((half + 127u) << 23) * std::bit_cast<float>((k - half + 127u) << 23);
}
TANDEM_HOST_DEVICE inline double exp2_element(double x) { return std::exp2(x); }

/// (e^x - 1) factor, where e^x - 1 = 2^k (e^r - 1) + (2^k - 1); half of it is computed, because 2^128 is not a float.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float scaled_expm1(float x, float factor) {
  const float above = choose(x < -30.0f, -30.0f, x), y = choose(above > 89.0f, 89.0f, above);  // keeps NaN
  const float shifted = __builtin_fmaf(y, kInverseLn2.high, kRoundFloat), n = shifted - kRoundFloat;
  const float r = __builtin_fmaf(n, -kLn2.low, __builtin_fmaf(n, -kLn2.high, y));
  const float rest = r * r * __builtin_fmaf(exp_cubic(r), r, 0.5f);
  const float scale = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 126u) << 23);  // 2^(k-1)
  const float first = scale - 0.5f, first_low = scale - first - 0.5f, sum = __builtin_fmaf(r, scale, first);
  const float low = __builtin_fmaf(rest, scale, __builtin_fmaf(r, scale, first - sum) + first_low);
  return if_below(x, 0x1p-25f, x * factor, __builtin_fmaf(2.0f * factor, sum, 2.0f * factor * low));
}
TANDEM_HOST_DEVICE inline double scaled_expm1(double x, double factor) { return std::expm1(x) * factor; }

// --- logarithms ----------------------------------------------------------------------------------

/// x = 2^n c (1 + f) with abs(f) <= 0.2, where c is 4/3 if all bits of `thirds` are set, else 1.
struct LogParts {
  float n, f;
  uint32_t thirds;
};
TANDEM_HOST_DEVICE TANDEM_INLINED inline LogParts log_parts(float x) {
  constexpr uint32_t kFirst = 0x3f4ccccdu, kSecond = 0x3f99999au;  // 0.8 and 1.2
  const uint32_t original = std::bit_cast<uint32_t>(x), is_subnormal = sign_mask(original - 0x00800000u);  // if x > 0
  const float scale = std::bit_cast<float>(0x3f800000u + (is_subnormal & (23u << 23)));                    // 2^23 or 1
  const uint32_t bits = std::bit_cast<uint32_t>(x * scale), exponent = bits - kFirst;
  const uint32_t significand = bits - (exponent & 0xff800000u), thirds = sign_mask(kSecond - significand);
  const float inverse = std::bit_cast<float>(0x3f800000u ^ (thirds & 0x00c00000u));  // 3/4 or 1
  return {static_cast<float>((static_cast<int32_t>(exponent) >> 23) - static_cast<int32_t>(is_subnormal & 23u)),
          __builtin_fmaf(std::bit_cast<float>(significand), inverse, -1.0f), thirds};
}

/// log(x) + correction for a small correction (-0: zero), in the base whose logarithms of 2, 4/3 and e are given; the
/// high parts of the first two have few bits, so that n two.high + third.high is exact. log(1 + f) = f - f^2 / 2 +
/// f^3 P(f) is added to it as a sum of two floats.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float log_of(float x, const LogParts& parts, FloatPair two, FloatPair third,
                                                      FloatPair e, float correction) {
  const float n = parts.n, f = parts.f;
  float p = 0.120226733f;
  p = __builtin_fmaf(p, f, -0.133552596f);
  p = __builtin_fmaf(p, f, 0.142550111f);
  p = __builtin_fmaf(p, f, -0.166447312f);
  p = __builtin_fmaf(p, f, 0.20000419f);
  p = __builtin_fmaf(p, f, -0.250001669f);
  p = __builtin_fmaf(p, f, 0.333333313f);
  const float half = -0.5f * f, high = __builtin_fmaf(half, f, f);
  const float rest = __builtin_fmaf(f * f, f * p, __builtin_fmaf(half, f, f - high));
  const float third_high = std::bit_cast<float>(std::bit_cast<uint32_t>(third.high) & parts.thirds);
  const float third_low = std::bit_cast<float>(std::bit_cast<uint32_t>(third.low) & parts.thirds);
  const float whole = __builtin_fmaf(n, two.high, third_high), sum = __builtin_fmaf(high, e.high, whole);
  const float low = __builtin_fmaf(high, e.high, whole - sum) + third_low;
  const float small = __builtin_fmaf(n, two.low, low) + correction;
  const float value = sum + __builtin_fmaf(rest, e.high, e.low == 0 ? small : __builtin_fmaf(high, e.low, small));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float positive = choose(x < kInfinity, value, x);
  return choose(x > 0.0f, positive, choose(x == 0.0f, -kInfinity, std::numeric_limits<float>::quiet_NaN()));
}
TANDEM_HOST_DEVICE TANDEM_INLINED inline float log_of(float x, const LogParts& parts, float correction) {
  return log_of(x, parts, {0.693359375f, -2.12194440e-4f}, {0x1.2698p-2f, -0x1.deecb2p-18f}, {1.0f, 0.0f}, correction);
}
TANDEM_HOST_DEVICE inline float log_element(float x) { return log_of(x, log_parts(x), -0.0f); }
TANDEM_HOST_DEVICE inline double log_element(double x) { return std::log(x); }
TANDEM_HOST_DEVICE inline float log2_element(float x) {
  return log_of(x, log_parts(x), {1.0f, 0.0f}, {0x1.a9p-2f, -0x1.a39fbep-20f}, kInverseLn2, -0.0f);
}
TANDEM_HOST_DEVICE inline double log2_element(double x) { return std::log2(x); }
TANDEM_HOST_DEVICE inline float log10_element(float x) {
  return log_of(x, log_parts(x), {0x1.348p-2f, -0x1.f657bp-13f}, {0x1.ffcp-4f, -0x1.ea21c4p-23f},
                {0x1.bcb7b2p-2f, -0x1.5b235ep-27f}, -0.0f);
}
TANDEM_HOST_DEVICE inline double log10_element(double x) { return std::log10(x); }

/// log(1 + x): f = x for small x. Otherwise log(u) for the rounded u = 1 + x, plus the rounding error of u over u.
TANDEM_HOST_DEVICE inline float log1p_element(float x) {
  const float u = 1.0f + x;
  const bool is_small = std::fabs(x) < 0.19f;
  LogParts parts = log_parts(u);
  parts.f = choose(is_small, x, parts.f);
  return std::copysign(log_of(u, parts, choose(is_small, 0.0f, (x - (u - 1.0f)) / u)), x);
}
TANDEM_HOST_DEVICE inline double log1p_element(double x) { return std::log1p(x); }

/// base + log(1 + e^-a) for a >= 0 or NaN: with e = e^-a and s = e / (2 + e), the logarithm is 2 atanh(s), rearranged
/// as e minus a smaller term. The rounding error of e is added, times 3/4, which is close to the derivative.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float log1p_exp_of_minus(float a, float base = 0.0f) {
  const ExpSum parts = exp_sum(choose(a > 104.0f, -104.0f, -a));
  const float scale = std::bit_cast<float>((parts.k + 191u) << 23), rounded = parts.sum + parts.rest;
  const float e = rounded * scale * 0x1p-64f, error = parts.sum - rounded + parts.rest;
  const float s = e / (2.0f + e), z = s * s;
  float p = 0.232243292f;
  p = __builtin_fmaf(p, z, 0.217065758f);
  p = __builtin_fmaf(p, z, 0.28592358f);
  p = __builtin_fmaf(p, z, 0.399997063f);
  p = __builtin_fmaf(p, z, 0.666666673f);
  return e + __builtin_fmaf(-s, __builtin_fmaf(-p, z, e), __builtin_fmaf(error, scale * 0x1.8p-65f, base));
}
TANDEM_HOST_DEVICE inline double log1p_exp_of_minus(double a, double base = 0) {
  return base + std::log1p(std::exp(-a));
}

/// log(1 + e^x), without overflow.
template <class C>
TANDEM_HOST_DEVICE TANDEM_INLINED inline C softplus_element(C x) {
  return log1p_exp_of_minus(std::fabs(x), choose(x > C{0}, x, C{0}));
}

// --- powers --------------------------------------------------------------------------------------

/// x^y within 1.1 units in the last place, as std::pow for zeros, infinities and NaN: 2^(y log2(abs(x))), where the
/// exponent is computed in float64.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float pow_element(float x, float y) {
#if defined(__CUDA_ARCH__)
  return std::pow(x, y);  // GPUs have few units for float64
#else
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // a = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log2(1 + f) = 2 / ln 2 atanh(s).
  const float a = std::fabs(x);
  const bool is_subnormal = a < 0x1p-126f;
  const uint32_t bits = std::bit_cast<uint32_t>(a * choose(is_subnormal, 0x1p23f, 1.0f));
  const int32_t k = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const double f = static_cast<double>(std::bit_cast<float>(bits - (static_cast<uint32_t>(k) << 23)) - 1.0f);
  const double s = f / (2 + f), z = s * s;
  double p = 1.0 / 15;
  for (int i = 13; i >= 1; i -= 2) p = __builtin_fma(p, z, 1.0 / i);
  const float finite = choose(a == 0, -kInfinity, static_cast<float>(k) - choose(is_subnormal, 23.0f, 0.0f));
  const double n = static_cast<double>(choose(a < kInfinity, finite, a));
  const double log = __builtin_fma(s * (2 * std::numbers::log2e), p, n);
  // 0 log(x) and y log(1) are 0, also where the other factor is infinite or NaN.
  const bool is_one = (y == 0) | ((a == 1) & (y == y));
  const double exponent = choose(is_one, 0.0, static_cast<double>(y) * log);
  const double low = choose(exponent < -151, -151.0, exponent), bounded = choose(low > 129, 129.0, low);
  const double whole = (bounded + 0x1.8p52) - 0x1.8p52;
  const float power = exp2_fraction(static_cast<float>(bounded - whole));
  const uint32_t e = std::bit_cast<uint32_t>(static_cast<float>(whole) + kRoundFloat) - 0x4b400000u;
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(e) >> 1);
  const float size = power * std::bit_cast<float>((half + 127u) << 23) * std::bit_cast<float>((e - half + 127u) << 23);
  const float half_y = y * 0.5f;
  const bool is_integer = std::floor(y) == y, is_odd = is_integer & (std::floor(half_y) != half_y);
  const float value = choose(is_odd, std::copysign(size, x), size);
  const float no_number =
      choose((x < 0) & (a < kInfinity) & !is_integer, std::numeric_limits<float>::quiet_NaN(), value);
  return choose(x == 1, 1.0f, no_number);
#endif
}
TANDEM_HOST_DEVICE inline double pow_element(double x, double y) { return std::pow(x, y); }

// --- sine and cosine -----------------------------------------------------------------------------

/// sin(x + shift pi / 2) for abs(x) <= kMaxFastAngle, within 0.51 units in the last place: in float64, with pi/2 as a
/// sum of two numbers. x = q pi/2 + r with abs(r) <= pi/4.
inline constexpr float kMaxFastAngle = 0x1p40f;
template <uint32_t shift>
TANDEM_HOST_DEVICE TANDEM_INLINED inline float fast_sine(float x) {
  constexpr double kRound = 0x1.8p52;  // after adding it, the low bits are the nearest integer
  const double wide = static_cast<double>(x);
  const double shifted = __builtin_fma(wide, 0x1.45f306dc9c883p-1, kRound), q = shifted - kRound;
  const double r = __builtin_fma(q, -0x1.1a62633145c07p-54, __builtin_fma(q, -0x1.921fb54442d18p+0, wide)), z = r * r;
  double s = 2.7173456863692396e-06;
  s = __builtin_fma(s, z, -0.0001983920232933422);
  s = __builtin_fma(s, z, 0.0083333287833591389);
  s = __builtin_fma(s, z, -0.16666666631607768);
  s = __builtin_fma(s, z, 0.99999999999567735);
  double c = 2.439036936438127e-05;
  c = __builtin_fma(c, z, -0.0013886762951634127);
  c = __builtin_fma(c, z, 0.041666623298539353);
  c = __builtin_fma(c, z, -0.49999999724889937);
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted) + shift;
  const double value = choose((quadrant & 1) != 0, __builtin_fma(c, z, 1.0), r * s);
  return static_cast<float>(std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ ((quadrant & 2) << 62)));
}

// --- error function ------------------------------------------------------------------------------

/// Phi(-b) and its exponential factor exp(-b^2 / 2), where Phi is the standard normal distribution function.
struct NormalTail {
  float tail;
  float exponential;
};

/// scale a^2.
TANDEM_HOST_DEVICE TANDEM_INLINED inline FloatPair scaled_square(float a, FloatPair scale) {
  const float q = a * a, q_low = __builtin_fmaf(a, a, -q), w = scale.high * q;
  return {w, __builtin_fmaf(scale.high, q, -w) + __builtin_fmaf(scale.low, q, scale.high * q_low)};
}

/// Both for 0 <= b <= 16 sqrt(2), given b + 2.5 and a with exp(-b^2 / 2) = 2^(-scale a^2).
///
/// Phi(-b) = exp(-b^2 / 2) r P(1 - 5 r) with r = 1 / (b + 2.5), which maps the half line to an interval on which
/// Phi(-b) / (exp(-b^2 / 2) r) is smooth and nearly constant. P has a relative error of 2e-8.
TANDEM_HOST_DEVICE TANDEM_INLINED inline NormalTail normal_tail(float b_shifted, float a, FloatPair scale) {
  const float e = exp2_of_minus(scaled_square(a, scale));
  const float r = 1.0f / b_shifted;
  const float t = __builtin_fmaf(-5.0f, r, 1.0f);
  float p = -1.58118832e-4f;
  p = __builtin_fmaf(p, t, -3.13274935e-4f);
  p = __builtin_fmaf(p, t, 6.83511828e-4f);
  p = __builtin_fmaf(p, t, 2.52552609e-3f);
  p = __builtin_fmaf(p, t, -1.59968822e-3f);
  p = __builtin_fmaf(p, t, -1.63866664e-2f);
  p = __builtin_fmaf(p, t, 9.23553745e-3f);
  p = __builtin_fmaf(p, t, 1.31987027e-1f);
  p = __builtin_fmaf(p, t, -4.33691988e-1f);
  p = __builtin_fmaf(p, t, 7.06656659e-1f);
  return {e * (p * r), e};
}

/// erf(x) / x - 1 for abs(x) < 1.2 is a polynomial in x^2 - 0.75, so that its terms are small.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float erf_of_small(float x) {
  const float z = x * x, t = (z - 0.75f) + __builtin_fmaf(x, x, -z);
  float p = -7.52795222e-6f;
  p = __builtin_fmaf(p, t, 6.41200459e-5f);
  p = __builtin_fmaf(p, t, -4.55735251e-4f);
  p = __builtin_fmaf(p, t, 2.84689921e-3f);
  p = __builtin_fmaf(p, t, -1.51310712e-2f);
  p = __builtin_fmaf(p, t, 6.6918917e-2f);
  p = __builtin_fmaf(p, t, -2.4458842e-1f);
  p = __builtin_fmaf(p, t, -1.00108802e-1f);
  return __builtin_fmaf(x, p, x);
}
TANDEM_HOST_DEVICE inline float erf_element(float x) {
  const float a = magnitude_up_to(x, 16.0f);
  const float tail = normal_tail(__builtin_fmaf(a, std::numbers::sqrt2_v<float>, 2.5f), a, kInverseLn2).tail;
  return nan_of(x, if_below(x, 1.2f, erf_of_small(x), std::copysign(1.0f - 2.0f * tail, x)));
}
/// Beyond 0.4769, erfc(a) / 2 = exp(-a^2) r P for r = 1 / (a + 1.5), where P is fitted up to a = 9.25, with a relative
/// error of 2e-10. Both factors are sums of two floats: exp(-a^2) = 2^n (1 + f + g) (1 + f_low), r P = m + m_low. The
/// rounding error of r changes r P by 1 + kSlope r times its relative size. kConstant is a multiple of 2^-24 so that
/// kConstant - line is exact; kConstant, kLinear and the factor in t were chosen together, so that P and its slope at
/// t = 0 are as precise as the other terms.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float erfc_element(float x) {
  constexpr float kShift = 1.5f, kConstant = 0.238349438f, kLinear = 0.730026364f, kSlope = 1.49f;
  const float a = magnitude_up_to(x, 11.0f), z = a * a;
  const float shifted = __builtin_fmaf(-kInverseLn2.high, z, kRoundFloat), n = shifted - kRoundFloat;
  const float f = __builtin_fmaf(n, -kLn2.high, -z);
  const float f_low = __builtin_fmaf(n, -kLn2.low, __builtin_fmaf(-a, a, z));
  const float g = exp_rest(f) * (f * f);
  const float factor = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + ((64u + 127u) << 23));
  const float b = a + kShift, b_low = a - (b - kShift);
  const float r = 1.0f / b, r_error = __builtin_fmaf(-r, b_low, __builtin_fmaf(-r, b, 1.0f));  // relative
  const float t = __builtin_fmaf(-3.43060875f, r, 1.0f), square = t * t;
  float p = -3.73665607e-5f;
  p = __builtin_fmaf(p, t, -7.26861981e-5f);
  p = __builtin_fmaf(p, t, 9.60108664e-5f);
  p = __builtin_fmaf(p, t, 5.01458941e-4f);
  p = __builtin_fmaf(p, t, 2.51139165e-4f);
  p = __builtin_fmaf(p, t, -2.40129535e-3f);
  p = __builtin_fmaf(p, t, -4.12641605e-3f);
  p = __builtin_fmaf(p, t, 1.41054345e-2f);
  p = __builtin_fmaf(p, t, 3.54266092e-2f);
  const float line = __builtin_fmaf(kLinear, r, kConstant);
  const float high = __builtin_fmaf(p, square, line);
  const float low = __builtin_fmaf(p, square, line - high) + __builtin_fmaf(kLinear, r, kConstant - line);
  const float m = high * r;
  const float relative = __builtin_fmaf(r_error, __builtin_fmaf(kSlope, r, 1.0f), f_low);
  const float m_low = __builtin_fmaf(m, relative, __builtin_fmaf(r, low, __builtin_fmaf(high, r, -m)));
  const float sum = __builtin_fmaf(f, m, m), sum_low = __builtin_fmaf(g, m, __builtin_fmaf(f, m, m - sum));
  const float tail = factor * (sum + __builtin_fmaf(1.0f + (f + g), m_low, sum_low)) * 0x1p-63f;  // may be subnormal
  float e = 4.73647472e-3f;
  e = __builtin_fmaf(e, z, -2.67640129e-2f);
  e = __builtin_fmaf(e, z, 1.12828955e-1f);
  e = __builtin_fmaf(e, z, -3.76126111e-1f);
  e = __builtin_fmaf(e, z, 1.28379166e-1f);
  const float near = 1.0f - x, small = near + __builtin_fmaf(-x, e, (1.0f - near) - x);
  return nan_of(x, choose(a < 0.4769f, small, by_sign(x, 2.0f - tail, tail)));
}
TANDEM_HOST_DEVICE inline double erfc_element(double x) { return std::erfc(x); }
TANDEM_HOST_DEVICE inline double erf_element(double x) { return std::erf(x); }

TANDEM_HOST_DEVICE TANDEM_INLINED inline float sigmoid_element(float x) {
  const float e = exp_of_nonpositive(-std::fabs(x));
  return by_sign(x, e, 1.0f) / (1.0f + e);
}

/// An odd polynomial below 0.4, else 1 - q for q = 2 / (1 + e^2a) = 2 / (1 + 2^n (1 + p + p_low)). The rounded quotient
/// is replaced by q = 1 - s, a multiple of 2^-24, so that q (1 + 2^n) - 2 is exact; then s gets the error of q.
TANDEM_HOST_DEVICE TANDEM_INLINED inline float tanh_element(float x) {
  const float a = magnitude_up_to(x, 10.0f), z = a * a;
  const float shifted = __builtin_fmaf(a, 2 * kInverseLn2.high, kRoundFloat), n = shifted - kRoundFloat;
  const float r = __builtin_fmaf(n, -kLn2.high, a + a), square = r * r, rest = exp_rest(r);
  const float p = __builtin_fmaf(square, rest, r);
  const float p_low = __builtin_fmaf(square, rest, __builtin_fmaf(n, -kLn2.low, r - p));
  const float scale = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
  const float one = 1.0f + scale, half = 1.0f / __builtin_fmaf(scale, p, one);
  const float s = __builtin_fmaf(-2.0f, half, 1.0f), q = 1.0f - s, w = q * scale;
  const float error = __builtin_fmaf(w, p_low, __builtin_fmaf(w, p, __builtin_fmaf(q, one, -2.0f)));
  float c = 1.87410880e-2f;
  c = __builtin_fmaf(c, z, -5.35611287e-2f);
  c = __builtin_fmaf(c, z, 1.33312076e-1f);
  c = __builtin_fmaf(c, z, -3.33332986e-1f);
  const float small = __builtin_fmaf(a * z, c, a), large = __builtin_fmaf(half, error, s);
  return nan_of(x, std::copysign(choose(a < 0.4f, small, large), x));
}

TANDEM_HOST_DEVICE inline double sigmoid_element(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
TANDEM_HOST_DEVICE inline double tanh_element(double x) { return std::tanh(x); }

/// The inverse of erf: an approximation with a relative error of 2e-3 (S. Winitzki, "A handy approximation for the
/// error function and its inverse", 2008), improved by two steps of Halley's method.
TANDEM_HOST_DEVICE inline double erfinv_element(double y) {
  const double magnitude = std::fabs(y);
  if (!(magnitude < 1)) return magnitude == 1 ? y * std::numeric_limits<double>::infinity() : NAN;
  constexpr double kA = 0.147;
  const double log = std::log1p(-y * y);
  const double half = 2 / (std::numbers::pi * kA) + log / 2;
  double x = std::sqrt(std::fmax(std::sqrt(half * half - log / kA) - half, 0));
  for (int step = 0; step < 2; ++step) {
    const double error = magnitude > 0.5 ? (1 - magnitude) - std::erfc(x) : std::erf(x) - magnitude;
    const double newton = error / (2 * std::numbers::inv_sqrtpi * std::exp(-x * x));
    x -= newton / (1 + x * newton);
  }
  return std::copysign(x, y);
}
TANDEM_HOST_DEVICE inline float erfinv_element(float y) {
  return static_cast<float>(erfinv_element(static_cast<double>(y)));
}

}}  // namespace tandem::v0

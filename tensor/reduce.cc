#include <tandem/tensor/reduce.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include <tandem/tensor/reduce_halves_avx2.h>

namespace tandem { inline namespace v0 {

const char* to_string(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "bitand", "bitor", "bitxor"};
  return kNames[static_cast<int>(op)];
}

}}  // namespace tandem::v0

namespace tandem { inline namespace v0 { namespace primitives {

namespace {

constexpr bool is_power_of_two(size_t n) { return (n & (n - 1)) == 0; }

/// Accumulation type of T.
template <class T>
using Sum = std::conditional_t<kIsHalf<T>, float, T>;

// Unsigned arithmetic, because signed overflow is undefined behaviour.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::common_type_t<unsigned, std::make_unsigned_t<T>>;  // uint16_t promotes to int, which overflows
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

template <ReduceOp op, class T>
T combine(T a, T b) {
  if constexpr (op == ReduceOp::kProduct) return multiply(a, b);
  if constexpr (op == ReduceOp::kBitAnd) return static_cast<T>(a & b);
  if constexpr (op == ReduceOp::kBitOr) return static_cast<T>(a | b);
  if constexpr (op == ReduceOp::kBitXor) return static_cast<T>(a ^ b);
  if constexpr (op == ReduceOp::kMin) return a < b || a != a ? a : b;
  if constexpr (op == ReduceOp::kMax) return a > b || a != a ? a : b;
  return add(a, b);
}

/// The division of kAvg. For a power of two, multiplication by the inverse is exact and faster.
template <class T>
struct Divide {
  T divisor;
  T inverse;
  bool exact;
  explicit Divide(size_t n)
      : divisor(static_cast<T>(n)), inverse(T(1) / static_cast<T>(n)), exact(is_power_of_two(n)) {}
};

/// Combines the inputs one after the other, by tiles that stay in the L1 cache.
template <ReduceOp op, class T>
void reduce_tiles(std::span<const std::byte* const> inputs, int64_t count, T* out) {
  constexpr int64_t kTile = 512;
  Sum<T> sums[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t n = std::min(kTile, count - begin);
    const T* first = reinterpret_cast<const T*>(inputs[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Sum<T>>(first[i]);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const T* in = reinterpret_cast<const T*>(inputs[rank]) + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] = combine<op>(sums[i], static_cast<Sum<T>>(in[i]));
    }
    if constexpr (op == ReduceOp::kAvg) {
      const Divide<Sum<T>> divide(inputs.size());
      if (divide.exact) {
        for (int64_t i = 0; i < n; ++i) sums[i] *= divide.inverse;
      } else {
        for (int64_t i = 0; i < n; ++i) sums[i] /= divide.divisor;
      }
    }
    T* to = out + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sums[i]);
  }
}

/// Two inputs of a type that is its own accumulation type, in one pass.
template <ReduceOp op, class T>
void reduce_two(const T* a, const T* b, int64_t count, T* out) {
  const auto finish = [](T sum) {
    if constexpr (op == ReduceOp::kAvg) return sum * T(0.5);
    return sum;
  };
  // ivdep: `out` may be equal to `a` or `b`, in which the compiler would see a dependence between iterations.
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = finish(combine<op>(a[i], b[i]));
}

template <ReduceOp op, class T>
void reduce_typed(std::span<const std::byte* const> inputs, int64_t count, std::byte* out) {
  T* to = reinterpret_cast<T*>(out);
  if constexpr (!kIsHalf<T>) {
    if (inputs.size() == 2) {
      reduce_two<op>(reinterpret_cast<const T*>(inputs[0]), reinterpret_cast<const T*>(inputs[1]), count, to);
      return;
    }
  }
  reduce_tiles<op>(inputs, count, to);
}

template <class T>
void reduce_bits(ReduceOp op, std::span<const std::byte* const> inputs, int64_t count, std::byte* out) {
  if (op == ReduceOp::kBitAnd) return reduce_typed<ReduceOp::kBitAnd, T>(inputs, count, out);
  if (op == ReduceOp::kBitOr) return reduce_typed<ReduceOp::kBitOr, T>(inputs, count, out);
  reduce_typed<ReduceOp::kBitXor, T>(inputs, count, out);
}

#if defined(__x86_64__)
/// Returns the number of reduced elements.
int64_t reduce_halves(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count,
                      std::byte* out) {
  const HalfType type = dtype == kFloat16 ? HalfType::kFloat16 : HalfType::kBFloat16;
  float number = 0;
  HalfOp half_op = HalfOp::kSum;
  if (op == ReduceOp::kProduct) half_op = HalfOp::kProduct;
  if (op == ReduceOp::kMin) half_op = HalfOp::kMin;
  if (op == ReduceOp::kMax) half_op = HalfOp::kMax;
  if (op == ReduceOp::kAvg) {
    const Divide<float> divide(inputs.size());
    half_op = divide.exact ? HalfOp::kScaledSum : HalfOp::kDividedSum;
    number = divide.exact ? divide.inverse : divide.divisor;
  }
  return static_cast<int64_t>(
      reduce_halves_avx2(half_op, type, inputs.data(), inputs.size(), static_cast<size_t>(count), number, out));
}
#endif

}  // namespace

void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out) {
#if defined(__x86_64__)
  if (dtype == kFloat16 || dtype == kBFloat16) {
    const int64_t done = reduce_halves(op, dtype, inputs, count, out);
    if (done == count) return;
    std::vector<const std::byte*> rest(inputs.begin(), inputs.end());
    for (const std::byte*& input : rest) input += done * size_of(dtype);
    reduce_plain(op, dtype, rest, count - done, out + done * size_of(dtype));
    return;
  }
#endif
  reduce_plain(op, dtype, inputs, count, out);
}

void reduce_plain(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs, int64_t count, std::byte* out) {
  if (dtype == kBool) {  // bytes of 0 and 1
    dtype = kUInt8;
    if (op == ReduceOp::kSum) op = ReduceOp::kMax;
    if (op == ReduceOp::kProduct) op = ReduceOp::kMin;
  }
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      switch (op) {
        case ReduceOp::kSum: return reduce_typed<ReduceOp::kSum, T>(inputs, count, out);
        case ReduceOp::kProduct: return reduce_typed<ReduceOp::kProduct, T>(inputs, count, out);
        case ReduceOp::kMin: return reduce_typed<ReduceOp::kMin, T>(inputs, count, out);
        case ReduceOp::kMax: return reduce_typed<ReduceOp::kMax, T>(inputs, count, out);
        case ReduceOp::kAvg:
          if constexpr (is_floating_point(dtype_of<T>())) reduce_typed<ReduceOp::kAvg, T>(inputs, count, out);
          return;
        case ReduceOp::kBitAnd:
        case ReduceOp::kBitOr:
        case ReduceOp::kBitXor:
          if constexpr (std::is_integral_v<T>) reduce_bits<T>(op, inputs, count, out);
          return;
      }
    }
  });
}

}}}  // namespace tandem::v0::primitives

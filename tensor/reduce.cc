#include <tandem/tensor/reduce.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include <tandem/tensor/reduce_halves_avx2.h>
#include <tandem/tensor/sum_order.h>

namespace tandem { inline namespace v0 {

const char* to_string(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "bitand", "bitor", "bitxor"};
  return kNames[static_cast<int>(op)];
}

}}  // namespace tandem::v0

namespace tandem { inline namespace v0 { namespace primitives {

namespace {

/// Accumulation type of T.
template <class T>
using Sum = std::conditional_t<kIsHalf<T>, float, T>;

// Unsigned arithmetic, because signed overflow is undefined behaviour.
template <class T>
T plus(T a, T b) {
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
  return plus(a, b);
}

/// Number of inputs that are combined in one pass: most for floats, least for halves, which have reduce_halves().
template <class T>
constexpr size_t kFused = std::is_integral_v<T> ? 2
                          : kIsHalf<T>          ? 1
                                                : 4;

/// out[i] = N inputs combined, from element `begin`; kAvg also divides.
template <ReduceOp op, size_t N, class T, class Out>
void combine_inputs(const std::byte* const* inputs, int64_t begin, int64_t count, Out* out) {
  std::array<const T*, N> in;
  for (size_t k = 0; k < N; ++k) in[k] = reinterpret_cast<const T*>(inputs[k]) + begin;
  // ivdep: `out` may be one of the inputs, in which the compiler would see a dependence between iterations.
  TANDEM_IVDEP
  for (int64_t i = 0; i < count; ++i) {
    Sum<T> sum = tree_sum<N>([&](size_t k) { return static_cast<Sum<T>>(in[k][i]); }, combine<op, Sum<T>>);
    if constexpr (op == ReduceOp::kAvg) sum = mean_of(sum, N);
    out[i] = static_cast<Out>(sum);
  }
}

template <ReduceOp op, class T, class Out>
void combine_few(std::span<const std::byte* const> inputs, int64_t begin, int64_t count, Out* out) {
  if (inputs.size() == 1) return combine_inputs<op, 1, T>(inputs.data(), begin, count, out);
  if constexpr (kFused<T> >= 2) {
    if (inputs.size() == 2) return combine_inputs<op, 2, T>(inputs.data(), begin, count, out);
  }
  if constexpr (kFused<T> >= 4) {
    if (inputs.size() == 3) return combine_inputs<op, 3, T>(inputs.data(), begin, count, out);
    combine_inputs<op, 4, T>(inputs.data(), begin, count, out);
  }
}

constexpr int64_t kColumnTile = 512;  // elements, which stay in the L1 cache

template <ReduceOp op, class T>
void combine_tile(std::span<const std::byte* const> inputs, int64_t begin, int64_t count, Sum<T>* sums) {
  if (inputs.size() <= kFused<T>) return combine_few<op, T>(inputs, begin, count, sums);
  const size_t split = tree_split(inputs.size());
  Sum<T> others[kColumnTile];
  combine_tile<op, T>(inputs.first(split), begin, count, sums);
  combine_tile<op, T>(inputs.subspan(split), begin, count, others);
  for (int64_t i = 0; i < count; ++i) sums[i] = combine<op>(sums[i], others[i]);
}

template <ReduceOp op, class T>
void reduce_typed(std::span<const std::byte* const> inputs, int64_t count, std::byte* out) {
  T* to = reinterpret_cast<T*>(out);
  if (inputs.size() <= kFused<T>) return combine_few<op, T>(inputs, 0, count, to);
  constexpr ReduceOp kPartial = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
  Sum<T> sums[kColumnTile];
  for (int64_t begin = 0; begin < count; begin += kColumnTile, to += kColumnTile) {
    const int64_t n = std::min(kColumnTile, count - begin);
    combine_tile<kPartial, T>(inputs, begin, n, sums);
    if constexpr (op == ReduceOp::kAvg) {
      for (int64_t i = 0; i < n; ++i) sums[i] = mean_of(sums[i], inputs.size());
    }
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sums[i]);
  }
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
    const bool is_scaled = std::has_single_bit(inputs.size());
    half_op = is_scaled ? HalfOp::kScaledSum : HalfOp::kDividedSum;
    number = is_scaled ? 1 / static_cast<float>(inputs.size()) : static_cast<float>(inputs.size());
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

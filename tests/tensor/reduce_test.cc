// Reductions by every operator and dtype at odd counts, compared with plain loops in the documented order.
#include <tandem/base/half.h>
#include <tandem/tensor/reduce.h>
#include <tandem/tests/support/test.h>
#include <tandem/tests/support/tree_sum.h>

namespace tandem { inline namespace v0 { namespace primitives { namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg,    ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kBitAnd, ReduceOp::kBitOr,   ReduceOp::kBitXor};
constexpr int64_t kCounts[] = {0, 1, 3, 7, 15, 16, 17, 31, 32, 33, 511, 512, 513, 1100};

bool is_bitwise(ReduceOp op) { return op >= ReduceOp::kBitAnd; }

template <class T>
bool allowed(ReduceOp op) {
  if (op == ReduceOp::kAvg) return is_floating_point(dtype_of<T>());
  return !is_bitwise(op) || std::is_integral_v<T>;
}

/// The sums and products of floating elements depend on the order.
template <class T>
T element(std::mt19937& random) {
  const int n = static_cast<int>(random() % 13) - 6;
  if constexpr (std::is_same_v<T, bool>) return n % 2 != 0;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(n);
  return static_cast<T>(static_cast<float>(std::ldexp(static_cast<double>(random() % 2047) - 1023, n - 10)));
}

template <class T>
T reference(ReduceOp op, const std::vector<std::vector<T>>& inputs, size_t i) {
  if constexpr (std::is_integral_v<T>) {
    uint64_t bits = static_cast<uint64_t>(inputs[0][i]);
    int64_t low = static_cast<int64_t>(inputs[0][i]);
    int64_t high = low;
    uint64_t sum = 0;
    uint64_t product = 1;
    for (const auto& in : inputs) {
      const int64_t v = static_cast<int64_t>(in[i]);
      if (&in != inputs.data()) {
        if (op == ReduceOp::kBitAnd) bits &= static_cast<uint64_t>(v);
        if (op == ReduceOp::kBitOr) bits |= static_cast<uint64_t>(v);
        if (op == ReduceOp::kBitXor) bits ^= static_cast<uint64_t>(v);
      }
      low = std::min(low, v);
      high = std::max(high, v);
      sum += static_cast<uint64_t>(v);
      product *= static_cast<uint64_t>(v);
    }
    if (is_bitwise(op)) return static_cast<T>(bits);
    if (op == ReduceOp::kMin) return static_cast<T>(low);
    if (op == ReduceOp::kMax) return static_cast<T>(high);
    return static_cast<T>(op == ReduceOp::kSum ? sum : product);
  } else {
    using Sum = std::conditional_t<kIsHalf<T>, float, T>;
    std::vector<Sum> terms;
    for (const auto& in : inputs) terms.push_back(static_cast<Sum>(in[i]));
    Sum result = testing::tree_sum(terms, [op](Sum a, Sum b) {
      if (op == ReduceOp::kMin) return std::min(a, b);
      if (op == ReduceOp::kMax) return std::max(a, b);
      return op == ReduceOp::kProduct ? a * b : a + b;
    });
    if (op == ReduceOp::kAvg) result /= static_cast<Sum>(inputs.size());
    return static_cast<T>(result);
  }
}

template <class T>
std::vector<const std::byte*> pointers(const std::vector<std::vector<T>>& inputs) {
  std::vector<const std::byte*> out;
  for (const auto& in : inputs) out.push_back(reinterpret_cast<const std::byte*>(in.data()));
  return out;
}

/// std::vector<bool> has no addressable elements.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
void check(ReduceOp op, DType dtype, size_t num_inputs, int64_t count) {
  SCOPED_TRACE(str(to_string(op), " ", dtype, ", ", num_inputs, " inputs of ", count));
  std::mt19937 random(static_cast<unsigned>(count) + 31);
  std::vector<std::vector<Stored<T>>> inputs(num_inputs);
  for (auto& in : inputs) {
    for (int64_t i = 0; i < count; ++i) in.push_back(static_cast<Stored<T>>(element<T>(random)));
  }
  std::vector<Stored<T>> want;
  for (int64_t i = 0; i < count; ++i) {
    Stored<T> value = reference<Stored<T>>(op, inputs, static_cast<size_t>(i));
    if constexpr (std::is_same_v<T, bool>) {
      if (op == ReduceOp::kSum) value = value != 0;
    }
    want.push_back(value);
  }
  const auto expect_bits = [&](const std::vector<Stored<T>>& got) {
    ASSERT_TRUE(count == 0 || std::memcmp(got.data(), want.data(), want.size() * sizeof(want[0])) == 0);
  };
  std::vector<Stored<T>> out(static_cast<size_t>(count));
  reduce(op, dtype, pointers(inputs), count, reinterpret_cast<std::byte*>(out.data()));
  expect_bits(out);
  reduce_plain(op, dtype, pointers(inputs), count, reinterpret_cast<std::byte*>(out.data()));
  expect_bits(out);
  std::vector<Stored<T>>& own = inputs[num_inputs / 2];  // in place
  reduce(op, dtype, pointers(inputs), count, reinterpret_cast<std::byte*>(own.data()));
  expect_bits(own);
}

TEST(ReduceKernels, EveryOperatorAndDTypeMatchesReference) {
  for (const DType dtype : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    visit_dtype(dtype, [&]<class T>() {
      for (const ReduceOp op : kOps) {
        if (!allowed<T>(op)) continue;
        for (const size_t num_inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17}) {
          for (const int64_t count : kCounts) check<T>(op, dtype, num_inputs, count);
        }
      }
    });
  }
}

// Half types with all bit patterns, including subnormal, infinite, NaN: SIMD and scalar code give the same bits.
TEST(ReduceKernels, SimdAndScalarHalfTypesGiveEqualBits) {
  for (const DType dtype : {kFloat16, kBFloat16}) {
    std::vector<std::vector<uint16_t>> inputs(3, std::vector<uint16_t>(65536));
    std::mt19937 random(5);
    // NaN + NaN has the payload of either operand, so only one of the three inputs is NaN.
    const auto finite = [&] {
      const uint16_t bits = static_cast<uint16_t>(random());
      const uint32_t exponent = dtype == kFloat16 ? 0x7c00 : 0x7f80;
      return (bits & exponent) == exponent ? static_cast<uint16_t>(bits & ~exponent) : bits;
    };
    for (size_t i = 0; i < 65536; ++i) {
      for (auto& in : inputs) in[i] = finite();
      inputs[i % 3][i] = static_cast<uint16_t>(i);
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      for (const size_t num_inputs : {2, 3}) {
        std::vector<const std::byte*> in = pointers(inputs);
        in.resize(num_inputs);
        std::vector<uint16_t> vectors(65536);
        std::vector<uint16_t> single(65536);
        reduce(op, dtype, in, 65536, reinterpret_cast<std::byte*>(vectors.data()));
        reduce_plain(op, dtype, in, 65536, reinterpret_cast<std::byte*>(single.data()));
        for (size_t i = 0; i < 65536; ++i) {
          ASSERT_EQ(vectors[i], single[i]) << dtype << " " << to_string(op) << " element " << i;
        }
      }
    }
  }
}

TEST(ReduceKernels, NaNPropagatesThroughMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const size_t where : {0, 1, 2}) {
      std::vector<std::vector<float>> inputs(3, std::vector<float>(9, 1.0f));
      inputs[where][4] = nan;
      std::vector<float> out(9);
      reduce(op, kFloat32, pointers(inputs), 9, reinterpret_cast<std::byte*>(out.data()));
      for (size_t i = 0; i < 9; ++i) EXPECT_EQ(std::isnan(out[i]), i == 4);
    }
  }
}

}}}}  // namespace tandem::v0::primitives

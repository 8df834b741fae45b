// Kernels on tensors of more than 2^32 elements: an index or offset of 32 bits would address other elements. The
// emulated memory is sparse, and of each kernel only the first blocks run, whose grid-stride loops also reach rows near
// the end.
#include <cuda_emulation/control.h>
#include <gmock/gmock.h>

#include <tandem/ops/pool/pool_cuda.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using ::testing::Each;
using ::testing::IsNan;

const Device kGpu("cuda");
constexpr int64_t kCols = 2048, kRows = (1 << 21) + 8;  // 2^32 + 2^14 elements
constexpr int64_t kStep = 1 << 20;                      // rows of 2^31 elements
/// Elements 5 * kCols, and the same plus 2^31 and plus 2^32: where 32-bit arithmetic is wrong, and where it wraps
/// around.
const std::vector<int64_t> kChecked = {5, kStep + 5, 2 * kStep + 5};

Tensor values(uint64_t seed, DType dtype = kBFloat16) { return random_tensor({3, kCols}, seed, dtype).to(kGpu); }

/// A tensor with these values in the checked rows. Its other elements are NaN.
Tensor large(const Tensor& rows) {
  Tensor all = empty({kRows, kCols}, {rows.dtype(), kGpu});
  for (int64_t i = 0; i < 3; ++i) all.narrow(0, kChecked[i], 1).copy_(rows.narrow(0, i, 1));
  return all;
}

std::vector<float> floats(const Tensor& tensor) { return tensor.to(Device()).to(kFloat32).to_vector<float>(); }

std::vector<float> checked_rows(const Tensor& all) {
  std::vector<float> found;
  for (const int64_t row : kChecked) {
    for (const float value : floats(all.narrow(0, row, 1))) found.push_back(value);
  }
  return found;
}

/// The checked rows as one tensor whose rows are 2^31 elements apart.
Tensor strided(const Tensor& all) { return all.slice(0, 5, kRows, kStep); }

Tensor index() { return from_vector<int64_t>(kChecked, {3}).to(kGpu); }

class LargeTensors : public ::testing::Test {
 protected:
  void TearDown() override {
    cuda_emulation::set_max_blocks(UINT64_MAX);
    empty_cache(kGpu);
  }

  /// f() with the first 64 blocks of each kernel.
  template <class F>
  static auto run_first_blocks(const F& f) {
    cuda_emulation::set_max_blocks(64);
    auto result = f();
    cuda::synchronize(kGpu);
    cuda_emulation::set_max_blocks(UINT64_MAX);
    return result;
  }

  template <class F>
  static void expect_rows_equal(const F& f) {
    const Tensor a = values(1), b = values(2);
    const Tensor x = large(a), y = large(b);
    EXPECT_EQ(checked_rows(run_first_blocks([&] { return f(x, y); })), floats(f(a, b)));
  }
};

// In //ops/pool, where indices of 32 bits are divided by sizes.
TEST(FastDivisor, EqualsDivision) {
  const int64_t max = INT32_MAX;
  for (const int64_t d : {1L, 2L, 3L, 7L, 63L, 64L, 65L, (1L << 30) - 1, 1L << 30, (1L << 30) + 1, max - 1, max}) {
    const cuda::FastDivisor divisor(d);
    for (const int64_t n :
         {0L, 1L, d - 1, d, std::min(max, d + 1), std::min(max, 2 * d - 1), std::min(max, 2 * d), max}) {
      EXPECT_EQ(static_cast<uint32_t>(n) / divisor, n / d) << n << " / " << d;
      EXPECT_EQ(static_cast<uint32_t>(n) % divisor, n % d) << n << " % " << d;
    }
  }
}

TEST_F(LargeTensors, NewMemoryIsNan) {
  for (int round = 0; round < 2; ++round) {
    empty_cache(kGpu);  // the second round allocates the memory that the first one has freed
    const Tensor x = empty({kRows, kCols}, {kBFloat16, kGpu});
    EXPECT_THAT(checked_rows(x), Each(IsNan())) << round;
    x.narrow(0, kChecked[1], 1).fill_(1);
    EXPECT_THAT(floats(x.narrow(0, kChecked[1], 1)), Each(1)) << round;
  }
}

TEST_F(LargeTensors, Elementwise) {
  expect_rows_equal([](const Tensor& x, const Tensor& y) { return add(x, y); });
  expect_rows_equal([](const Tensor& x, const Tensor&) { return relu(x); });
}

TEST_F(LargeTensors, Comparison) {
  expect_rows_equal([](const Tensor& x, const Tensor& y) { return lt(x, y); });
}

TEST_F(LargeTensors, Cast) {
  expect_rows_equal([](const Tensor& x, const Tensor&) { return x.to(kFloat32); });
}

// Here and in LayerNorm a block processes a row. (Where a warp does, the first blocks do not process all checked rows.)
// Rows of 2048 float32 are too long for a warp.
TEST_F(LargeTensors, Softmax) {
  const Tensor rows = values(1, kFloat32), x = large(rows);
  EXPECT_EQ(checked_rows(run_first_blocks([&] { return softmax(x, 1); })), floats(softmax(rows, 1)));
}

// The weight does not begin at a multiple of 16 bytes.
TEST_F(LargeTensors, LayerNorm) {
  const Tensor weight = random_tensor({kCols + 1}, 3, kBFloat16).to(kGpu).narrow(0, 1, kCols);
  expect_rows_equal([&](const Tensor& x, const Tensor&) { return layer_norm(x, {kCols}, weight, {}); });
}

TEST_F(LargeTensors, SumOfRows) {
  expect_rows_equal([](const Tensor& x, const Tensor&) { return sum(x, {1}, true); });
}

TEST_F(LargeTensors, CrossEntropyGradient) {
  const Tensor a = values(1);
  const auto gradient = [](const Tensor& logits) {
    Tensor x = logits.detach().requires_grad_();
    cross_entropy(x, full({x.size(0)}, 7, {kInt64}).to(kGpu)).backward();
    return x.grad();
  };
  const std::vector<float> expected = floats(gradient(a));  // of a mean over 3 rows
  const std::vector<float> found = checked_rows(run_first_blocks([&] { return gradient(large(a)); }));
  for (size_t i = 0; i < expected.size(); ++i) {
    const float wanted = expected[i] * 3;
    EXPECT_NEAR(found[i] * kRows, wanted, std::abs(wanted) / 64) << i;  // both are rounded to bfloat16
  }
}

TEST_F(LargeTensors, StridedOperands) {
  const Tensor a = values(1), b = values(2);
  const Tensor x = large(a), y = large(b);
  EXPECT_EQ(strided(x).strides(), Shape({kStep * kCols, 1}));
  EXPECT_EQ(floats(add(strided(x), strided(y))), floats(add(a, b)));
  EXPECT_EQ(floats(strided(x).to(kFloat32)), floats(a));
  EXPECT_EQ(floats(strided(x).t().contiguous()), floats(a.t().contiguous()));
  primitives::add_into(strided(x), strided(y));
  EXPECT_EQ(checked_rows(y), floats(add(b, a)));
  strided(y).copy_(strided(x));
  EXPECT_EQ(checked_rows(y), floats(a));
  strided(y).fill_(3);
  EXPECT_EQ(checked_rows(y), std::vector<float>(3 * kCols, 3));
}

TEST_F(LargeTensors, Indexing) {
  const Tensor a = values(1);
  const Tensor x = large(a);
  EXPECT_EQ(floats(index_select(x, 0, index())), floats(a));
  EXPECT_EQ(floats(embedding(index(), x)), floats(a));
  EXPECT_EQ(floats(gather(x, 0, index().view({3, 1}).expand({3, kCols}))), floats(a));
  EXPECT_EQ(floats(take(x, mul(index(), kCols))), floats(a.narrow(1, 0, 1)));
  const Tensor b = values(2);
  x.scatter_(0, index().view({3, 1}).expand({3, kCols}), b);
  EXPECT_EQ(checked_rows(x), floats(b));
}

}}  // namespace tandem::testing

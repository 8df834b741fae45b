// The memory order of results.
#include <tandem/ops/common/common.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

using testing::close;
using testing::dense;
using testing::dense_map;
using testing::random_tensor;

Tensor random_channels_last(uint64_t seed) {
  const Tensor tensor = ops::channels_last(random_tensor({2, 5, 3, 7}, seed));
  EXPECT_FALSE(tensor.is_contiguous());
  return tensor;
}

double plus(const std::vector<double>& v) { return v[0] + v[1]; }

TEST(MemoryOrder, DenseStridesCoverEachElementOnce) {
  EXPECT_TRUE(is_dense({2, 3, 4}, {12, 4, 1}));
  EXPECT_TRUE(is_dense({2, 3, 4}, {1, 8, 2}));
  EXPECT_TRUE(is_dense({2, 1, 4}, {1, 99, 2}));
  EXPECT_TRUE(is_dense({}, {}));
  EXPECT_FALSE(is_dense({2, 3}, {4, 1}));
  EXPECT_FALSE(is_dense({2, 3}, {0, 1}));
  EXPECT_FALSE(is_dense({2, 2}, {1, 1}));
}

TEST(MemoryOrder, ChannelsLastStridesAreRecognized) {
  EXPECT_TRUE(ops::is_channels_last(random_channels_last(1)));
  EXPECT_FALSE(ops::is_channels_last(random_tensor({2, 5, 3, 7}, 1)));
  EXPECT_TRUE(ops::is_channels_last(random_tensor({2, 1, 3, 7}, 1)));
  EXPECT_TRUE(ops::is_channels_last(random_tensor({2, 5, 1, 1}, 1)));
  EXPECT_FALSE(ops::is_channels_last(random_tensor({5, 3, 7}, 1)));
  const Tensor row_major = random_tensor({2, 5, 3, 7}, 1);
  EXPECT_TRUE(close(ops::channels_last(row_major), dense(row_major), 0));
}

TEST(MemoryOrder, ElementwiseResultsKeepChannelsLast) {
  const Tensor a = random_channels_last(1), b = random_channels_last(2);
  for (const Tensor& result : {relu(a), a + b, a * 2, to(a, kFloat64), ge(a, b), ge(a, 0), where(ge(a, 0), a, b), -a}) {
    EXPECT_TRUE(ops::is_channels_last(result));
  }
  EXPECT_TRUE(close(a + b, dense_map(a.shape(), {dense(a), dense(b)}, plus), 1e-6));
}

TEST(MemoryOrder, FirstFullSizeOperandDeterminesTheOrder) {
  const Tensor a = random_channels_last(1), b = random_tensor({2, 5, 3, 7}, 2), bias = random_tensor({5, 1, 1}, 3);
  EXPECT_TRUE(ops::is_channels_last(a + b));
  EXPECT_TRUE((b + a).is_contiguous());
  EXPECT_TRUE(ops::is_channels_last(bias + a));
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a), std::pair(a, bias), std::pair(bias, a)}) {
    EXPECT_TRUE(close(x + y, dense_map(a.shape(), {dense(x), dense(y)}, plus), 1e-6));
  }
}

TEST(MemoryOrder, NonDenseInputGivesRowMajorResult) {
  const Tensor a = random_channels_last(1).slice(3, 0, 6);
  EXPECT_TRUE(relu(a).is_contiguous());
  EXPECT_TRUE(relu(random_tensor({1, 3}, 1).expand({4, 3})).is_contiguous());
}

TEST(MemoryOrder, GradientsOfDifferentOrdersAreSummed) {
  const Tensor a = random_channels_last(1).requires_grad_();
  const Tensor inner = a * 2;
  // Two consumers of `inner`, one gradient channels-last and one row-major.
  const Tensor out = inner * 3 + (inner * 5).contiguous();
  const Tensor outputs[] = {out}, inputs[] = {a};
  const Tensor cotangent = random_tensor(a.shape(), 4);
  const Tensor cotangents[] = {cotangent};
  EXPECT_TRUE(close(grad(outputs, inputs, cotangents)[0],
                    dense_map(a.shape(), {dense(cotangent)}, [](const auto& v) { return 16 * v[0]; }), 1e-5));
}

}}  // namespace tandem

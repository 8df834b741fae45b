#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;
using Indices = std::vector<int64_t>;

Tensor on_device(const NestedList& values) { return tensor(values).to(test_device()); }

TEST(Sort, NaNIsLargestAndEqualElementsKeepTheirOrder) {
  const Tensor x = on_device({0.0, NAN, 1, -INFINITY, -0.0, INFINITY, -NAN, 1});
  for (const DType dtype : floating_dtypes()) {
    EXPECT_EQ(argsort(x.to(dtype)).to_vector<int64_t>(), (Indices{3, 0, 4, 2, 7, 5, 1, 6})) << dtype;
    EXPECT_EQ(argsort(x.to(dtype), 0, true).to_vector<int64_t>(), (Indices{1, 6, 5, 2, 7, 0, 4, 3})) << dtype;
  }
}

TEST(Sort, IntegersAreOrderedByTheirSignedValues) {
  const Tensor x = tensor({INT64_MIN, int64_t{0}, INT64_MAX, int64_t{-1}}).to(test_device());
  EXPECT_EQ(sort(x).values.to_vector<int64_t>(), (Indices{INT64_MIN, -1, 0, INT64_MAX}));
  EXPECT_EQ(argsort(tensor({3, 200, 255, 0}).to(kUInt8).to(test_device())).to_vector<int64_t>(), (Indices{3, 0, 1, 2}));
  const Tensor small = tensor({-1, 100, -128, 0, 127}).to(kInt8).to(test_device());
  EXPECT_EQ(argsort(small).to_vector<int64_t>(), (Indices{2, 0, 3, 1, 4}));
  EXPECT_EQ(argsort((small.to(kInt16) * 256)).to_vector<int64_t>(), (Indices{2, 0, 3, 1, 4}));
  EXPECT_EQ(argsort(tensor({true, false, true}).to(test_device())).to_vector<int64_t>(), (Indices{1, 0, 2}));
}

TEST(Sort, LongRowsOfEveryDTypeAreStable) {
  for (const DType dtype : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const bool descending : {false, true}) {
      const Tensor x = random_tensor({3, 1300}, 5, kFloat32, -40, 40).to(kInt32).to(dtype);
      const auto [values, indices] = sort(x.to(test_device()), 1, descending);
      const Values v = values.to_vector<double>();
      const Indices at = indices.to_vector<int64_t>();
      const Values all = x.to_vector<double>();
      for (size_t i = 0; i < v.size(); ++i) {
        ASSERT_EQ(v[i], all[i / 1300 * 1300 + static_cast<size_t>(at[i])]) << dtype;
        if (i % 1300 == 0) continue;
        ASSERT_TRUE(descending ? v[i - 1] >= v[i] : v[i - 1] <= v[i]) << dtype << " " << i;
        ASSERT_TRUE(v[i - 1] != v[i] || at[i - 1] < at[i]) << dtype << " " << i;
      }
    }
  }
}

TEST(Sort, MedianIsTheLowerOneAndPropagatesNaN) {
  const Tensor x = on_device({4, 1, 3, 2, 5, NAN, 0, NAN}).view({2, 4});
  const ValuesIndices rows = median(x, 1);
  EXPECT_EQ(rows.values.to_vector<double>()[0], 2);
  EXPECT_TRUE(std::isnan(rows.values.to_vector<double>()[1]));
  EXPECT_EQ(rows.indices.to_vector<int64_t>(), (Indices{3, 1}));
  EXPECT_TRUE(std::isnan(median(x).item()));
  EXPECT_EQ(median(tensor({4, 1, 3, 2}).to(test_device())).item<int64_t>(), 2);
  EXPECT_TRUE(std::isnan(median(zeros({0}, {kFloat32, test_device()})).item()));
}

TEST(Sort, NanmedianIgnoresNaN) {
  const Tensor x = on_device({4, NAN, 3, 2, 5, NAN, NAN, NAN, NAN, NAN, NAN, NAN}).view({3, 4}).requires_grad_();
  const ValuesIndices rows = nanmedian(x, 1);
  const Values values = rows.values.to_vector<double>();
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], 5);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(rows.indices.to_vector<int64_t>(), (Indices{2, 0, 0}));
  EXPECT_EQ(nanmedian(x).item(), 3);
  nanmedian(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(nanmedian(tensor({4, 1, 3, 2}).to(test_device())).item<int64_t>(), 2);
  EXPECT_TRUE(std::isnan(nanmedian(zeros({0}, {kFloat32, test_device()})).item()));
}

TEST(Sort, MedianSharesItsGradientAmongEqualElements) {
  const Tensor x = on_device({2.0, 1.0, 2.0, 3.0}).requires_grad_();
  median(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0.5, 0, 0.5, 0}));
  x.zero_grad();
  median(x, 0).values.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{1, 0, 0, 0}));
}

TEST(Sort, UniqueReturnsInverseAndCounts) {
  const Tensor x = tensor({3, 1, 3, 2, 1, 3}).view({2, 3}).to(test_device());
  const Unique result = unique(x, true, true, true);
  EXPECT_EQ(result.output.to_vector<int64_t>(), (Indices{1, 2, 3}));
  EXPECT_EQ(result.inverse_indices.shape(), (Shape{2, 3}));
  EXPECT_EQ(result.inverse_indices.to_vector<int64_t>(), (Indices{2, 0, 2, 1, 0, 2}));
  EXPECT_EQ(result.counts.to_vector<int64_t>(), (Indices{2, 1, 3}));
  EXPECT_FALSE(unique(x).counts.defined() || unique(x).inverse_indices.defined());
  EXPECT_EQ(unique(on_device({NAN, 1, NAN, 1})).output.shape(), (Shape{3}));
  EXPECT_EQ(unique(zeros({0, 2}, {kInt32, test_device()}), true, true, true).counts.shape(), (Shape{0}));
}

TEST(Sort, SearchsortedFindsBothSides) {
  const Tensor sequence = on_device({1, 3, 3, 5, NAN}), values = on_device({0, 3, 4, 9, NAN});
  EXPECT_EQ(searchsorted(sequence, values).to_vector<int64_t>(), (Indices{0, 1, 3, 4, 4}));
  EXPECT_EQ(searchsorted(sequence, values, true).to_vector<int64_t>(), (Indices{0, 3, 3, 4, 5}));
}

TEST(Sort, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(ValueError, kthvalue(x, 4),
               "kthvalue: k is 4, must be in [1, 3], for dimension 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, median(zeros({2, 0}), 1), "median: dimension 1 is empty\n  input  cpu  float32 [2, 0]");
  EXPECT_ERROR(ShapeError, searchsorted(x, zeros({3, 4})),
               "searchsorted: sorted_sequence must have one dimension, or values' sizes except in the last one\n"
               "  sorted_sequence  cpu  float32 [2, 3]\n"
               "  values           cpu  float32 [3, 4]");
}

}}  // namespace tandem::testing

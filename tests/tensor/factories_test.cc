#include <tandem/tensor/factories.h>

#include <gtest/gtest.h>

#include <tandem/tensor/chores.h>
#include <tandem/tensor/generator.h>

namespace tandem {
namespace {

TEST(Factories, FromVectorConverts) {
  const Tensor t = from_vector<double>({1.5, -2.5, 3, 4, 5, 6}, {2, 3}, {kInt32});
  EXPECT_EQ(t.to_vector<int64_t>(), (std::vector<int64_t>{1, -2, 3, 4, 5, 6}));
  EXPECT_EQ(describe(t), "int32 [2, 3] on cpu");
  EXPECT_EQ(to_string(t), "[[ 1, -2,  3],\n [ 4,  5,  6]]\nint32 [2, 3] on cpu");
}

TEST(Factories, TransposedCopy) {
  const Tensor a = from_vector<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor t = make_view(a.storage(), kFloat32, {3, 2}, {1, 3}, 0);
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(Factories, Scalars) {
  EXPECT_EQ(scalar_tensor(2.5, {}).item<float>(), 2.5f);
  EXPECT_EQ(arange(10, 0, -3).to_vector<int64_t>(), (std::vector<int64_t>{10, 7, 4, 1}));
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0})[0], 0x6627e8d5u);
}

}  // namespace
}  // namespace tandem

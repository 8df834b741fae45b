// Member forms of operations compute what the free functions do.

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

void expect_equal(const Tensor& member, const Tensor& function, const char* name) {
  EXPECT_EQ(member.shape(), function.shape()) << name;
  EXPECT_EQ(member.dtype(), function.dtype()) << name;
  EXPECT_TRUE(primitives::bytes_equal(member.cpu(), function.cpu())) << name;
}

TEST(Members, OfOneTensor) {
  const Tensor x = random_tensor({3, 5}, 1, kFloat32, 0.1, 0.9).to(test_device());
#define TANDEM_EXPECT_MEMBER(name) expect_equal(x.name(), name(x), #name)
  TANDEM_EXPECT_MEMBER(log);
  TANDEM_EXPECT_MEMBER(abs);
  TANDEM_EXPECT_MEMBER(sign);
  TANDEM_EXPECT_MEMBER(floor);
  TANDEM_EXPECT_MEMBER(ceil);
  TANDEM_EXPECT_MEMBER(trunc);
  TANDEM_EXPECT_MEMBER(round);
  TANDEM_EXPECT_MEMBER(tan);
  TANDEM_EXPECT_MEMBER(asin);
  TANDEM_EXPECT_MEMBER(acos);
  TANDEM_EXPECT_MEMBER(atan);
  TANDEM_EXPECT_MEMBER(sinh);
  TANDEM_EXPECT_MEMBER(cosh);
  TANDEM_EXPECT_MEMBER(erfinv);
  TANDEM_EXPECT_MEMBER(square);
  TANDEM_EXPECT_MEMBER(frac);
  TANDEM_EXPECT_MEMBER(nonzero);
#undef TANDEM_EXPECT_MEMBER
}

TEST(Members, WithArguments) {
  const Tensor x = random_tensor({4, 5}, 1, kFloat32, 0.1, 0.9).to(test_device());
  const Tensor index = from_vector<int64_t>({3, 0, 2, 2, 1, 0, 0, 1, 3, 2}, {2, 5}).to(test_device());
  expect_equal(x.pow(1.5), pow(x, 1.5), "pow");
  expect_equal(x.clamp(0.3, 0.6), clamp(x, 0.3, 0.6), "clamp");
  expect_equal(x.tril(-1), tril(x, -1), "tril");
  expect_equal(x.triu(1), triu(x, 1), "triu");
  expect_equal(x.gather(0, index), gather(x, 0, index), "gather");
  expect_equal(x.index_select(0, index.select(0, 0)), index_select(x, 0, index.select(0, 0)), "index_select");
  expect_equal(x.masked_select(x > 0.5), masked_select(x, x > 0.5), "masked_select");
  const ValuesIndices member = x.topk(2, 0, false, true), function = topk(x, 2, 0, false, true);
  expect_equal(member.values, function.values, "topk");
  expect_equal(member.indices, function.indices, "topk");
}

}}  // namespace tandem::testing

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

struct Comparison {
  const char* name;
  Tensor (*tensors)(Tensor, Tensor);
  Tensor (*number)(Tensor, Scalar);
};

const Comparison kComparisons[] = {
    {"eq", eq, eq}, {"ne", ne, ne}, {"lt", lt, lt}, {"le", le, le}, {"gt", gt, gt}, {"ge", ge, ge},
};

TEST(Compare, ClosenessOfNaNInfinitiesAndIntegers) {
  const Tensor a = tensor({1.0, NAN, INFINITY, INFINITY, 0.0}).to(test_device());
  const Tensor b = tensor({1.000009, NAN, INFINITY, -INFINITY, 1e-9}).to(test_device());
  EXPECT_EQ(isclose(a, b).to_vector<double>(), (Values{1, 0, 1, 0, 1}));
  EXPECT_EQ(isclose(a, b, 0, 0, true).to_vector<double>(), (Values{0, 1, 1, 0, 0}));
  EXPECT_EQ(isclose(tensor({100, 7}), tensor({99, 7}), 0, 0.5).to_vector<double>(), (Values{0, 1}));
  EXPECT_TRUE(isclose(tensor({true}), tensor({true})).item<bool>());
  EXPECT_TRUE(allclose(a.slice(0, 2, 3), b.slice(0, 2, 3)));
  EXPECT_FALSE(allclose(a, b));
  EXPECT_TRUE(allclose(zeros({0}), zeros({0})));
  EXPECT_TRUE(equal(tensor({0.0}), tensor({-0.0})));
  EXPECT_FALSE(equal(tensor({NAN}), tensor({NAN})));
  EXPECT_FALSE(equal(zeros({2, 3}), zeros({3, 2})));
  EXPECT_TRUE(equal(zeros({0, 3}), zeros({0, 3})));
  EXPECT_ERROR(ValueError, isclose(a, b, -1), "isclose: rtol is -1 and atol 1e-08, expected at least 0");
}

TEST(Compare, NaNIsUnequalAndMixedKindsPromote) {
  const Tensor x = tensor({1.0, NAN, 3.0});
  for (const Comparison& c : kComparisons) {
    const bool unequal = std::string(c.name) == "ne";
    EXPECT_EQ(c.tensors(x, x).to_vector<double>()[1], unequal) << c.name;
    EXPECT_EQ(c.number(x, 3).to_vector<double>()[1], unequal) << c.name;
  }
  // An integer tensor and a floating number are compared in float32.
  EXPECT_EQ(lt(tensor({0, 1}), 0.5).to_vector<double>(), (Values{1, 0}));
  EXPECT_EQ(lt(full({1}, INT64_MIN, {kInt64}), full({1}, INT64_MAX, {kInt64})).item(), 1);
  EXPECT_FALSE(eq(x, x).requires_grad());
}

TEST(Compare, OutOfRangeNumbersAreComparedByValue) {
  const auto values = [](const Tensor& result) { return result.to_vector<bool>(); };
  const std::vector<bool> all = {true, true}, none = {false, false};
  for (const DType dtype : {kUInt8, kInt8, kInt16, kInt32}) {
    const Tensor x = tensor({0, 44}).to(dtype);
    for (const bool above : {true, false}) {
      const int64_t far = above ? (int64_t{1} << 40) + 44 : -(int64_t{1} << 40) + 44;  // 44 in the lowest bits
      EXPECT_EQ(values(eq(x, far)), none);
      EXPECT_EQ(values(ne(x, far)), all);
      EXPECT_EQ(values(lt(x, far)), above ? all : none);
      EXPECT_EQ(values(le(x, far)), above ? all : none);
      EXPECT_EQ(values(gt(x, far)), above ? none : all);
      EXPECT_EQ(values(ge(x, far)), above ? none : all);
    }
  }
  const Tensor bytes = tensor({1, 255}).to(kUInt8);
  EXPECT_EQ(values(eq(bytes, -1)), none);
  EXPECT_EQ(values(eq(bytes, 255)), (std::vector<bool>{false, true}));
  EXPECT_EQ(values(lt(bytes, 256)), all);
}

TEST(Where, KeepsIntegerDTypesAndPromotesMixed) {
  const Tensor condition = tensor({true, false});
  for (DType dtype : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64}) {
    const Tensor chosen = where(condition, full({2}, 1, {dtype}), full({2}, 0, {dtype}));
    EXPECT_EQ(chosen.dtype(), dtype);
    EXPECT_EQ(chosen.to_vector<double>(), (Values{1, 0}));
  }
  EXPECT_EQ(where(condition, tensor({1, 2}), tensor({0.5, 0.25})).to_vector<double>(), (Values{1, 0.25}));
}

TEST(Where, OutOfRangeNumberIsRejected) {
  const Tensor x = tensor({1, 2}).to(kUInt8), condition = tensor({true, false});
  const std::string rest = " 300 does not fit in uint8 (0 to 255); choose another dtype";
  EXPECT_ERROR(ValueError, where(condition, x, 300), "where: b" + rest);
  EXPECT_ERROR(ValueError, where(condition, 300, x), "where: a" + rest);
}

TEST(Compare, InvalidArgumentsAreNamedInErrors) {
  const Tensor a = zeros({2});
  EXPECT_ERROR(DTypeError, where(a, a, a),
               "where: condition must be bool\n"
               "  condition  cpu  float32 [2]\n"
               "  a          cpu  float32 [2]\n"
               "  b          cpu  float32 [2]");
  EXPECT_ERROR(ShapeError, gt(a, zeros({3})),
               "gt: shapes do not broadcast\n"
               "  a  cpu  float32 [2]\n"
               "  b  cpu  float32 [3]");
}

}}  // namespace tandem::testing

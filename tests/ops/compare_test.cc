#include <tandem/ops/compare.h>

#include <cmath>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

struct Comparison {
  const char* name;
  Tensor (*tensors)(Tensor, Tensor);
  Tensor (*number)(Tensor, Scalar);
  bool (*f)(double, double);
};

const Comparison kComparisons[] = {
    {"eq", eq, eq, [](double a, double b) { return a == b; }},
    {"ne", ne, ne, [](double a, double b) { return a != b; }},
    {"lt", lt, lt, [](double a, double b) { return a < b; }},
    {"le", le, le, [](double a, double b) { return a <= b; }},
    {"gt", gt, gt, [](double a, double b) { return a > b; }},
    {"ge", ge, ge, [](double a, double b) { return a >= b; }},
};

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
  for (const DType dtype : {kUInt8, kInt32}) {
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
  for (DType dtype : {kBool, kUInt8, kInt32, kInt64}) {
    const Tensor chosen = where(condition, full({2}, 1, {dtype}), full({2}, 0, {dtype}));
    EXPECT_EQ(chosen.dtype(), dtype);
    EXPECT_EQ(chosen.to_vector<double>(), (Values{1, 0}));
  }
  EXPECT_EQ(where(condition, tensor({1, 2}), tensor({0.5, 0.25})).to_vector<double>(), (Values{1, 0.25}));
}

TEST(Where, OutOfRangeNumberIsRejected) {
  const Tensor x = tensor({1, 2}).to(kUInt8), condition = tensor({true, false});
  const std::string rest = " 300 does not fit in uint8 (0 to 255); choose another dtype";
  EXPECT_EQ(error_text<ValueError>([&] { where(condition, x, 300); }), "where: b" + rest);
  EXPECT_EQ(error_text<ValueError>([&] { where(condition, 300, x); }), "where: a" + rest);
}

TEST(Compare, InvalidArgumentsAreNamedInErrors) {
  const Tensor a = zeros({2});
  EXPECT_EQ(error_text<DTypeError>([&] { static_cast<void>(where(a, a, a)); }),
            "where: condition must be bool\n"
            "  condition  cpu  float32 [2]\n"
            "  a          cpu  float32 [2]\n"
            "  b          cpu  float32 [2]");
  EXPECT_EQ(error_text<ShapeError>([&] { static_cast<void>(gt(a, zeros({3}))); }),
            "gt: shapes do not broadcast\n"
            "  a  cpu  float32 [2]\n"
            "  b  cpu  float32 [3]");
}

}}  // namespace tandem::testing

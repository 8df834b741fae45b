#include <tandem/ops/reduce.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

/// The naive reduction: kept indices in row-major order, each with the removed elements in row-major order.
Dense reduce(const Dense& in, const std::vector<bool>& removed, bool keepdim,
             const std::function<double(const Values&)>& f) {
  Shape kept;
  Shape shape;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    kept.push_back(removed[d] ? 1 : in.shape[d]);
    if (!removed[d] || keepdim) shape.push_back(kept.back());
  }
  const Shape strides = row_major_strides(kept);
  std::vector<Values> groups(static_cast<size_t>(num_elements(kept)));
  for (int64_t i = 0; i < in.num_elements(); ++i) {
    int64_t rest = i;
    int64_t group = 0;
    for (size_t d = in.shape.size(); d-- > 0;) {
      if (!removed[d]) group += rest % in.shape[d] * strides[d];
      rest /= in.shape[d];
    }
    groups[static_cast<size_t>(group)].push_back(in[i]);
  }
  Dense out = dense_zeros(shape);
  for (size_t g = 0; g < groups.size(); ++g) out.values[g] = f(groups[g]);
  return out;
}

double sum_of(const Values& values) {
  long double total = 0;  // more exact than the float64 sum that it judges
  for (double value : values) total += value;
  return static_cast<double>(total);
}
double mean_of(const Values& values) { return sum_of(values) / static_cast<double>(values.size()); }

struct Case {
  Shape shape;
  Shape dims;
  bool keepdim;
  std::vector<bool> removed;
};
const Case kCases[] = {
    {{33}, {0}, true, {true}},
    {{3, 7}, {1}, false, {false, true}},
    {{7, 65}, {0}, false, {true, false}},
    {{7, 31}, {-2}, true, {true, false}},
    {{3, 5, 4}, {1}, false, {false, true, false}},
    {{3, 5, 4}, {0, 2}, true, {true, false, true}},
    {{2, 3, 4, 3}, {3, 1}, false, {false, true, false, true}},
    {{2, 3, 1, 4}, {2}, false, {false, false, true, false}},
    {{3, 2, 5}, {0, 1, -1}, true, {true, true, true}},
    {{3, 2, 5}, {}, false, {true, true, true}},
    {{}, {}, false, {}},
    {{}, {-1}, false, {}},
};

OpCase reduce_case(const char* name, const Case& c, std::function<Tensor(const Tensor&)> run,
                   std::function<double(const Values&)> f) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", c.shape}};
  op.run = [run](const std::vector<Tensor>& in) { return run(in[0]); };
  op.reference = [c, f](const std::vector<Dense>& in) { return reduce(in[0], c.removed, c.keepdim, f); };
  op.terms = static_cast<double>(std::max<int64_t>(num_elements(c.shape), 1));
  return op;
}

TEST(Reduce, SumMatchesItsFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(str(c.shape, " over ", c.dims));
    check(reduce_case(
        "sum", c, [c](const Tensor& x) { return x.sum(c.dims, c.keepdim); }, sum_of));
  }
  const Case all{{5, 7}, {}, false, {true, true}};
  check(reduce_case(
      "sum", all, [](const Tensor& x) { return x.sum(); }, sum_of));
}

TEST(Reduce, MeanMatchesItsFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(str(c.shape, " over ", c.dims));
    check(reduce_case(
        "mean", c, [c](const Tensor& x) { return x.mean(c.dims, c.keepdim); }, mean_of));
  }
  const Case all{{5, 7}, {}, false, {true, true}};
  check(reduce_case(
      "mean", all, [](const Tensor& x) { return x.mean(); }, mean_of));
}

/// The sum of squared differences from the mean, divided.
double var_of(const Values& values, int64_t correction) {
  const long double mean = mean_of(values);
  long double total = 0;
  for (double value : values) total += (value - mean) * (value - mean);
  return static_cast<double>(total / static_cast<long double>(static_cast<int64_t>(values.size()) - correction));
}

TEST(Reduce, VarMatchesItsFormula) {
  int64_t correction = -1;
  for (const Case& c : kCases) {
    int64_t count = 1;
    for (size_t d = 0; d < c.shape.size(); ++d) count *= c.removed[d] ? c.shape[d] : 1;
    correction = correction == 2 ? -1 : correction + 1;
    const int64_t fitting = std::min(correction, count - 1);
    SCOPED_TRACE(str(c.shape, " over ", c.dims, " correction ", fitting));
    check(reduce_case(
        "var", c, [=](const Tensor& x) { return x.var(c.dims, fitting, c.keepdim); },
        [=](const Values& values) { return var_of(values, fitting); }));
  }
  const Case all{{5, 7}, {}, false, {true, true}};
  check(reduce_case(
      "var", all, [](const Tensor& x) { return x.var(); }, [](const Values& values) { return var_of(values, 1); }));
}

TEST(Reduce, VarStaysAccurateFarFromZero) {
  // The difference of the mean square and the squared mean would have no correct digit.
  const Values small = random_dense({3000}, 5, -1, 1).values;
  Dense far{{3000}, small};
  for (double& value : far.values) value = static_cast<float>(value + 10000);
  EXPECT_NEAR(var(make_tensor(far, kFloat32)).item(), var_of(far.values, 1), 1e-5);
  Dense farther{{3000}, small};
  for (double& value : farther.values) value = static_cast<float>(value + 1e6);
  EXPECT_NEAR(var(make_tensor(farther, kFloat32)).item(), var_of(farther.values, 1), 1e-6);
  for (double& value : far.values) value = 1000 + 8 * std::floor(value - 9998);  // in bfloat16 without rounding
  EXPECT_NEAR(var(make_tensor(far, kBFloat16)).item(), var_of(far.values, 1), 0.1);
}

TEST(Reduce, VarWithoutDegreesOfFreedomIsNotFinite) {
  EXPECT_TRUE(std::isnan(var(tensor({3.0})).item()));
  EXPECT_TRUE(std::isnan(var(zeros({0})).item()));
  EXPECT_EQ(var(tensor({3.0, 5.0}), {}, 2).item(), INFINITY);
  EXPECT_EQ(var(tensor({3.0, 5.0}), {}, 7).item(), INFINITY);
  EXPECT_EQ(var(tensor({3.0}), {}, 0).item(), 0);
}

TEST(Reduce, EmptyInputsGiveIdentityOrNaN) {
  EXPECT_EQ(sum(zeros({0})).item(), 0);
  EXPECT_TRUE(std::isnan(mean(zeros({0})).item()));
  EXPECT_EQ(sum(zeros({0, 3}), {0}).to_vector<double>(), (Values{0, 0, 0}));
  EXPECT_EQ(sum(zeros({3, 0}), {1}, true).shape(), (Shape{3, 1}));
  EXPECT_EQ(sum(zeros({3, 0}), {0}).shape(), (Shape{0}));
  EXPECT_TRUE(std::isnan(mean(zeros({0, 1}), {0}).item()));
  EXPECT_EQ(argmax(zeros({0, 3}), 1).shape(), (Shape{0}));
  Tensor x = zeros({0, 3}, {.requires_grad = true});
  sum(x).backward();
  EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
}

// Sizes around the blocks that long sums are cut into, for rows, columns and both; and the paths with scratch memory.
TEST(Reduce, LongSumsMatchAcrossThreadCounts) {
  const Case cases[] = {
      {{4095}, {0}, false, {true}},
      {{4097}, {0}, false, {true}},
      {{65537}, {0}, false, {true}},
      {{3 * 65536 + 5}, {0}, false, {true}},
      {{2, 70001}, {1}, false, {false, true}},
      {{65, 130}, {0}, false, {true, false}},
      {{1030, 129}, {0}, false, {true, false}},
      {{20011, 10}, {0}, false, {true, false}},
      {{2, 3001, 33}, {1}, false, {false, true, false}},
      {{1500, 40}, {1}, false, {false, true}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(str(c.shape, " over ", c.dims));
    OpCase op = reduce_case(
        "sum", c, [c](const Tensor& x) { return x.sum(c.dims); }, sum_of);
    op.dtypes = {kFloat64, kFloat32, kBFloat16};
    check_values(op);
    check_threads(op);
    op.run = [c](const std::vector<Tensor>& in) { return in[0].mean(c.dims); };
    op.reference = [c](const std::vector<Dense>& in) { return reduce(in[0], c.removed, c.keepdim, mean_of); };
    op.terms = 64;  // a lane of a leaf adds 128 numbers one after the other
    check_values(op);
  }
}

TEST(Reduce, LongSumsOfOnesStayAccurate) {
  // One after the other in float32 this would stop growing at 2^24.
  const Tensor x = ones({(1 << 25) + 3});
  EXPECT_NEAR(sum(x).item(), (1 << 25) + 3, 4);
  EXPECT_EQ(sum(ones({100000}, {kFloat16})).item(), INFINITY);
  EXPECT_NEAR(mean(ones({100000}, {kFloat16})).item(), 1, 1e-3);
}

TEST(Reduce, IntegersAreSummedInInt64) {
  EXPECT_EQ(sum(full({300}, 200, {kUInt8})).item<int64_t>(), 60000);
  EXPECT_EQ(sum(full({3, 2}, INT32_MAX, {kInt32}), {0}).to_vector<int64_t>(),
            (std::vector<int64_t>{3LL * INT32_MAX, 3LL * INT32_MAX}));
  const Tensor flags = tensor({true, false, true});
  EXPECT_EQ(sum(flags).dtype(), kInt64);
  EXPECT_EQ(sum(flags).item<int64_t>(), 2);
}

TEST(Reduce, MaxMatchesItsFormula) {
  const auto largest = [](const Values& values) { return *std::max_element(values.begin(), values.end()); };
  for (const Shape& shape : {Shape{33}, Shape{7, 31}, Shape{2, 3, 4}, Shape{}, Shape{1}}) {
    const Case all{shape, {}, false, std::vector<bool>(shape.size(), true)};
    OpCase op = reduce_case(
        "max", all, [](const Tensor& x) { return x.max(); }, largest);
    // Rounding to a half type makes ties where float64 has none, so gradients are compared from float32 on.
    check_values(op);
    op.dtypes = {kFloat64, kFloat32};
    check(op);
  }
  EXPECT_EQ(max(tensor({-3, -1, -2})).item<int64_t>(), -1);
  EXPECT_EQ(max(tensor({3, -1, 2})).dtype(), kInt64);
}

TEST(Reduce, MaxGradientIsSharedAmongTies) {
  Tensor x = tensor({2.0, 5.0, 5.0, 1.0, 5.0});
  x.set_requires_grad();
  x.max().backward(full({}, 6.0));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 2, 2, 0, 2}));
  Tensor y = tensor({2.0, NAN, 1.0, NAN});
  y.set_requires_grad();
  const Tensor largest = y.max();
  EXPECT_TRUE(std::isnan(largest.item()));
  largest.backward(full({}, 6.0));
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{0, 3, 0, 3}));
}

TEST(Reduce, MaxAndArgmaxFindNaNAnywhere) {
  for (int64_t position : {0, 1, 31, 32, 63, 64, 69}) {
    Tensor x = random_tensor({70}, 5);
    x.select(0, position).fill_(NAN);
    EXPECT_TRUE(std::isnan(max(x).item())) << position;
    EXPECT_EQ(argmax(x, 0).item<int64_t>(), position);
    EXPECT_EQ(argmax(x.view({70, 1}).expand({70, 3}).contiguous(), 0).to_vector<int64_t>(),
              (std::vector<int64_t>{position, position, position}));
  }
}

TEST(Reduce, MaxOfSignedZerosIsPositiveZero) {
  for (const DType dtype : floating_dtypes()) {
    for (const int64_t n : {2, 31, 32, 33, 70, 1100}) {
      for (const int64_t position : {int64_t{0}, n / 2, n - 1}) {
        const Tensor x = full({n}, -0.0, {dtype, test_device()});
        x.select(0, n - 1 - position).fill_(-1.0);
        EXPECT_TRUE(std::signbit(max(x).item())) << dtype << " " << n;
        x.select(0, position).fill_(0.0);
        EXPECT_FALSE(std::signbit(max(x).item())) << dtype << " " << n << " " << position;
      }
    }
  }
}

TEST(Reduce, EmptyMeanAndVarHaveSecondGradients) {
  for (const auto& [f, shape] : std::vector<std::pair<std::function<Tensor(const Tensor&)>, Shape>>{
           {[](const Tensor& x) { return mean(x); }, {0}},
           {[](const Tensor& x) { return mean(x, {0}); }, {0, 3}},
           {[](const Tensor& x) { return var(x); }, {0}},
           {[](const Tensor& x) { return var(x, {0}, 0); }, {0, 3}}}) {
    const Tensor x = zeros(shape, {kFloat64, test_device()}).set_requires_grad();
    const Tensor y[] = {f(x)}, inputs[] = {x};
    const Tensor cotangents[] = {ones_like(y[0]).set_requires_grad()};
    const std::vector<Tensor> first = grad(y, inputs, cotangents, {.create_graph = true});
    const Tensor ones[] = {ones_like(first[0])};
    const Tensor second = grad(first, cotangents, ones)[0];
    EXPECT_EQ(second.to_vector<double>(), dense_zeros(y[0].shape()).values);
    EXPECT_TRUE(std::isnan(y[0].to_vector<double>()[0]));
  }
}

// As PyTorch's: NaN where the divisor is 0, 0 where it is 1.
TEST(Reduce, VarOfOneValueHasPyTorchGradients) {
  for (const int64_t correction : {0, 1}) {
    const Tensor x = full({1}, 3.0, {kFloat64, test_device()}).set_requires_grad();
    const Tensor y[] = {var(x, {}, correction)}, inputs[] = {x};
    const std::vector<Tensor> first = grad(y, inputs, {}, {.create_graph = true});
    const std::vector<Tensor> second = grad(first, inputs);
    for (const double value : {y[0].item(), first[0].item(), second[0].item()}) {
      EXPECT_TRUE(correction == 0 ? value == 0 : std::isnan(value)) << correction << " " << value;
    }
  }
}

TEST(Reduce, ArgmaxMatchesItsFormula) {
  const auto first_largest = [](const Values& values) {
    return static_cast<double>(std::max_element(values.begin(), values.end()) - values.begin());
  };
  const Case cases[] = {
      {{33}, {0}, true, {true}},
      {{3, 7}, {1}, false, {false, true}},
      {{7, 65}, {0}, false, {true, false}},
      {{3, 5, 4}, {-2}, true, {false, true, false}},
      {{5, 1}, {1}, false, {false, true}},
      {{}, {0}, false, {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(str(c.shape, " over ", c.dims));
    OpCase op = reduce_case(
        "argmax", c, [c](const Tensor& x) { return x.argmax(c.dims[0], c.keepdim); }, first_largest);
    op.result_dtype = kInt64;
    op.has_gradient = false;
    check(op);
  }
  EXPECT_EQ(argmax(tensor({1, 7, 3, 7}), 0).item<int64_t>(), 1);
  OpCase large = reduce_case(
      "argmax", {{600, 129}, {1}, false, {false, true}}, [](const Tensor& x) { return x.argmax(1); }, first_largest);
  large.result_dtype = kInt64;
  large.has_gradient = false;
  check_values(large);
  check_threads(large);
}

TEST(Reduce, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(sum(x, {1, -1}));
            }),
            "sum: dims [1, -1] name dimension 1 twice\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(sum(x, {2})); }),
            "sum: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_EQ(error_text<DTypeError>([&] {
              static_cast<void>(mean(tensor({1, 2})));
            }),
            "mean: input must be floating\n"
            "  input  cpu  int64 [2]");
  EXPECT_EQ(error_text<DTypeError>([&] {
              static_cast<void>(var(tensor({1, 2})));
            }),
            "var: input must be floating\n"
            "  input  cpu  int64 [2]");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(var(x, {2})); }),
            "var: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(var(x, {0, 0}));
            }),
            "var: dims [0, 0] name dimension 0 twice\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(max(zeros({0, 3})));
            }),
            "max: input has no elements\n"
            "  input  cpu  float32 [0, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(argmax(zeros({2, 0}), 1));
            }),
            "argmax: dimension 1 is empty\n"
            "  input  cpu  float32 [2, 0]");
}

}}  // namespace tandem::testing

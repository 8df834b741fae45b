#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

/// var in float64 of values that are exact in the dtype under test.
double exact_var(const Dense& values) { return var(make_tensor(values, kFloat64)).item(); }

TEST(Reduce, VarStaysAccurateFarFromZero) {
  // The difference of mean square and squared mean would have no correct digit.
  const Values small = random_dense({3000}, 5, -1, 1).values;
  Dense far{{3000}, small};
  for (double& value : far.values) value = static_cast<float>(value + 10000);
  EXPECT_NEAR(var(make_tensor(far, kFloat32)).item(), exact_var(far), 1e-5);
  Dense farther{{3000}, small};
  for (double& value : farther.values) value = static_cast<float>(value + 1e6);
  EXPECT_NEAR(var(make_tensor(farther, kFloat32)).item(), exact_var(farther), 1e-6);
  for (double& value : far.values) value = 1000 + 8 * std::floor(value - 9998);  // exact in bfloat16
  EXPECT_NEAR(var(make_tensor(far, kBFloat16)).item(), exact_var(far), 0.1);
}

TEST(Reduce, VarWithoutDegreesOfFreedomIsNotFinite) {
  EXPECT_TRUE(std::isnan(var(tensor({3.0})).item()));
  EXPECT_TRUE(std::isnan(var(zeros({0})).item()));
  EXPECT_EQ(var(tensor({3.0, 5.0}), {}, 2).item(), INFINITY);
  EXPECT_EQ(var(tensor({3.0, 5.0}), {}, 7).item(), INFINITY);
  EXPECT_EQ(var(tensor({3.0}), {}, 0).item(), 0);
}

TEST(Reduce, EmptyInputsGiveIdentityOrNaN) {
  EXPECT_EQ(sum(zeros({0, 3}), {0}).to_vector<double>(), (Values{0, 0, 0}));
  EXPECT_EQ(sum(zeros({3, 0}), {1}, true).shape(), (Shape{3, 1}));
  EXPECT_EQ(sum(zeros({3, 0}), {0}).shape(), (Shape{0}));
  EXPECT_TRUE(std::isnan(mean(zeros({0, 1}), {0}).item()));
  EXPECT_EQ(argmax(zeros({0, 3}), 1).shape(), (Shape{0}));
  Tensor x = zeros({0, 3}, {.requires_grad = true});
  sum(x).backward();
  EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
}

TEST(Reduce, LongSumsOfOnesStayAccurate) {
  // Added sequentially in float32, the sum would stop at 2^24.
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

// More elements than GPUs sum in blocks of the least size: rows that are and are not multiples of 16 bytes, fewer and
// more of them than blocks.
TEST(Reduce, EveryElementOfLargeTensorsIsSummed) {
  for (const Shape& shape : {Shape{3, 6000048}, Shape{1, 17400001}, Shape{530, 33100}, Shape{1, 70000000}}) {
    SCOPED_TRACE(shape);
    const Tensor ones_of_bytes = full(shape, 1, {kUInt8, test_device()});
    EXPECT_EQ(sum(ones_of_bytes, {1}).to_vector<int64_t>(),
              std::vector<int64_t>(static_cast<size_t>(shape[0]), shape[1]));
  }
}

TEST(Reduce, MaxGradientIsSharedAmongTies) {
  Tensor x = tensor({2.0, 5.0, 5.0, 1.0, 5.0});
  x.requires_grad_();
  x.max().backward(full({}, 6.0));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 2, 2, 0, 2}));
  Tensor y = tensor({2.0, NAN, 1.0, NAN});
  y.requires_grad_();
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
    const Tensor x = zeros(shape, {kFloat64, test_device()}).requires_grad_();
    const Tensor y[] = {f(x)}, inputs[] = {x};
    const Tensor cotangents[] = {ones_like(y[0]).requires_grad_()};
    const std::vector<Tensor> first = grad(y, inputs, cotangents, {.create_graph = true});
    const Tensor ones[] = {ones_like(first[0])};
    const Tensor second = grad(first, cotangents, ones)[0];
    EXPECT_EQ(second.to_vector<double>(), dense_zeros(y[0].shape()).values);
    EXPECT_TRUE(std::isnan(y[0].to_vector<double>()[0]));
  }
}

// As in PyTorch: NaN if the divisor is 0, 0 if it is 1.
TEST(Reduce, VarOfOneValueHasPyTorchGradients) {
  for (const int64_t correction : {0, 1}) {
    const Tensor x = full({1}, 3.0, {kFloat64, test_device()}).requires_grad_();
    const Tensor y[] = {var(x, {}, correction)}, inputs[] = {x};
    const std::vector<Tensor> first = grad(y, inputs, {}, {.create_graph = true});
    const std::vector<Tensor> second = grad(first, inputs);
    for (const double value : {y[0].item(), first[0].item(), second[0].item()}) {
      EXPECT_TRUE(correction == 0 ? value == 0 : std::isnan(value)) << correction << " " << value;
    }
  }
}

TEST(Reduce, ExtremaOfIntegersAreExact) {
  EXPECT_EQ(argmax(tensor({1, 7, 3, 7}).to(test_device()), 0).item<int64_t>(), 1);  // the first of equal ones
  const Tensor x = tensor({INT64_MIN, INT64_MAX, int64_t{0}, INT64_MAX - 1}).to(test_device());
  EXPECT_EQ(max(x).item<int64_t>(), INT64_MAX);
  EXPECT_EQ(min(x).item<int64_t>(), INT64_MIN);
  const Tensor bytes = tensor({3, 255, 0, 128}).to(kUInt8).to(test_device());
  EXPECT_EQ(max(bytes).item<int64_t>(), 255);
  EXPECT_EQ(min(bytes).item<int64_t>(), 0);
  EXPECT_FALSE(amin(tensor({true, false}).to(test_device())).item<bool>());
}

TEST(Reduce, MaxAlongADimensionGivesTheGradientToTheSelectedElement) {
  const Tensor x = tensor({2.0, 5.0, 5.0, 1.0}).to(test_device()).view({2, 2}).clone().requires_grad_();
  const ValuesIndices best = max(x, 0);
  EXPECT_EQ(best.indices.to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
  best.values.backward(tensor({1.0, 10.0}).to(test_device()));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 10, 1, 0}));
  const Tensor ties = tensor({5.0, 5.0}).to(test_device()).requires_grad_();
  max(ties, 0).values.backward();
  amin(ties, {0}).backward();
  EXPECT_EQ(ties.grad().to_vector<double>(), (Values{1.5, 0.5}));
}

TEST(Reduce, ProdGradientIsExactWithZeros) {
  const Tensor x = tensor({2.0, 0.0, 3.0, 0.0, 0.0, 3.0}).to(test_device()).view({2, 3}).clone().requires_grad_();
  prod(x, 1).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 6, 0, 0, 0, 0}));
  EXPECT_EQ(prod(zeros({0}, {kFloat32, test_device()})).item(), 1);
  EXPECT_EQ(prod(tensor({2, 3, -4}).to(test_device())).item<int64_t>(), -24);
}

TEST(Reduce, NormsOfZeroVectorsHaveGradientZero) {
  for (const double p : {0.0, 0.5, 1.0, 2.0, 3.0, double{INFINITY}, -double{INFINITY}}) {
    const Tensor x = zeros({2, 3}, {kFloat64, test_device()}).requires_grad_();
    const Tensor out = norm(x, p, {1});
    EXPECT_EQ(out.to_vector<double>(), (Values{0, 0})) << p;
    out.sum().backward();
    EXPECT_EQ(x.grad().to_vector<double>(), Values(6, 0)) << p;
  }
  const Tensor x = tensor({3.0, 0.0, NAN}).to(test_device());
  EXPECT_EQ(norm(x, 0).item(), 2);
  EXPECT_TRUE(std::isnan(norm(x).item()) && std::isnan(norm(x, 1).item()) && std::isnan(norm(x, INFINITY).item()));
  EXPECT_EQ(norm(x.slice(0, 0, 2), -1).item(), 0);
  EXPECT_EQ(norm(full({100}, 200.0, {kFloat16, test_device()})).item(), 2000);
}

TEST(Reduce, StdOfEqualElementsHasGradientZero) {
  const Tensor x = full({3}, 2.0, {kFloat32, test_device()}).requires_grad_();
  std(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 0, 0}));
  EXPECT_NEAR(std(tensor({1.0, 3.0}), {}, 0.5).item(), std::sqrt(2 / 1.5), 1e-6);
}

TEST(Reduce, LogsumexpHandlesInfinities) {
  const Tensor x = tensor({-INFINITY, -INFINITY, 1000.0, 1000.0, INFINITY, 0.0}).to(test_device()).view({3, 2});
  const Tensor leaf = x.slice(0, 0, 2).clone().requires_grad_();
  const Values rows = logsumexp(x, {1}).to_vector<double>();
  EXPECT_EQ(rows[0], -INFINITY);
  EXPECT_NEAR(rows[1], 1000 + std::log(2), 1e-4);
  EXPECT_EQ(rows[2], INFINITY);
  logsumexp(leaf, {1}).sum().backward();
  const Values gradient = leaf.grad().to_vector<double>(), expected = {0, 0, 0.5, 0.5};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-4) << i;
  EXPECT_EQ(logsumexp(zeros({2, 0}, {kFloat32, test_device()}), {1}).to_vector<double>(), Values(2, -INFINITY));
  EXPECT_EQ(logsumexp(tensor({1, 1}).to(test_device()), {0}).dtype(), kFloat32);
}

TEST(Reduce, NansumAndNanmeanSkipNaNs) {
  const Tensor x = tensor({1.0, NAN, 4.0, NAN}).to(test_device()).requires_grad_();
  EXPECT_EQ(nansum(x).item(), 5);
  nanmean(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0.5, 0, 0.5, 0}));
  EXPECT_TRUE(std::isnan(nanmean(full({2}, NAN, {kFloat32, test_device()})).item()));
  EXPECT_EQ(nansum(tensor({1, 2}).to(test_device())).dtype(), kInt64);
}

TEST(Reduce, AnyAndAllOfEmptyRangesAndBytes) {
  const Tensor none = zeros({2, 0}, {kFloat32, test_device()});
  EXPECT_EQ(any(none, {1}).to_vector<bool>(), (std::vector<bool>{false, false}));
  EXPECT_EQ(all(none, {1}).to_vector<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ(all(tensor({3, 0}).to(kUInt8)).dtype(), kUInt8);
  EXPECT_TRUE(any(tensor({0.0, NAN}).to(test_device())).item<bool>());
}

TEST(Reduce, BincountChecksItsArguments) {
  EXPECT_EQ(bincount(tensor({1, 3, 1}).to(test_device()), {}, 5).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 2, 0, 1, 0}));
  EXPECT_EQ(bincount(zeros({0}, {kInt64, test_device()}), {}, 2).to_vector<int64_t>(), (std::vector<int64_t>{0, 0}));
  EXPECT_ERROR(ValueError, bincount(tensor({1, -3})),
               "bincount: input contains -3, expected numbers of at least 0\n  input  cpu  int64 [2]");
  EXPECT_ERROR(ShapeError, bincount(tensor({INT64_MAX})),
               "shape [9223372036854775807] has too many elements: its size in bytes overflows int64");
  EXPECT_THROW(static_cast<void>(bincount(tensor({1.0}))), DTypeError);
}

TEST(Reduce, BincountNeedsLittleMemory) {
  const int64_t n = (int64_t{5} << 20) + 3;
  const Tensor x = full({n}, 7, {kUInt8, Device()}), weights = full({n}, 0.5, {kFloat32, Device()});
  const int64_t before = memory_stats(Device()).allocated;
  reset_peak_memory(Device());
  EXPECT_EQ(bincount(x)[7].item<int64_t>(), n);
  EXPECT_EQ(bincount(x, weights)[7].item(), static_cast<double>(n) / 2);
  EXPECT_LT(memory_stats(Device()).peak_allocated - before, 6 * n);
}

TEST(Reduce, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(ShapeError, sum(x, {1, -1}),
               "sum: dims [1, -1] contain dimension 1 twice\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(IndexError, sum(x, {2}), "sum: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_ERROR(DTypeError, mean(tensor({1, 2})), "mean: input must be floating\n  input  cpu  int64 [2]");
  EXPECT_ERROR(DTypeError, var(tensor({1, 2})), "var: input must be floating\n  input  cpu  int64 [2]");
  EXPECT_ERROR(IndexError, var(x, {2}), "var: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_ERROR(ShapeError, var(x, {0, 0}), "var: dims [0, 0] contain dimension 0 twice\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, max(zeros({0, 3})), "max: input has no elements\n  input  cpu  float32 [0, 3]");
  EXPECT_ERROR(ShapeError, argmax(zeros({2, 0}), 1), "argmax: dimension 1 is empty\n  input  cpu  float32 [2, 0]");
}

}}  // namespace tandem::testing

#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/tests/ops/activation_reference.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using namespace activation;

// --- the functions, in long double ---------------------------------------------------------------

Real exact_gelu_slope(Real x) {
  if (fabsl(x) > 100) return x > 0;
  return normal(x) + x * 0.398942280401432677939946L * expl(-x * x / 2);
}

Real exact_gelu_tanh_slope(Real x) {
  if (fabsl(x) > 100) return x > 0;
  const Real v = kSlope * (x + 0.044715L * x * x * x);
  return logistic(v) + x * logistic(v) * logistic(-v) * kSlope * (1 + 3 * 0.044715L * x * x);
}

Real exact_silu_slope(Real x) {
  if (fabsl(x) > 10000) return x > 0;
  return logistic(x) + x * logistic(x) * logistic(-x);
}

// --- float32, element by element -----------------------------------------------------------------

/// Distance between adjacent floats at abs(x); for subnormal x, that of the smallest normal numbers.
double ulp(double x) {
  const float f = std::max(static_cast<float>(std::abs(x)), 0x1p-126f);
  return std::nextafter(f, INFINITY) - static_cast<double>(f);
}

/// The largest error over floats of all magnitudes and both signs, in units in the last place of the exact value, or of
/// `floor` if that is larger. If the exact value is below kTiny, the result must only be below kTiny, too.
constexpr double kTiny = 0x1p-119;

double worst_error(float (*f)(float), const Function& exact, double floor) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 9973) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const float x = std::bit_cast<float>(bits | sign);
      const double want = static_cast<double>(exact(x));
      if (std::abs(want) < kTiny && std::abs(x) > 1) {
        EXPECT_LT(std::abs(f(x)), 2 * kTiny) << x;
        continue;
      }
      worst = std::max(worst, std::abs(f(x) - want) / ulp(std::max(std::abs(want), floor)));
    }
  }
  return worst;
}

TEST(Activation, Float32SlopesAreWithinFourUlps) {
  // The slopes have a root, near which only the absolute error is small.
  EXPECT_LE(worst_error(gelu_erf_derivative, exact_gelu_slope, 0.5), 4);
  EXPECT_LE(worst_error(gelu_tanh_derivative, exact_gelu_tanh_slope, 0.5), 4);
  EXPECT_LE(worst_error(silu_derivative, exact_silu_slope, 0.5), 4);
}

TEST(Activation, ElementResultIsIndependentOfNeighbors) {
  for (const Activation& activation : activations()) {
    for (DType dtype : floating_dtypes()) {
      const Tensor x = random_tensor({37}, 3, dtype, -5, 5).to(test_device());
      const Tensor y = activation.run(x);
      for (int64_t i = 0; i < 37; ++i) {
        EXPECT_EQ(activation.run(x.select(0, i)).item(), y.select(0, i).item()) << activation.name << " " << dtype;
      }
    }
  }
}

TEST(Activation, DenseInputMemoryOrderIsPreserved) {
  for (const Activation& activation : activations()) {
    Tensor x = random_tensor({2, 3, 5}, 1).transpose(0, 2).detach().requires_grad_();
    const Tensor y = activation.run(x);
    EXPECT_EQ(y.strides(), x.strides());
    const Tensor outputs[] = {y};
    const Tensor inputs[] = {x};
    const Tensor cotangents[] = {random_tensor({5, 3, 2}, 2)};
    EXPECT_EQ(grad(outputs, inputs, cotangents)[0].strides(), x.strides());
  }
}

TEST(Activation, ForwardSavesInputOrOutputOnly) {
  const auto holders = [](const Tensor& x) { return x.storage()->use_count() + x.impl_ptr()->use_count(); };
  for (const Activation& activation : activations()) {
    const Tensor x = random_tensor({3}, 1).requires_grad_();
    const uint32_t before = holders(x);
    const Tensor y = activation.run(x);
    const bool of_output = activation.name[0] == 't' || activation.name == std::string("sigmoid");
    EXPECT_EQ(holders(x), before + (of_output ? 0 : 1)) << activation.name;
  }
}

TEST(Activation, PiecewiseFunctionsHaveSlopesOfPyTorchAtKinks) {
  const auto slope = [](double x, const std::function<Tensor(const Tensor&)>& f) {
    Tensor leaf = full({}, x, {kFloat32, test_device()}).requires_grad_();
    f(leaf).backward(full({}, 3, {kFloat32, test_device()}));
    return leaf.grad().item<float>();
  };
  EXPECT_FLOAT_EQ(slope(3, hardswish), 3);
  EXPECT_FLOAT_EQ(slope(-3, hardswish), 0);
  EXPECT_FLOAT_EQ(slope(3, hardsigmoid), 0);
  EXPECT_FLOAT_EQ(slope(6, relu6), 0);
  EXPECT_FLOAT_EQ(slope(-1, [](const Tensor& x) { return hardtanh(x); }), 0);
  EXPECT_FLOAT_EQ(slope(0, [](const Tensor& x) { return prelu(x, full({1}, 0.5, {kFloat32, test_device()})); }), 1.5f);
}

TEST(Activation, GradientsAtNaNMatchPyTorchsFormulas) {
  for (const DType dtype : floating_dtypes()) {
    const auto slope = [&](const std::function<Tensor(const Tensor&)>& f) {
      Tensor leaf = full({9}, NAN, {dtype, test_device()}).requires_grad_();
      f(leaf).backward(full({9}, 2, {dtype, test_device()}));
      return leaf.grad().to_vector<double>()[8];
    };
    EXPECT_EQ(slope([](const Tensor& x) { return hardtanh(x); }), 2);
    EXPECT_EQ(slope(hardsigmoid), 0);
  }
  EXPECT_ERROR(ValueError, celu(zeros({2}), 0), "celu: alpha must not be 0");
}

TEST(Activation, HalfTypesAreComputedInFloat32AndRoundedOnce) {
  const auto glu_of_rows = [](const Tensor& x) { return glu(x); };
  const auto tenths = [](const Tensor& x) { return round(x, 1); };
  for (const DType dtype : {kFloat16, kBFloat16}) {
    const Tensor x = random_tensor({40, 100}, 5, dtype, -6, 6).to(test_device());
    for (const auto& f :
         std::vector<std::function<Tensor(const Tensor&)>>{glu_of_rows, tenths, hardsigmoid, mish, softsign}) {
      EXPECT_TRUE(same_bits(f(x), f(x.to(kFloat32)).to(dtype)));
    }
  }
  EXPECT_EQ(round(full({}, 7000, {kFloat16, test_device()}), 1).item(), 7000);
}

TEST(Activation, SoftplusIsLinearAboveThresholdAndStable) {
  const Tensor x = tensor({21.0, -100.0, 100.0, NAN}).to(test_device());
  const std::vector<double> y = softplus(x).to_vector<double>();
  EXPECT_EQ(y[0], 21);
  EXPECT_NEAR(y[1], 0, 1e-40);
  EXPECT_EQ(y[2], 100);
  EXPECT_TRUE(std::isnan(y[3]));
  const std::vector<double> log_of = logsigmoid(x).to_vector<double>();
  EXPECT_NEAR(log_of[0], -std::exp(-21), 1e-15);
  EXPECT_EQ(log_of[1], -100);
}

TEST(Activation, ClampsAcceptIntegersAndShapesAreChecked) {
  EXPECT_EQ(hardtanh(tensor({-5, 0, 5})).to_vector<int64_t>(), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(relu6(tensor({-5, 3, 9})).to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 6}));
  EXPECT_ERROR(ValueError, glu(zeros({2, 3})),
               "glu: the size of dimension 1 must be even\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, prelu(zeros({2, 3}), zeros({2})),
               "prelu: weight must have 1 element, or 3 (channels)\n"
               "  input   cpu  float32 [2, 3]\n"
               "  weight  cpu  float32 [2]");
}

TEST(GumbelSoftmax, SamplesFollowTheLogits) {
  Generator generator(7);
  const Tensor logits = log(tensor({1.0, 2.0, 7.0})).expand({20000, 3}).to(test_device());
  const Tensor soft = gumbel_softmax(logits, 0.5, false, -1, &generator);
  EXPECT_TRUE(allclose(soft.sum(Shape{1}), ones({20000}, soft.options()), 1e-5));
  const Tensor hard = gumbel_softmax(logits, 0.5, true, -1, &generator);
  EXPECT_TRUE(close(hard.mean(Shape{0}), {{3}, {0.1, 0.2, 0.7}}, 0.02));
  EXPECT_TRUE(allclose(hard.sum(Shape{1}), ones({20000}, soft.options()), 1e-5));
  Generator rare;
  static_cast<void>(rare.reserve(4 * 14883995));  // the next word begins with 24 zeros: rand gives 0
  EXPECT_EQ(gumbel_softmax(zeros({1}), 1, false, -1, &rare).item(), 1);
  EXPECT_ERROR(ValueError, gumbel_softmax(logits, 0), "gumbel_softmax: tau is 0, expected a positive number");
}

TEST(GumbelSoftmax, HardFormHasTheGradientOfTheSoftOne) {
  Tensor x = random_tensor({3, 5}, 1).to(test_device()).requires_grad_();
  const Tensor weights = random_tensor({3, 5}, 2).to(test_device());
  const auto gradient = [&](bool hard) {
    Generator generator(3);
    x.zero_grad();
    (gumbel_softmax(x, 0.75, hard, 1, &generator) * weights).sum().backward();
    return x.grad().to_vector<double>();
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(Activation, GeluAndSiluRejectIntegerInput) {
  const Tensor numbers = tensor({1, 2});
  EXPECT_ERROR(DTypeError, gelu(numbers), "gelu: input must be floating\n  input  cpu  int64 [2]");
  EXPECT_ERROR(DTypeError, silu(numbers), "silu: input must be floating\n  input  cpu  int64 [2]");
}

}}  // namespace tandem::testing

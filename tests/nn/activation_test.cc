#include <tandem/nn/activation.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

/// Expects that the layer applies f to each value.
template <class L, class... Options>
void expect_each(const std::function<double(double)>& f, Options... options) {
  L layer(options...);
  SCOPED_TRACE(td::str(layer.type_name(), "(", layer.extra_repr(), ")"));
  const td::Tensor x = td::tensor({-9.0, -3.0, -0.5, 0.0, 0.25, 2.0, 7.0, 25.0});
  const auto values = x.to_vector<double>();
  const auto results = layer(x).template to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = f(values[i]);
    EXPECT_NEAR(results[i], expected, 1e-6 * (1 + std::abs(expected))) << values[i];
  }
  EXPECT_TRUE(layer.parameters().empty());
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double exponential_unit(double x, double alpha, double scale) { return x > 0 ? x : alpha * std::expm1(x / scale); }

TEST(Activation, LayersApplyTheirFormula) {
  expect_each<nn::ReLU>([](double x) { return std::max(x, 0.0); });
  expect_each<nn::ReLU6>([](double x) { return std::clamp(x, 0.0, 6.0); });
  expect_each<nn::GELU>([](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
  expect_each<nn::GELU>(
      [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); },
      td::GeluApproximation::kTanh);
  expect_each<nn::SiLU>([](double x) { return x * logistic(x); });
  expect_each<nn::Tanh>([](double x) { return std::tanh(x); });
  expect_each<nn::Sigmoid>(logistic);
  expect_each<nn::LogSigmoid>([](double x) { return std::log(logistic(x)); });
  expect_each<nn::SELU>([](double x) { return 1.0507009873554805 * exponential_unit(x, 1.6732632423543773, 1); });
  expect_each<nn::Mish>([](double x) { return x * std::tanh(std::log1p(std::exp(x))); });
  expect_each<nn::Softsign>([](double x) { return x / (1 + std::abs(x)); });
  expect_each<nn::Hardsigmoid>([](double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; });
  expect_each<nn::Hardswish>([](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; });
  expect_each<nn::Hardtanh>([](double x) { return std::clamp(x, -1.0, 1.0); });
  expect_each<nn::Hardtanh>([](double x) { return std::clamp(x, -2.0, 0.5); }, -2.0, 0.5);
  expect_each<nn::LeakyReLU>([](double x) { return x > 0 ? x : 0.01 * x; });
  expect_each<nn::LeakyReLU>([](double x) { return x > 0 ? x : 0.2 * x; }, 0.2);
  expect_each<nn::ELU>([](double x) { return exponential_unit(x, 1, 1); });
  expect_each<nn::ELU>([](double x) { return exponential_unit(x, 0.5, 1); }, 0.5);
  expect_each<nn::CELU>([](double x) { return exponential_unit(x, 1, 1); });
  expect_each<nn::CELU>([](double x) { return exponential_unit(x, 0.5, 0.5); }, 0.5);
  expect_each<nn::Softplus>([](double x) { return x > 20 ? x : std::log1p(std::exp(x)); });
  expect_each<nn::Softplus>([](double x) { return x > 2 ? x : std::log1p(std::exp(0.5 * x)) / 0.5; }, 0.5, 1.0);
}

TEST(Activation, LayersOverADimensionUseIt) {
  const td::Tensor x = td::from_vector<float>({0, 2, 1, 0, -1, 3}, {3, 2});
  const auto column = [](double sign, double a, double b, double c) {
    return std::exp(sign * a) / (std::exp(sign * a) + std::exp(sign * b) + std::exp(sign * c));
  };
  EXPECT_NEAR(nn::Softmax(0)(x).to_vector<double>()[2], column(1, 1, 0, -1), 1e-6);
  EXPECT_NEAR(nn::Softmin(0)(x).to_vector<double>()[2], column(-1, 1, 0, -1), 1e-6);
  EXPECT_NEAR(nn::LogSoftmax(0)(x).to_vector<double>()[2], std::log(column(1, 1, 0, -1)), 1e-6);
  const td::Tensor gated = nn::GLU()(x);
  EXPECT_EQ(gated.shape(), td::Shape({3, 1}));
  EXPECT_NEAR(gated.to_vector<double>()[2], -logistic(3), 1e-6);
  EXPECT_EQ(nn::GLU(1)(x).to_vector<float>(), gated.to_vector<float>());
}

TEST(Activation, ExtraReprShowsOptions) {
  EXPECT_EQ(nn::Tanh().extra_repr(), "");
  EXPECT_EQ(nn::Hardtanh(-2, 0.5).extra_repr(), "-2, 0.5");
  EXPECT_EQ(nn::Softmax(1).extra_repr(), "1");
  EXPECT_EQ(nn::Softmin(1).type_name(), "Softmin");
  EXPECT_EQ(nn::PReLU(3).extra_repr(), "3");
}

TEST(PReLU, WeightsAreSlopesOfChannels) {
  nn::PReLU one;
  EXPECT_EQ(one.named_parameters()[0].first, "weight");
  EXPECT_EQ(one(td::tensor({-4.0, 2.0})).to_vector<float>(), (std::vector<float>{-1, 2}));
  nn::PReLU two(2, 0.5);
  const td::Tensor y = two(td::from_vector<float>({-4, -2, 1, -8}, {2, 2}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{-2, -1, 1, -4}));
  y.backward(td::ones({2, 2}));
  EXPECT_EQ(two.weight.grad().to_vector<float>(), (std::vector<float>{-4, -10}));
  EXPECT_EQ(error_text<td::ValueError>([] { nn::PReLU(0); }), "PReLU: num_parameters is 0, expected at least 1");
}

}  // namespace

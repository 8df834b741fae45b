#include <tandem/nn/activation.h>

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

/// Expects that the layer applies f to each value.
template <class F>
void expect_each(nn::Layer& layer, F f) {
  const td::Tensor x = td::tensor({-3.0, -0.5, 0.0, 0.25, 2.0});
  const auto values = x.to_vector<double>();
  const auto results = layer(x).to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(results[i], f(values[i]), 1e-6) << values[i];
}

TEST(Activation, LayersApplyTheirFormula) {
  nn::ReLU relu;
  expect_each(relu, [](double x) { return std::max(x, 0.0); });
  nn::GELU gelu;
  expect_each(gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
  nn::GELU gelu_tanh(td::GeluApproximation::kTanh);
  expect_each(gelu_tanh,
              [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); });
  nn::SiLU silu;
  expect_each(silu, [](double x) { return x / (1 + std::exp(-x)); });
  nn::Tanh tanh;
  expect_each(tanh, [](double x) { return std::tanh(x); });
  nn::Sigmoid sigmoid;
  expect_each(sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
}

TEST(Activation, GeluTanhApproximationDiffersFromExact) {
  nn::GELU gelu;
  nn::GELU gelu_tanh(td::GeluApproximation::kTanh);
  const td::Tensor x = td::tensor({1.5});
  EXPECT_NE(gelu(x).item<float>(), gelu_tanh(x).item<float>());
}

}  // namespace

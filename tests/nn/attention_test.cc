#include <tandem/nn/attention.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/nn/init.h>
#include <tandem/ops/random.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

using Matrix = std::vector<std::vector<double>>;

/// The layer's output for one sequence [T, E], computed in double by the formula; allowed(t, s): position t may attend
/// to s.
template <class Allowed>
Matrix reference(const nn::MultiheadAttention& layer, const td::Tensor& x, int64_t num_heads, Allowed allowed) {
  const auto steps = static_cast<size_t>(x.size(0));
  const auto width = static_cast<size_t>(x.size(1));
  const size_t head = width / static_cast<size_t>(num_heads);
  const auto input = x.to_vector<double>();
  const auto project = [&](const std::vector<double>& rows, const td::Tensor& weight, const td::Tensor& bias) {
    const auto w = weight.to_vector<double>();
    const auto outputs = static_cast<size_t>(weight.size(0));
    Matrix result(steps, std::vector<double>(outputs));
    for (size_t t = 0; t < steps; ++t) {
      for (size_t o = 0; o < outputs; ++o) {
        result[t][o] = bias.defined() ? bias.to_vector<double>()[o] : 0;
        for (size_t i = 0; i < width; ++i) result[t][o] += rows[t * width + i] * w[o * width + i];
      }
    }
    return result;
  };
  const Matrix qkv = project(input, layer.in_proj_weight, layer.in_proj_bias);
  std::vector<double> joined(steps * width);
  for (size_t h = 0; h < width; h += head) {
    for (size_t t = 0; t < steps; ++t) {
      std::vector<double> shares(steps);
      double sum = 0;
      for (size_t s = 0; s < steps; ++s) {
        double score = 0;
        for (size_t i = 0; i < head; ++i) score += qkv[t][h + i] * qkv[s][width + h + i];
        shares[s] = allowed(t, s) ? std::exp(score / std::sqrt(static_cast<double>(head))) : 0;
        sum += shares[s];
      }
      for (size_t s = 0; s < steps; ++s) {
        for (size_t i = 0; i < head; ++i) joined[t * width + h + i] += shares[s] / sum * qkv[s][2 * width + h + i];
      }
    }
  }
  return project(joined, layer.out_proj.weight, layer.out_proj.bias);
}

void expect_rows(const td::Tensor& y, const Matrix& expected) {
  const auto values = y.to_vector<double>();
  size_t i = 0;
  for (const auto& row : expected) {
    for (const double value : row) EXPECT_NEAR(values[i++], value, 1e-5);
  }
  EXPECT_EQ(i, values.size());
}

TEST(MultiheadAttention, OutputMatchesReferenceFormula) {
  td::manual_seed(2);
  nn::MultiheadAttention layer(12, 3);
  nn::init::normal_(layer.in_proj_bias);
  const td::Tensor x = td::randn({2, 7, 12});
  const td::Tensor y = layer(x);
  EXPECT_EQ(y.shape(), td::Shape({2, 7, 12}));
  for (int64_t n = 0; n < 2; ++n)
    expect_rows(y[n].contiguous(), reference(layer, x[n].contiguous(), 3, [](size_t, size_t) { return true; }));
}

TEST(MultiheadAttention, CausalOptionMasksLaterPositions) {
  td::manual_seed(3);
  nn::MultiheadAttention layer(8, 2, {.bias = false, .is_causal = true});
  EXPECT_FALSE(layer.in_proj_bias.defined());
  EXPECT_FALSE(layer.out_proj.bias.defined());
  const td::Tensor x = td::randn({5, 8});
  expect_rows(layer(x), reference(layer, x, 2, [](size_t t, size_t s) { return s <= t; }));
}

TEST(MultiheadAttention, AttentionMaskIsApplied) {
  td::manual_seed(4);
  nn::Module root;
  auto& layer = root.add<nn::MultiheadAttention>("attn", 8, 4);
  const td::Tensor x = td::randn({3, 8});
  const td::Tensor mask = td::from_vector<bool>({true, false, true, false, true, true, true, true, false}, {3, 3});
  const auto allowed = mask.to_vector<int64_t>();
  expect_rows(layer(x, mask), reference(layer, x, 4, [&](size_t t, size_t s) { return allowed[3 * t + s] != 0; }));
  const std::string text = error_text<td::Error>([&] { layer(x, td::ones({2, 2})); });
  EXPECT_TRUE(text.ends_with("\n  in MultiheadAttention 'attn'")) << text;
}

TEST(MultiheadAttention, KeysAndInitialValuesMatchPyTorch) {
  td::manual_seed(5);
  const nn::MultiheadAttention layer(64, 4);
  std::vector<std::string> keys;
  for (const auto& [path, tensor] : layer.state_dict().tensors()) keys.push_back(path);
  EXPECT_EQ(keys, (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  EXPECT_EQ(layer.in_proj_weight.shape(), td::Shape({192, 64}));
  const auto values = layer.in_proj_weight.to_vector<double>();
  const double limit = std::sqrt(6.0 / (64 + 192));
  EXPECT_NEAR(*std::max_element(values.begin(), values.end()), limit, 0.01 * limit);
  EXPECT_NEAR(*std::min_element(values.begin(), values.end()), -limit, 0.01 * limit);
  EXPECT_EQ(layer.in_proj_bias.to_vector<float>(), std::vector<float>(192, 0));
  EXPECT_EQ(layer.out_proj.bias.to_vector<float>(), std::vector<float>(64, 0));
}

TEST(MultiheadAttention, HeadsMustDivideEmbedDim) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::MultiheadAttention(8, 3); }),
            "MultiheadAttention: embed_dim 8 is not a positive multiple of num_heads 3");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::MultiheadAttention(0, 1); }),
            "MultiheadAttention: embed_dim 0 is not a positive multiple of num_heads 1");
}

}  // namespace

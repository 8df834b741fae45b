#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

/// The layer's output for query, key and value composed of operations; `added` is added to the scores.
td::Tensor composed(nn::MultiheadAttention& layer, int64_t num_heads, const td::Tensor& query, const td::Tensor& key,
                    const td::Tensor& value, const td::Tensor& added) {
  const int64_t width = layer.out_proj.weight.size(0);
  const auto heads = [&](const td::Tensor& x, int64_t part, const td::Tensor& weight) {
    td::Tensor y = td::matmul(x, weight.t());
    if (layer.in_proj_bias.defined()) y = y + layer.in_proj_bias.slice(0, part * width, (part + 1) * width);
    return y.unflatten(-1, {num_heads, -1}).transpose(-3, -2);
  };
  const td::Tensor q = heads(query, 0, layer.q_proj_weight), k = heads(key, 1, layer.k_proj_weight);
  const td::Tensor scores = td::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1))) + added;
  const td::Tensor joined = td::matmul(td::softmax(scores, -1), heads(value, 2, layer.v_proj_weight));
  return layer.out_proj(joined.transpose(-3, -2).flatten(-2));
}

void expect_close(const td::Tensor& actual, const td::Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_TRUE(td::allclose(actual, expected, 1e-5, 1e-5)) << actual << expected;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(MultiheadAttention, SeparateInputsMatchSelfAttention) {
  td::manual_seed(7);
  nn::MultiheadAttention layer(6, 3, {.is_causal = true});
  const td::Tensor x = td::randn({2, 5, 6});
  const td::Tensor expected = layer(x);
  expect_close(layer(x, x, x, {.need_weights = false}).first, expected);
  expect_close(layer(x, x.clone(), x.clone(), {.need_weights = false}).first, expected);
  expect_close(layer(x, x, x).first, expected);
  nn::MultiheadAttention plain(6, 3);
  plain.load_state_dict(layer.state_dict());
  expect_close(plain(x, td::ones({5, 5}).triu(1).to(td::kBool)), expected);
}

TEST(MultiheadAttention, MasksOfBothKindsCombine) {
  td::manual_seed(8);
  nn::MultiheadAttention layer(4, 2, {.kdim = 3});
  const td::Tensor query = td::randn({2, 3, 4}), key = td::randn({2, 5, 3}), value = td::randn({2, 5, 4});
  const td::Tensor padding = td::from_vector<bool>({0, 0, 0, 1, 1, 0, 0, 1, 0, 0}, {2, 5});
  const td::Tensor later = td::ones({3, 5}).triu(1).to(td::kBool), bias = td::randn({4, 3, 5});
  const auto added = [](const td::Tensor& mask) { return td::where(mask, -kInfinity, td::zeros({})); };
  const td::Tensor of_padding = added(padding).view({2, 1, 1, 5});
  const auto output = [&](const nn::MultiheadAttentionCall& call) {
    nn::MultiheadAttentionCall without_weights = call;
    without_weights.need_weights = false;
    const td::Tensor result = layer(query, key, value, without_weights).first;
    expect_close(layer(query, key, value, call).first, result);
    return result;
  };
  const auto expected = [&](const td::Tensor& mask) { return composed(layer, 2, query, key, value, mask); };
  expect_close(output({.key_padding_mask = padding}), expected(of_padding));
  expect_close(output({.attn_mask = later}), expected(added(later)));
  expect_close(output({.is_causal = true}), expected(added(later)));
  expect_close(output({.key_padding_mask = padding, .attn_mask = later}), expected(of_padding + added(later)));
  expect_close(output({.key_padding_mask = padding, .attn_mask = bias}),
               expected(of_padding + bias.view({2, 2, 3, 5})));
  expect_close(output({.attn_mask = bias.view({2, 2, 3, 5}), .is_causal = true}),
               expected(bias.view({2, 2, 3, 5}) + added(later)));
}

TEST(MultiheadAttention, WeightsOfHeadsAverageToWeights) {
  td::manual_seed(9);
  nn::MultiheadAttention layer(4, 2);
  const td::Tensor x = td::randn({3, 4});
  const td::Tensor each = layer(x, x, x, {.average_attn_weights = false}).second;
  EXPECT_EQ(each.shape(), td::Shape({2, 3, 3}));
  expect_close(layer(x, x, x).second, each.mean({0}));
  EXPECT_FALSE(layer(x, x, x, {.need_weights = false}).second.defined());
}

TEST(MultiheadAttention, DropoutDropsWeightsInTrainingOnly) {
  td::manual_seed(10);
  nn::MultiheadAttention layer(4, 2, {.dropout = 0.5});
  const td::Tensor x = td::randn({20, 4});
  const td::Tensor weights = layer(x, x, x, {.average_attn_weights = false}).second;
  EXPECT_NEAR(static_cast<double>(weights.count_nonzero().item<int64_t>()), 400, 80);
  EXPECT_FALSE(td::equal(layer(x), layer(x)));
  layer.eval();
  EXPECT_TRUE(td::equal(layer(x), layer(x)));
  EXPECT_EQ(layer(x, x, x).second.count_nonzero().item<int64_t>(), 400);
}

TEST(MultiheadAttention, DecodingWithCacheMatchesFullForward) {
  td::manual_seed(11);
  nn::MultiheadAttention layer(8, 2, {.is_causal = true});
  const td::Tensor x = td::randn({2, 9, 8});
  const td::NoGradGuard no_grad;
  const td::Tensor expected = layer(x);
  nn::KeyValueCache cache(10);
  for (int round = 0; round < 2; ++round) {
    std::vector<td::Tensor> parts;
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 5}, {5, 9}}) {
      const td::Tensor part = x.slice(1, begin, end);
      parts.push_back(layer(part, part, part, {.need_weights = round == 1, .cache = &cache}).first);
    }
    expect_close(td::cat(parts, 1), expected);
    EXPECT_EQ(cache.length(), 9);
    cache.clear();
  }
}

TEST(KeyValueCache, ReturnsViewsOfOneMemory) {
  nn::KeyValueCache cache(3);
  const auto [first, unused] = cache.append(td::ones({2, 1, 4}), td::zeros({2, 1, 3}));
  const auto [keys, values] = cache.append(td::full({2, 2, 4}, 2.0), td::zeros({2, 2, 3}));
  EXPECT_EQ(keys.shape(), td::Shape({2, 3, 4}));
  EXPECT_EQ(values.shape(), td::Shape({2, 3, 3}));
  EXPECT_EQ(keys.data_ptr(), first.data_ptr());
  EXPECT_EQ(keys.select(-1, 0).to_vector<float>(), (std::vector<float>{1, 2, 2, 1, 2, 2}));
  EXPECT_ERROR(td::ShapeError, cache.append(td::ones({2, 1, 4}), td::ones({2, 1, 3})),
               "KeyValueCache: key is float32 [2, 1, 4] on cpu and value float32 [2, 1, 3] on cpu, expected [..., T, "
               "d] with 3 + T <= max_length 3");
  cache.clear();
  cache.append(td::ones({1, 4}), td::ones({1, 4}));  // another batch
  EXPECT_ERROR(td::ShapeError, cache.append(td::ones({1, 5}), td::ones({1, 4})),
               "KeyValueCache: key is float32 [1, 5] on cpu and value float32 [1, 4] on cpu, expected slices of "
               "float32 [3, 4] on cpu and float32 [3, 4] on cpu");
  const td::Tensor leaf = td::ones({1, 4}).requires_grad_();
  EXPECT_ERROR(td::StateError, cache.append(leaf, td::ones({1, 4})),
               "KeyValueCache: key or value requires grad; decode under a NoGradGuard");
  EXPECT_ERROR(td::ValueError, nn::KeyValueCache(0), "KeyValueCache: max_length is 0, expected at least 1");
}

TEST(MultiheadAttention, InitialValuesMatchPyTorch) {
  td::manual_seed(5);
  const nn::MultiheadAttention layer(64, 4);
  const auto values = layer.in_proj_weight.to_vector<double>();
  const double limit = std::sqrt(6.0 / (64 + 192));
  EXPECT_NEAR(*std::max_element(values.begin(), values.end()), limit, 0.01 * limit);
  EXPECT_NEAR(*std::min_element(values.begin(), values.end()), -limit, 0.01 * limit);
  EXPECT_EQ(layer.in_proj_bias.to_vector<float>(), std::vector<float>(192, 0));
  EXPECT_EQ(layer.out_proj.bias.to_vector<float>(), std::vector<float>(64, 0));
}

TEST(MultiheadAttention, HeadsMustDivideEmbedDim) {
  EXPECT_ERROR(td::ValueError, nn::MultiheadAttention(8, 3),
               "MultiheadAttention: embed_dim 8 is not a positive multiple of num_heads 3");
  EXPECT_ERROR(td::ValueError, nn::MultiheadAttention(0, 1),
               "MultiheadAttention: embed_dim 0 is not a positive multiple of num_heads 1");
}

TEST(MultiheadAttention, InvalidOptionsAndMasksAreErrors) {
  EXPECT_ERROR(td::ValueError, nn::MultiheadAttention(8, 2, {.kdim = 0}),
               "MultiheadAttention: kdim is 0 and vdim 8, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::MultiheadAttention(8, 2, {.dropout = 1.5}),
               "MultiheadAttention: dropout is 1.5, expected 0 <= dropout <= 1");
  nn::MultiheadAttention layer(4, 2);
  const td::Tensor x = td::ones({2, 3, 4});
  nn::Module root;
  const std::string text = error_text<td::Error>([&] { root.add<nn::MultiheadAttention>("attn", 8, 4)(x[0]); });
  EXPECT_TRUE(text.ends_with("\n  in MultiheadAttention 'attn'")) << text;
  EXPECT_ERROR(td::ShapeError, layer(x, td::ones({2, 3, 3})),
               "MultiheadAttention: attn_mask is float32 [2, 3, 3] on cpu, expected [T, S] or [N * num_heads, T, S] "
               "for query float32 [2, 3, 4] on cpu\n"
               "  in MultiheadAttention");
  EXPECT_ERROR(td::ShapeError, layer(td::ones({}), x),
               "MultiheadAttention: query is float32 [] on cpu, expected [..., T, 4]\n  in MultiheadAttention");
  EXPECT_ERROR(td::ShapeError, layer(x, x, x, {.key_padding_mask = td::zeros({3}, {td::kBool})}),
               "MultiheadAttention: key_padding_mask is bool [3] on cpu, expected the leading dimensions of query and "
               "S for query float32 [2, 3, 4] on cpu\n"
               "  in MultiheadAttention");
}

}  // namespace

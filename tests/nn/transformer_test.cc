#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

void expect_close(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  EXPECT_TRUE(td::allclose(actual, expected, 1e-5, 1e-5)) << actual << expected;
}

std::vector<std::string> keys_of(const nn::Module& module) {
  std::vector<std::string> keys;
  for (const auto& [path, tensor] : module.state_dict().tensors()) keys.push_back(path);
  return keys;
}

TEST(TransformerEncoderLayer, DropoutIsOffInEvaluationMode) {
  td::manual_seed(2);
  nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 8, .dropout = 0.5});
  const Tensor x = td::randn({3, 4});
  EXPECT_FALSE(td::equal(layer(x), layer(x)));
  layer.eval();
  EXPECT_TRUE(td::equal(layer(x), layer(x)));
}

TEST(TransformerLayers, CausalCallsMaskLaterPositions) {
  td::manual_seed(1);
  nn::TransformerEncoderLayer encoder(6, 2, {.dim_feedforward = 10, .dropout = 0});
  nn::TransformerDecoderLayer decoder(6, 2, {.dim_feedforward = 10, .dropout = 0});
  const Tensor x = td::randn({2, 4, 6}), memory = td::randn({2, 5, 6}), mask = td::ones({4, 4}).triu(1).to(td::kBool);
  expect_close(encoder(x, {.is_causal = true}), encoder(x, {.src_mask = mask}));
  expect_close(decoder(x, memory, {.tgt_is_causal = true}), decoder(x, memory, {.tgt_mask = mask}));
}

TEST(TransformerDecoderLayer, KeysMatchPyTorch) {
  EXPECT_EQ(
      keys_of(nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 8, .bias = false})),
      (std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.out_proj.weight",
                                "multihead_attn.in_proj_weight", "multihead_attn.out_proj.weight", "linear1.weight",
                                "linear2.weight", "norm1.weight", "norm2.weight", "norm3.weight"}));
}

TEST(TransformerEncoder, DecodingWithCachesMatchesFullForward) {
  td::manual_seed(6);
  nn::TransformerEncoder model(8, 2, 3, {.layer = {.dim_feedforward = 16, .norm_first = true}, .norm = true});
  model.eval();
  const Tensor x = td::randn({2, 7, 8});
  const td::NoGradGuard no_grad;
  std::vector<nn::KeyValueCache> caches(3, nn::KeyValueCache(7));
  std::vector<Tensor> steps = {model(x.slice(1, 0, 3), {.is_causal = true}, &caches)};
  for (int64_t t = 3; t < 7; ++t) steps.push_back(model(x.slice(1, t, t + 1), {.is_causal = true}, &caches));
  expect_close(td::cat(steps, 1), model(x, {.is_causal = true}));
  caches.pop_back();
  EXPECT_ERROR(td::ValueError, model(x, {}, &caches),
               "TransformerEncoder: 2 caches for 3 layers; pass one for each layer\n  in TransformerEncoder");
}

TEST(TransformerDecoder, DecodingWithCachesMatchesFullForward) {
  td::manual_seed(7);
  nn::TransformerDecoder model(8, 2, 2, {.layer = {.dim_feedforward = 16}, .norm = true});
  model.eval();
  const Tensor x = td::randn({2, 5, 8}), memory = td::randn({2, 4, 8});
  const td::NoGradGuard no_grad;
  std::vector<nn::KeyValueCache> caches(2, nn::KeyValueCache(5));
  std::vector<Tensor> steps;
  for (int64_t t = 0; t < 5; ++t) {
    steps.push_back(model(x.slice(1, t, t + 1), memory, {.tgt_is_causal = true}, &caches));
  }
  expect_close(td::cat(steps, 1), model(x, memory, {.tgt_is_causal = true}));
  EXPECT_EQ(keys_of(model).back(), "norm.bias");
}

TEST(TransformerEncoder, InvalidSizesAreErrors) {
  EXPECT_ERROR(td::ValueError, nn::TransformerEncoder(4, 2, 0),
               "TransformerEncoder: num_layers is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, nn::TransformerDecoder(4, 2, 0),
               "TransformerDecoder: num_layers is 0, expected at least 1");
}

TEST(TransformerLayers, ExtraReprShowsOptions) {
  EXPECT_EQ(nn::TransformerEncoderLayer(4, 2).extra_repr(), "feedforward 2048, dropout 0.1");
  EXPECT_EQ(nn::TransformerDecoderLayer(
                4, 2, {.dim_feedforward = 8, .dropout = 0, .activation = nn::Activation::kGelu, .norm_first = true})
                .extra_repr(),
            "feedforward 8, dropout 0, gelu, norm first");
}

}  // namespace

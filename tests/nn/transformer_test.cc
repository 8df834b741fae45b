#include <tandem/nn/transformer.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;
using td::testing::error_text;

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

/// [T, T], true above the diagonal.
Tensor later_positions(int64_t length) { return td::ones({length, length}).triu(1).to(td::kBool); }

TEST(TransformerEncoderLayer, KeysMatchPyTorch) {
  EXPECT_EQ(keys_of(nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 8})),
            (std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
                                      "self_attn.out_proj.bias", "linear1.weight", "linear1.bias", "linear2.weight",
                                      "linear2.bias", "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}));
  EXPECT_EQ(keys_of(nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 8, .bias = false})),
            (std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight",
                                      "linear2.weight", "norm1.weight", "norm2.weight"}));
}

TEST(TransformerEncoderLayer, BranchesAreNormalizedBeforeOrAfter) {
  for (const bool norm_first : {false, true}) {
    for (const auto activation : {nn::TransformerActivation::kRelu, nn::TransformerActivation::kGelu}) {
      td::manual_seed(1);
      nn::TransformerEncoderLayer layer(6, 2,
                                        {.dim_feedforward = 10, .activation = activation, .norm_first = norm_first});
      layer.eval();
      const Tensor x = td::randn({2, 4, 6}), mask = later_positions(4);
      const auto attend = [&](const Tensor& y) { return layer.self_attn(y, mask); };
      const auto feed = [&](const Tensor& y) {
        const Tensor wide = td::add(td::matmul(y, layer.linear1.weight.t()), layer.linear1.bias);
        return layer.linear2(activation == nn::TransformerActivation::kRelu ? td::relu(wide) : td::gelu(wide));
      };
      Tensor expected;
      if (norm_first) {
        const Tensor sum = x + attend(layer.norm1(x));
        expected = sum + feed(layer.norm2(sum));
      } else {
        const Tensor sum = layer.norm1(x + attend(x));
        expected = layer.norm2(sum + feed(sum));
      }
      expect_close(layer(x, {.src_mask = mask}), expected);
      expect_close(layer(x, {.is_causal = true}), expected);
    }
  }
}

TEST(TransformerEncoderLayer, DropoutIsOffInEvaluationMode) {
  td::manual_seed(2);
  nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 8, .dropout = 0.5});
  const Tensor x = td::randn({3, 4});
  EXPECT_FALSE(td::equal(layer(x), layer(x)));
  layer.eval();
  EXPECT_TRUE(td::equal(layer(x), layer(x)));
}

TEST(TransformerEncoderLayer, PaddedPositionsDoNotChangeOthers) {
  td::manual_seed(3);
  nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 8});
  layer.eval();
  const Tensor x = td::randn({2, 3, 4});
  const Tensor padded = td::cat({x, td::randn({2, 2, 4})}, 1);
  const Tensor padding = td::from_vector<bool>({0, 0, 0, 1, 1, 0, 0, 0, 1, 1}, {2, 5});
  expect_close(layer(padded, {.src_key_padding_mask = padding}).slice(1, 0, 3), layer(x));
}

TEST(TransformerDecoderLayer, KeysMatchPyTorch) {
  EXPECT_EQ(
      keys_of(nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 8, .bias = false})),
      (std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.out_proj.weight",
                                "multihead_attn.in_proj_weight", "multihead_attn.out_proj.weight", "linear1.weight",
                                "linear2.weight", "norm1.weight", "norm2.weight", "norm3.weight"}));
}

TEST(TransformerDecoderLayer, AttendsToItselfAndToMemory) {
  td::manual_seed(4);
  const Tensor x = td::randn({2, 4, 6}), memory = td::randn({2, 5, 6});
  const Tensor padding = td::from_vector<bool>({0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, {2, 5});
  for (const bool norm_first : {false, true}) {
    nn::TransformerDecoderLayer layer(6, 2, {.dim_feedforward = 10, .norm_first = norm_first});
    layer.eval();
    const auto attend = [&](const Tensor& y) { return layer.self_attn(y, later_positions(4)); };
    const auto recall = [&](const Tensor& y) {
      const Tensor kept = memory.slice(1, 0, 4);
      return layer.multihead_attn(y, kept, kept).first;
    };
    const auto feed = [&](const Tensor& y) { return layer.linear2(layer.linear1(y)); };
    Tensor expected;
    if (norm_first) {
      expected = x + attend(layer.norm1(x));
      expected = expected + recall(layer.norm2(expected));
      expected = expected + feed(layer.norm3(expected));
    } else {
      expected = layer.norm1(x + attend(x));
      expected = layer.norm2(expected + recall(expected));
      expected = layer.norm3(expected + feed(expected));
    }
    expect_close(layer(x, memory, {.memory_key_padding_mask = padding, .tgt_is_causal = true}), expected);
    expect_close(layer(x, memory, {.tgt_mask = later_positions(4), .memory_key_padding_mask = padding}), expected);
  }
}

TEST(TransformerEncoder, LayersRunInOrderBeforeNorm) {
  td::manual_seed(5);
  nn::TransformerEncoder encoder(4, 2, 2, {.layer = {.dim_feedforward = 8}, .norm = true});
  encoder.eval();
  const Tensor x = td::randn({2, 3, 4});
  expect_close(encoder(x, {.is_causal = true}),
               (*encoder.norm)(encoder.layers[1](encoder.layers[0](x, {.is_causal = true}), {.is_causal = true})));
  const std::vector<std::string> keys = keys_of(encoder);
  EXPECT_EQ(keys.size(), 26u);
  EXPECT_EQ(keys[0], "layers.0.self_attn.in_proj_weight");
  EXPECT_EQ(keys[12], "layers.1.self_attn.in_proj_weight");
  EXPECT_EQ(keys.back(), "norm.bias");
  EXPECT_FALSE(td::equal(encoder.layers[0].linear1.weight, encoder.layers[1].linear1.weight));
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
  EXPECT_EQ(error_text<td::ValueError>([&] { model(x, {}, &caches); }),
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

TEST(TransformerDecoder, AllParametersGetGradients) {
  td::manual_seed(8);
  nn::TransformerDecoder model(4, 2, 2, {.layer = {.dim_feedforward = 8}});
  model(td::randn({2, 3, 4}), td::randn({2, 5, 4}), {.tgt_is_causal = true}).square().sum().backward();
  for (const auto& [name, parameter] : model.named_parameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_TRUE(td::isfinite(parameter.grad()).all().item<bool>()) << name;
  }
}

TEST(TransformerEncoder, InvalidSizesAreErrors) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::TransformerEncoder(4, 2, 0); }),
            "TransformerEncoder: num_layers is 0, expected at least 1");
  EXPECT_EQ(error_text<td::ValueError>([] { nn::TransformerDecoder(4, 2, 0); }),
            "TransformerDecoder: num_layers is 0, expected at least 1");
}

TEST(TransformerLayers, ExtraReprShowsOptions) {
  EXPECT_EQ(nn::TransformerEncoderLayer(4, 2).extra_repr(), "feedforward 2048, dropout 0.1");
  EXPECT_EQ(
      nn::TransformerDecoderLayer(
          4, 2,
          {.dim_feedforward = 8, .dropout = 0, .activation = nn::TransformerActivation::kGelu, .norm_first = true})
          .extra_repr(),
      "feedforward 8, dropout 0, gelu, norm first");
}

}  // namespace

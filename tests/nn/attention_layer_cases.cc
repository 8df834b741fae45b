#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing {

void add_attention_layers(LayerCases cases) {
  using nn::MultiheadAttention, nn::TransformerLayerOptions;
  using Tensors = std::vector<Tensor>;
  const auto attention = [] { return MultiheadAttention(4, 2); };
  const auto both = [](const std::pair<Tensor, Tensor>& result) { return Tensors{result.first, result.second}; };
  cases.add(
      "self_attention", [=](MultiheadAttention& m, const Tensors& in) { return both(m(in[0], in[0], in[0])); },
      attention);
  cases.add(
      "attention_no_bias",
      [](MultiheadAttention& m, const Tensors& in) { return m(in[0], in[1], in[1], {.need_weights = false}).first; },
      [] { return MultiheadAttention(4, 2, {.bias = false}); });
  cases.add(
      "attention_sizes",
      [=](MultiheadAttention& m, const Tensors& in) {
        return both(m(in[0], in[1], in[2], {.average_attn_weights = false}));
      },
      [] { return MultiheadAttention(4, 2, {.kdim = 3, .vdim = 6}); });
  const auto masked = [=](MultiheadAttention& m, const Tensors& in) {
    return both(m(in[0], in[0], in[0], {.attn_mask = in[1]}));
  };
  const auto padded = [=](MultiheadAttention& m, const Tensors& in) {
    return both(m(in[0], in[1], in[1], {.key_padding_mask = in[2]}));
  };
  cases.add("attention_mask", masked, attention);
  cases.add("attention_padding", padded, attention);

  const TransformerLayerOptions plain{.dim_feedforward = 6, .dropout = 0};
  const TransformerLayerOptions norm_first{
      .dim_feedforward = 6, .dropout = 0, .activation = nn::Activation::kGelu, .norm_first = true};
  const auto decode = [](auto& decoder, const Tensors& in) { return decoder(in[0], in[1]); };
  cases.add("encoder_layer", [=] { return nn::TransformerEncoderLayer(4, 2, plain); });
  cases.add("encoder_layer_norm_first", [=] { return nn::TransformerEncoderLayer(4, 2, norm_first); });
  cases.add(
      "encoder_layer_masks",
      [](nn::TransformerEncoderLayer& m, const Tensors& in) {
        return m(in[0], {.src_mask = in[1], .src_key_padding_mask = in[2]});
      },
      [] {
        return nn::TransformerEncoderLayer(4, 2,
                                           {.dim_feedforward = 6, .dropout = 0, .layer_norm_eps = 0.1, .bias = false});
      });
  cases.add("decoder_layer", decode, [=] { return nn::TransformerDecoderLayer(4, 2, plain); });
  cases.add(
      "decoder_layer_norm_first",
      [](nn::TransformerDecoderLayer& m, const Tensors& in) {
        return m(in[0], in[1], {.tgt_mask = in[2], .memory_key_padding_mask = in[3]});
      },
      [=] { return nn::TransformerDecoderLayer(4, 2, norm_first); });
  cases.add("encoder", [=] { return nn::TransformerEncoder(4, 2, 2, {.layer = plain, .norm = true}); });
  cases.add("decoder", decode, [=] { return nn::TransformerDecoder(4, 2, 2, {.layer = plain}); });
}

}  // namespace tandem::testing

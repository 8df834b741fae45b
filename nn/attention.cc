#include <tandem/nn/attention.h>

#include <tandem/nn/init.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/matmul.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

Shape in_proj_shape(int64_t embed_dim, int64_t num_heads) {
  TANDEM_CHECK(ValueError, embed_dim >= 1 && num_heads >= 1 && embed_dim % num_heads == 0,
               "MultiheadAttention: embed_dim ", embed_dim, " is not a positive multiple of num_heads ", num_heads);
  return {3 * embed_dim, embed_dim};
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionOptions options)
    : in_proj_weight(add_parameter("in_proj_weight", empty(in_proj_shape(embed_dim, num_heads)))),
      in_proj_bias(add_parameter("in_proj_bias", options.bias ? zeros({3 * embed_dim}) : Tensor())),
      out_proj(add<Linear>("out_proj", embed_dim, embed_dim, LinearOptions{.bias = options.bias})),
      num_heads_(num_heads),
      is_causal_(options.is_causal) {
  init::xavier_uniform_(in_proj_weight);
  if (options.bias) init::zeros_(out_proj.bias);
}

Tensor MultiheadAttention::operator()(const Tensor& input, const Tensor& attn_mask) {
  return call(input, [&](const Tensor& x) { return attend(x, attn_mask); });
}

Tensor MultiheadAttention::attend(const Tensor& input, const Tensor& attn_mask) {
  const Tensor qkv = linear(input, in_proj_weight, in_proj_bias);
  return out_proj(qkv_attention(qkv, num_heads_, {.attn_mask = attn_mask, .is_causal = is_causal_}));
}

std::string MultiheadAttention::extra_repr() const {
  return str(in_proj_weight.size(1), ", heads ", num_heads_, in_proj_bias.defined() ? "" : ", no bias",
             is_causal_ ? ", causal" : "");
}

}}}  // namespace tandem::v0::nn

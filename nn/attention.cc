#include <tandem/nn/attention.h>

#include <limits>
#include <tuple>

#include <tandem/autograd/node.h>
#include <tandem/base/math.h>
#include <tandem/nn/init.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

/// Checks all arguments; returns whether queries, keys and values have the same size, and so one weight.
bool has_one_weight(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options) {
  TANDEM_CHECK(ValueError, embed_dim >= 1 && num_heads >= 1 && embed_dim % num_heads == 0,
               "MultiheadAttention: embed_dim ", embed_dim, " is not a positive multiple of num_heads ", num_heads);
  const int64_t kdim = options.kdim.value_or(embed_dim), vdim = options.vdim.value_or(embed_dim);
  TANDEM_CHECK(ValueError, kdim >= 1 && vdim >= 1, "MultiheadAttention: kdim is ", kdim, " and vdim ", vdim,
               ", expected at least 1 each");
  TANDEM_CHECK(ValueError, options.dropout >= 0 && options.dropout <= 1, "MultiheadAttention: dropout is ",
               options.dropout, ", expected 0 <= dropout <= 1");
  return kdim == embed_dim && vdim == embed_dim;
}

Tensor weight_or_none(bool exists, int64_t rows, int64_t columns) { return exists ? empty({rows, columns}) : Tensor(); }

/// [..., T, H * d] as [..., H, T, d].
Tensor split_heads(const Tensor& tensor, int64_t num_heads) {
  return tensor.unflatten(-1, {num_heads, -1}).transpose(-3, -2);
}

/// The mask of scaled_dot_product_attention, where true means allowed, for the masks of a call; undefined without any.
Tensor operation_mask(const MultiheadAttentionCall& call, const Tensor& query, int64_t num_heads) {
  Tensor mask;
  const auto as_scores = [](const Tensor& allowed) {
    if (allowed.dtype() != kBool) return allowed;
    return where(allowed, zeros({}, {kFloat32, allowed.device()}), -std::numeric_limits<double>::infinity());
  };
  const auto combine = [&](const Tensor& own) {
    const Tensor allowed = own.dtype() == kBool ? logical_not(own) : own;
    if (!mask.defined()) {
      mask = allowed;
    } else if (mask.dtype() == kBool && allowed.dtype() == kBool) {
      mask = logical_and(mask, allowed);
    } else {
      mask = add(as_scores(mask), as_scores(allowed));
    }
  };
  if (const Tensor& own = call.attn_mask; own.defined() && own.dim() == 3) {
    Shape shape = query.shape();
    shape.back() = own.size(-1);
    shape.insert(shape.size() - 2, num_heads);
    shape[shape.size() - 2] = own.size(-2);
    TANDEM_CHECK(ShapeError, num_elements(shape) == own.numel(), "MultiheadAttention: attn_mask is ", describe(own),
                 ", expected [T, S] or [N * num_heads, T, S] for query ", describe(query));
    combine(own.reshape(shape));
  } else if (own.defined()) {
    combine(own);
  }
  if (const Tensor& own = call.key_padding_mask; own.defined()) {
    TANDEM_CHECK(ShapeError, own.dim() == query.dim() - 1, "MultiheadAttention: key_padding_mask is ", describe(own),
                 ", expected the leading dimensions of query and S for query ", describe(query));
    combine(own.unsqueeze(-2).unsqueeze(-2));
  }
  return mask;
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t max_length) : max_length_(max_length) {
  TANDEM_CHECK(ValueError, max_length >= 1, "KeyValueCache: max_length is ", max_length, ", expected at least 1");
}

std::pair<Tensor, Tensor> KeyValueCache::append(const Tensor& key, const Tensor& value) {
  TANDEM_CHECK(StateError, !autograd::should_record(key, value),
               "KeyValueCache: key or value requires grad; decode under a NoGradGuard");
  TANDEM_CHECK(
      ShapeError,
      key.dim() >= 2 && value.dim() >= 2 && key.size(-2) == value.size(-2) && length_ + key.size(-2) <= max_length_,
      "KeyValueCache: key is ", describe(key), " and value ", describe(value), ", expected [..., T, d] with ", length_,
      " + T <= max_length ", max_length_);
  const auto storage_shape = [&](const Tensor& tensor) {
    Shape shape = tensor.shape();
    shape[shape.size() - 2] = max_length_;
    return shape;
  };
  const auto fits = [&](const Tensor& storage, const Tensor& tensor) {
    return storage.defined() && storage.shape() == storage_shape(tensor) && storage.dtype() == tensor.dtype() &&
           storage.device() == tensor.device();
  };
  if (length_ == 0 && !(fits(keys_, key) && fits(values_, value))) {
    keys_ = empty(storage_shape(key), key.options());
    values_ = empty(storage_shape(value), value.options());
  }
  TANDEM_CHECK(ShapeError, fits(keys_, key) && fits(values_, value), "KeyValueCache: key is ", describe(key),
               " and value ", describe(value), ", expected slices of ", describe(keys_), " and ", describe(values_));
  const int64_t end = length_ + key.size(-2);
  keys_.slice(-2, length_, end).copy_(key);
  values_.slice(-2, length_, end).copy_(value);
  length_ = end;
  return {keys_.slice(-2, 0, end), values_.slice(-2, 0, end)};
}

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionOptions options)
    : in_proj_weight(add_parameter("in_proj_weight", weight_or_none(has_one_weight(embed_dim, num_heads, options),
                                                                    saturating_mul(3, embed_dim), embed_dim))),
      q_proj_weight(add_parameter("q_proj_weight", weight_or_none(!in_proj_weight.defined(), embed_dim, embed_dim))),
      k_proj_weight(add_parameter(
          "k_proj_weight", weight_or_none(!in_proj_weight.defined(), embed_dim, options.kdim.value_or(embed_dim)))),
      v_proj_weight(add_parameter(
          "v_proj_weight", weight_or_none(!in_proj_weight.defined(), embed_dim, options.vdim.value_or(embed_dim)))),
      in_proj_bias(add_parameter("in_proj_bias", options.bias ? zeros({saturating_mul(3, embed_dim)}) : Tensor())),
      out_proj(add<Linear>("out_proj", embed_dim, embed_dim, LinearOptions{.bias = options.bias})),
      embed_dim_(embed_dim),
      num_heads_(num_heads),
      options_(options) {
  for (const Tensor& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight}) {
    if (weight.defined()) init::xavier_uniform_(weight);
  }
  if (options.bias) init::zeros_(out_proj.bias);
}

Tensor MultiheadAttention::operator()(const Tensor& input, const Tensor& attn_mask) {
  return call(input,
              [&](const Tensor& x) { return self_attention(x, {.need_weights = false, .attn_mask = attn_mask}); });
}

std::pair<Tensor, Tensor> MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                                         const MultiheadAttentionCall& options) {
  Tensor weights;
  const Tensor output = call(query, [&](const Tensor& q) { return attend(q, key, value, options, &weights); });
  return {output, weights};
}

Tensor MultiheadAttention::self_attention(const Tensor& input, const MultiheadAttentionCall& options) {
  return attend(input, input, input, options, nullptr);
}

Tensor MultiheadAttention::project(const Tensor& input, int part, const Tensor& weight) const {
  const auto own = [&](const Tensor& all) { return all.slice(0, part * embed_dim_, (part + 1) * embed_dim_); };
  return split_heads(linear(input, in_proj_weight.defined() ? own(in_proj_weight) : weight,
                            in_proj_bias.defined() ? own(in_proj_bias) : Tensor()),
                     num_heads_);
}

Tensor MultiheadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const MultiheadAttentionCall& options, Tensor* weights) {
  TANDEM_CHECK(ShapeError, query.dim() >= 2, "MultiheadAttention: query is ", describe(query), ", expected [..., T, ",
               embed_dim_, "]");
  AttentionOptions attention = {.attn_mask = operation_mask(options, query, num_heads_),
                                .dropout_p = is_training() ? options_.dropout : 0,
                                .is_causal = options_.is_causal || options.is_causal};
  const bool is_self = query.is_same(key) && query.is_same(value) && in_proj_weight.defined();
  if (is_self && !options.need_weights && options.cache == nullptr) {
    return out_proj(qkv_attention(linear(query, in_proj_weight, in_proj_bias), num_heads_, attention));
  }
  const Tensor q = project(query, 0, q_proj_weight);
  Tensor k = project(key, 1, k_proj_weight), v = project(value, 2, v_proj_weight);
  if (options.cache != nullptr) {
    attention.query_offset = options.cache->length();
    std::tie(k, v) = options.cache->append(k, v);
  }
  const auto joined = [&](const Tensor& heads) { return out_proj(heads.transpose(-3, -2).flatten(-2)); };
  if (!options.need_weights) return joined(scaled_dot_product_attention(q, k, v, attention));
  // The weights are the result for the values of an identity matrix.
  const Tensor all = scaled_dot_product_attention(q, k, eye(k.size(-2), k.options()), attention);
  *weights = options.average_attn_weights ? all.mean({-3}) : all;
  return joined(matmul(all, v));
}

std::string MultiheadAttention::extra_repr() const {
  std::string text = str(embed_dim_, ", heads ", num_heads_);
  if (options_.kdim) text += str(", kdim ", *options_.kdim);
  if (options_.vdim) text += str(", vdim ", *options_.vdim);
  if (options_.dropout > 0) text += str(", dropout ", options_.dropout);
  return text + (options_.bias ? "" : ", no bias") + (options_.is_causal ? ", causal" : "");
}

}}}  // namespace tandem::v0::nn

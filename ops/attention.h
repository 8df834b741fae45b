// Scaled dot-product attention that never stores the matrix of scores.
//
// Tri Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022), and
// "FlashAttention-2" (2023): scores are made block by block, a running maximum and sum per row make the softmax exact, and
// backward makes each block again from the row's maximum and the logarithm of its sum.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// What a query attends to, and how scores are scaled.
struct AttentionOptions {
  /// [optional] bool, true where a query attends to a key, or floating, added to the scaled scores; broadcasts to the
  /// shape of the scores.
  Tensor attn_mask = {};
  /// Query t attends to keys s <= t only (counted from the first ones where T and S differ).  With a mask, both hold.
  bool is_causal = false;
  /// What products are multiplied with; 1 / sqrt(d) unless given.
  std::optional<double> scale = {};
};

/// out = softmax(scale * query @ key^T + mask) @ value.
///
/// query [..., T, d], key [..., S, d], value [..., S, e], equal leading dimensions -> [..., T, e].  Floating, equal dtypes;
/// one device; any strides: slices of one projection and transposed heads are read where they lie as long as the last
/// dimension is dense.  The result lies in memory in the order of query's dimensions, so that undoing a transposition of
/// heads costs nothing; the gradients of query, key and value do the same.  A query that attends to nothing gets zeros.
/// Half types are computed in float32 and rounded once.
///
/// Backward saves query, key, value, the result and two numbers per row, and computes the scores again; the largest scratch
/// memory is a block of 64 x 256 scores per piece of work, on a GPU one number per row.  Only a mask that needs a gradient, and backward under
/// create_graph, are composed of matmul and softmax, which store T x S matrices.  Throws DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                              const AttentionOptions& options = {});

/// The attention of `num_heads` heads whose queries, keys and values come from one projection.
///
/// qkv [..., T, 3 * num_heads * d], in each row all queries, then all keys, then all values, head by head -> [..., T,
/// num_heads * d].  The same as splitting qkv in three, each viewed as [..., T, num_heads, d] with heads transposed in front
/// of T, scaled_dot_product_attention, and the way back; masks broadcast to [..., num_heads, T, T].  One gradient is written
/// instead of three that are put together.  Throws what scaled_dot_product_attention throws, and ShapeError where the last
/// dimension is no multiple of 3 * num_heads.
TANDEM_OP Tensor qkv_attention(const Tensor& qkv, int64_t num_heads, const AttentionOptions& options = {});

}}  // namespace tandem::v0

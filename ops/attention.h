// Scaled dot-product attention that does not store the matrix of scores.
//
// Tri Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022), and
// "FlashAttention-2" (2023): scores are computed block by block; a running maximum and sum per row make the softmax
// exact; backward recomputes each block from the maximum and the log-sum-exp of its rows.
#pragma once

#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Options of scaled_dot_product_attention and qkv_attention.
struct AttentionOptions {
  /// [optional] bool (true: the query attends to the key) or floating (added to the scaled scores); broadcasts to the
  /// shape of the scores.
  Tensor attn_mask = {};
  /// Query t attends to keys s <= t only; both are counted from 0, also if T and S differ. Can be combined with a mask.
  bool is_causal = false;
  /// Factor of query @ key^T; by default 1 / sqrt(d).
  std::optional<double> scale = {};
};

/// out = softmax(scale * query @ key^T + mask) @ value.
///
/// query [..., T, d], key [..., S, d], value [..., S, e], equal leading dimensions -> [..., T, e]. Floating, equal
/// dtypes; one device; any strides. Inputs whose last dimension is dense (slices of one projection, transposed heads)
/// are read without a copy. The result and the gradients have the memory order of query's dimensions, so transposing
/// heads back is free. A query that attends to no key gives zeros. Half types are computed in float32 and rounded once.
///
/// Backward saves query, key, value, the result and two numbers per row, and recomputes the scores. Scratch memory: a
/// block of 64 x 256 scores per piece of parallel work on CPUs, one number per row on GPUs. Only the gradient of a
/// mask, and backward under create_graph, are composed of matmul and softmax, which store T x S matrices. Throws
/// DeviceError, DTypeError, ShapeError.
TANDEM_OP Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                              const AttentionOptions& options = {});

/// Attention of `num_heads` heads whose queries, keys and values come from one projection.
///
/// qkv [..., T, 3 * num_heads * d]: each row has all queries, then all keys, then all values, head by head -> [..., T,
/// num_heads * d]. Equivalent to splitting qkv in three, viewing each as [..., T, num_heads, d], moving the heads
/// before T, scaled_dot_product_attention, and the inverse steps; masks broadcast to [..., num_heads, T, T]. Backward
/// writes one gradient instead of concatenating three. Throws as scaled_dot_product_attention, and ShapeError if the
/// last dimension is not a multiple of 3 * num_heads.
TANDEM_OP Tensor qkv_attention(const Tensor& qkv, int64_t num_heads, const AttentionOptions& options = {});

}}  // namespace tandem::v0

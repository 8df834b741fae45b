// Scaled dot-product attention that does not store the matrix of scores, and rotary position embeddings.
//
// Tri Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness" (2022), and
// "FlashAttention-2" (2023): scores are computed block by block; a running maximum and sum per row make the softmax
// exact; backward recomputes each block from the maximum and the log-sum-exp of its rows.
#pragma once

#include <cstdint>
#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// The window of keys to which a query attends: from `left` positions before the query's position to `right` positions
/// after it; -1: no limit on that side. FlashAttention's window_size.
struct AttentionWindow {
  int64_t left = -1;   ///< number of earlier positions
  int64_t right = -1;  ///< number of later positions
};

/// Options of scaled_dot_product_attention and qkv_attention.
struct AttentionOptions {
  /// [optional] bool (true: the query attends to the key) or floating (added to the scaled scores); broadcasts to the
  /// shape of the scores.
  Tensor attn_mask = {};
  /// Probability with which each weight is set to 0; the others are divided by 1 - dropout_p. Also in evaluation mode,
  /// as in PyTorch: pass 0 there.
  double dropout_p = 0;
  /// Queries attend to keys up to their own position only, also if T and S differ. Can be combined with a mask.
  bool is_causal = false;
  /// Factor of query @ key^T; by default 1 / sqrt(d).
  std::optional<double> scale = {};
  /// Grouped-query attention: the number of query heads (dimension -3) is a multiple of the number of key and value
  /// heads, and each key and value head serves a group of consecutive query heads (Ainslie et al., "GQA", 2023).
  bool enable_gqa = false;
  /// Sliding window. Can be combined with all other options.
  AttentionWindow window = {};
  /// Position of the first query, for is_causal and window: query t has position t + query_offset, key s position s.
  /// Used for decoding with a key-value cache.
  int64_t query_offset = 0;
  /// Generator of dropout; null: default_generator(device).
  Generator* generator = nullptr;
};

/// out = dropout(softmax(scale * query @ key^T + mask)) @ value.
///
/// query [..., T, d], key [..., S, d], value [..., S, e] -> [..., T, e]. Leading dimensions broadcast. Floating, equal
/// dtypes; one device; any strides. Inputs whose last dimension is dense (slices of one projection, transposed heads)
/// are read without a copy; so are the keys and values of grouped heads. The result and the gradients have the memory
/// order of query's dimensions, so transposing heads back is free. A query that attends to no key gives zeros. Half
/// types are computed in float32 and rounded once.
///
/// Scores outside of the band of is_causal and window are not computed, except within blocks that the band touches. The
/// same weights are dropped as by `dropout` of weights [..., T, S]: number i of the generator's stream decides on
/// weight i in row-major order. So the dropped weights do not depend on blocks, threads or the device.
///
/// Backward saves query, key, value, the result, two numbers per row and the position of the stream, and recomputes the
/// scores. Scratch memory: a block of 64 x 256 scores per piece of parallel work on CPUs, two with dropout; one number
/// per row on GPUs. On GPUs cuDNN computes half types whose head sizes d and e are multiples of 8; then a mask, or a
/// band that is not an option of cuDNN, takes a float32 matrix [T, S] for each of its batches and heads, and dropout
/// one of query's dtype for each batch and head; if that is over 4 GiB, tandem's own kernels compute. Only the gradient
/// of a mask, and backward under create_graph, are composed of matmul and softmax, which store T x S matrices. Throws
/// DeviceError, DTypeError, ShapeError, and ValueError unless 0 <= dropout_p <= 1, query_offset >= 0 and the limits of
/// the window are at least -1.
TANDEM_OP Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                              const AttentionOptions& options = {});

/// Attention of `num_heads` heads whose queries, keys and values come from one projection.
///
/// qkv [..., T, 3 * num_heads * d]: each row has all queries, then all keys, then all values, head by head -> [..., T,
/// num_heads * d]. Equivalent to splitting qkv in three, viewing each as [..., T, num_heads, d], moving the heads
/// before T, scaled_dot_product_attention, and the inverse steps; masks broadcast to [..., num_heads, T, T]. Backward
/// writes one gradient instead of concatenating three. Throws the errors of scaled_dot_product_attention, ShapeError if
/// the last dimension is not a multiple of 3 * num_heads, and ValueError for enable_gqa.
TANDEM_OP Tensor qkv_attention(const Tensor& qkv, int64_t num_heads, const AttentionOptions& options = {});

/// The angles of rotary_embedding: cosines and sines, float32 [length, head_dim / 2].
struct RotaryTables {
  Tensor cos;  ///< cosines of the angles
  Tensor sin;  ///< sines of the angles
};
/// Options of rotary_tables.
struct RotaryTablesOptions {
  double base = 10000;  ///< of the frequencies
  int64_t offset = 0;   ///< position of the first row
  Device device = {};   ///< of the tables
};

/// The angle of position offset + t and pair i is (offset + t) / base^(2 i / head_dim); computed in float64. A model
/// creates the tables of all positions once and passes slices of them. Throws ValueError unless length >= 0, head_dim
/// is even and at least 2, and base is positive.
TANDEM_API RotaryTables rotary_tables(int64_t length, int64_t head_dim, const RotaryTablesOptions& options = {});

/// Rotary position embedding: the pair (a, b) number i of row t becomes (a cos - b sin, b cos + a sin) with the angle
/// of row t and column i of the tables. Pairs are the elements i and i + d / 2, as in LLaMA's rotate_half, or 2 i and 2
/// i + 1 if `interleaved`, as in the paper.
///
/// x [..., T, d] -> the same shape, in the memory order of x; cos and sin [T, d / 2], without gradient. x is floating
/// and keeps its dtype; the tables have any floating dtype. Computed in float32, or float64 for float64, and rounded
/// once. Backward saves the tables; the gradient is the rotation by the negative angles. Throws DeviceError,
/// DTypeError, ShapeError, and StateError if a table requires grad. J. Su et al., "RoFormer: Enhanced Transformer with
/// Rotary Position Embedding", 2021.
TANDEM_OP Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved = false);

}}  // namespace tandem::v0

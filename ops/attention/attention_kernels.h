// Kernels of attention. Private to ops/.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// `batches` independent attentions: scale * query @ key^T is [queries, keys] in each. Query t attends to the keys of a
/// band, t + band_begin <= s < t + band_end.
struct AttentionSizes {
  static constexpr int64_t kUnlimited = int64_t{1} << 60;

  int64_t batches;
  int64_t queries;
  int64_t keys;
  int64_t head_dim;   ///< of queries and keys
  int64_t value_dim;  ///< of values and results
  double scale;
  int64_t band_begin = -kUnlimited;  ///< -kUnlimited: no limit
  int64_t band_end = kUnlimited;     ///< kUnlimited: no limit
  int64_t group = 1;                 ///< consecutive batches that have the same keys and values

  /// The keys of query t, [keys_begin(t), keys_end(t)), which may be empty. Both grow with t.
  TANDEM_HOST_DEVICE int64_t keys_begin(int64_t t) const { return within(t + band_begin, keys); }
  TANDEM_HOST_DEVICE int64_t keys_end(int64_t t) const { return within(t + band_end, keys); }
  /// The queries of key s, [queries_begin(s), queries_end(s)).
  TANDEM_HOST_DEVICE int64_t queries_begin(int64_t s) const { return within(s - band_end + 1, queries); }
  TANDEM_HOST_DEVICE int64_t queries_end(int64_t s) const { return within(s - band_begin + 1, queries); }
  bool is_causal() const { return band_begin == -kUnlimited && band_end == 1; }
  bool is_full() const { return band_begin == -kUnlimited && band_end == kUnlimited; }

 private:
  TANDEM_HOST_DEVICE static int64_t within(int64_t index, int64_t size) {
    return index < 0 ? 0 : index < size ? index : size;
  }
};

/// Dropout of weights: weight i of [batches, queries, keys] in row-major order is multiplied by `scale` if word i of
/// the draw is at least `threshold`, else by 0.
struct AttentionDropout {
  PhiloxState state = {};
  uint64_t threshold = 0;  ///< p * 2^32; 0: no dropout
  double scale = 1;        ///< 1 / (1 - p)
};

/// A tensor [batch ..., rows, columns] with strides of all dimensions; the last stride is 1, except in a mask.
struct AttentionTensor {
  void* data = nullptr;  ///< null: there is no mask
  std::span<const int64_t> strides;
};

/// A mask [batch ..., queries, keys], added to the scores; bool: -infinity where false. On CPUs bool or the kernel's
/// dtype, on GPUs bool or any floating dtype.
struct AttentionMask {
  AttentionTensor tensor;
  DType dtype = kBool;
};

/// The GEMM micro-kernels of the CPU kernels.
enum class AttentionAlgorithm : int8_t {
  kPlain,   ///< C++: float64, and float32 as the reference
  kAvx2,    ///< float32
  kAvx512,  ///< float32
};

/// The algorithm of attention on CPUs; depends on dtype and instruction set only.
AttentionAlgorithm attention_algorithm(DType dtype);

/// The operands of an attention. The leading dimensions of all tensors are `batch_shape`; if sizes.group > 1, the last
/// one is the group, along which key, value and their gradients have stride 0.
struct AttentionCall {
  DType dtype;
  std::span<const int64_t> batch_shape;
  AttentionSizes sizes;
  AttentionTensor query, key, value;
  AttentionMask mask;
  AttentionTensor out;
  void* statistics;  ///< see attention_statistics()
  AttentionDropout dropout = {};
  AttentionAlgorithm algorithm = attention_algorithm(dtype);
};

/// The gradient of out, and the results of the backward pass.
struct AttentionGradients {
  AttentionTensor out, query, key, value;
};

/// Numbers per query that the forward pass writes to `statistics`, [attention_statistics(), batches, queries] (float32
/// for half types). Two: the largest score m of each row, and log(sum(exp(score - m))), -infinity for a row without
/// keys; their sum would lose the second one under a mask of -1e9. One, their sum: on GPUs for half types without a
/// mask.
int attention_statistics(const KernelContext& context, DType dtype, bool has_mask);

// CPUs: float32 and float64; GPUs: any floating dtype.
// clang-format off
TANDEM_KERNELS(
int64_t attention_workspace_bytes(const KernelContext& context, const AttentionCall& call);
int64_t attention_backward_workspace_bytes(const KernelContext& context, const AttentionCall& call,
                                           const AttentionGradients& grads);

/// out = dropout(softmax(scale * query @ key^T + mask)) @ value.
void attention(const KernelContext& context, const AttentionCall& call, void* workspace);

/// The gradients of query, key and value for the gradient grads.out of out.
void attention_backward(const KernelContext& context, const AttentionCall& call, const AttentionGradients& grads,
                        void* workspace);
)
// clang-format on

}}  // namespace tandem::v0

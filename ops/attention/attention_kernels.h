// Kernels of attention.  Private to ops/.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// `batches` independent attentions: scale * query @ key^T is [queries, keys] in each.
struct AttentionSizes {
  int64_t batches;
  int64_t queries;
  int64_t keys;
  int64_t head_dim;   ///< of queries and keys
  int64_t value_dim;  ///< of values and results
  double scale;
  bool is_causal;
};

/// The rows of each batch: row i of batch b begins at data[offsets[b] + i * row_stride]; elements of a row are dense.
struct AttentionRows {
  void* data = nullptr;
  const int64_t* offsets = nullptr;
  int64_t row_stride = 0;
};

/// What is added to the scores (`is_bool`: -infinity where false); null data: nothing.  Else of the kernel's dtype.
struct AttentionMask {
  const void* data = nullptr;
  const int64_t* offsets = nullptr;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
  bool is_bool = false;
};

/// Whose tiles compute the products.
enum class AttentionAlgorithm : int8_t {
  kPlain,   ///< C++: float64, and float32 as the reference
  kAvx2,    ///< float32
  kAvx512,  ///< float32
};

/// A rule of dtype and instruction set.
AttentionAlgorithm attention_algorithm(DType dtype);

namespace cpu {

int64_t attention_workspace_bytes(DType dtype, AttentionAlgorithm algorithm, const AttentionSizes& sizes);
int64_t attention_backward_workspace_bytes(DType dtype, AttentionAlgorithm algorithm, const AttentionSizes& sizes);

/// out = softmax(scale * query @ key^T + mask) @ value, and statistics [2, batches, queries]: each row's largest score,
/// and the logarithm of its sum of exponentials of the distances from that, -infinity for a row without keys.  Two numbers,
/// because their sum would lose the second one under a mask of -1e9.  float32 and float64.
void attention(const CpuContext& context, DType dtype, AttentionAlgorithm algorithm, const AttentionSizes& sizes,
               const AttentionRows& query, const AttentionRows& key, const AttentionRows& value,
               const AttentionMask& mask, void* workspace, const AttentionRows& out, void* statistics);

/// The gradients of query, key and value, from that of out.
void attention_backward(const CpuContext& context, DType dtype, AttentionAlgorithm algorithm,
                        const AttentionSizes& sizes, const AttentionRows& query, const AttentionRows& key,
                        const AttentionRows& value, const AttentionMask& mask, const AttentionRows& out,
                        const void* statistics, const AttentionRows& grad, void* workspace,
                        const AttentionRows& grad_query, const AttentionRows& grad_key,
                        const AttentionRows& grad_value);

}  // namespace cpu

#ifdef TANDEM_WITH_CUDA
namespace cuda {

/// A tensor [batch ..., rows, columns] with strides of all dimensions, the last one 1 (of a mask any).
struct AttentionTensor {
  void* data = nullptr;  ///< null: there is no mask
  std::span<const int64_t> strides;
};

/// A mask [batch ..., queries, keys] as `AttentionMask`, but of any floating dtype or bool.
struct AttentionMask {
  AttentionTensor tensor;
  DType dtype = kBool;
};

/// As cpu::attention for any floating dtype, the leading dimensions being `batch_shape`; statistics are float32 for half types.
void attention(const KernelContext& context, DType dtype, std::span<const int64_t> batch_shape,
               const AttentionSizes& sizes, const AttentionTensor& query, const AttentionTensor& key,
               const AttentionTensor& value, const AttentionMask& mask, const AttentionTensor& out, void* statistics);

int64_t attention_backward_workspace_bytes(DType dtype, const AttentionSizes& sizes);

/// As cpu::attention_backward.
void attention_backward(const KernelContext& context, DType dtype, std::span<const int64_t> batch_shape,
                        const AttentionSizes& sizes, const AttentionTensor& query, const AttentionTensor& key,
                        const AttentionTensor& value, const AttentionMask& mask, const AttentionTensor& out,
                        const void* statistics, const AttentionTensor& grad, void* workspace,
                        const AttentionTensor& grad_query, const AttentionTensor& grad_key,
                        const AttentionTensor& grad_value);

}  // namespace cuda
#endif

}}  // namespace tandem::v0

// The passes of attention, computed by kernels and composed of operations. Private to ops/attention.
#pragma once

#include <cstdint>

#include <tandem/ops/attention.h>
#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/ops/common/call.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The options as saved by a node; the members of AttentionSizes and AttentionDropout, and a holder of memory.
struct AttentionAttributes {
  double scale = 1;
  int64_t band_begin = -AttentionSizes::kUnlimited, band_end = AttentionSizes::kUnlimited;
  int64_t group = 1;
  AttentionDropout dropout;
  Tensor step_block;  ///< holds the memory of dropout.state.of_step
};

/// The operands and options of an attention. attn_mask may be undefined.
struct AttentionInputs {
  Tensor query, key, value, attn_mask;
  AttentionAttributes attributes;
};

/// Throws ValueError for invalid options. Draws the numbers of dropout.
AttentionAttributes attention_attributes(const char* op, const AttentionOptions& options, const Shape& scores,
                                         int64_t head_dim, int64_t group, Device device);

/// The shape [..., T, S] of the scores of queries [..., T, d] and keys [..., S, d].
Shape scores_shape(const Tensor& query, const Tensor& key);

/// Throws unless the mask is bool or floating and broadcasts to `scores`.
void check_attention_mask(const Call& call, const Tensor& mask, const Shape& scores);

/// An uninitialized dense tensor. All dimensions except the last have the memory order of `like`.
Tensor empty_in_order(const Tensor& like, const Shape& shape, DType dtype);

/// The tensor as kernels require it: of `dtype`, with a dense last dimension and rows that do not share memory; copied
/// if necessary.
Tensor dense_rows(const Tensor& tensor, DType dtype);

/// The dtype in which kernels compute for tensors of `dtype`.
inline DType compute_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// Writes the result; returns the kernel's statistics.
Tensor attention_forward(const AttentionInputs& in, const Tensor& out);

/// The gradients of query, key and value, written into grads[0 .. 2].
void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& statistics, const Tensor& grad,
                        const Tensor* grads);

/// Attention composed of operations, for a mask that requires grad.
Tensor composed_attention(const AttentionInputs& in, const Tensor& statistics);

/// The gradients of query, key and value, composed of operations.
TensorList composed_backward(const AttentionInputs& in, const Tensor& statistics, const Tensor& grad);

}}}  // namespace tandem::v0::ops

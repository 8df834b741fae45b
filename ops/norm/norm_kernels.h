// Kernels of normalizations. Private to ops/.
#pragma once

#include <cstdint>
#include <limits>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// A tensor [batch, channels, inner] in one of two memory orders: row-major, or channels innermost.
///
/// Group norm treats the channels of all samples as different channels: batch is 1, and with channels innermost the
/// memory is [samples, inner, channels / samples].
struct BatchNormShape {
  int64_t batch;
  int64_t channels;
  int64_t inner;
  bool channels_last;
  int64_t samples = 1;  ///< used if channels_last

  /// Channels at adjacent addresses, if channels_last.
  TANDEM_HOST_DEVICE int64_t adjacent() const { return channels / samples; }
  TANDEM_HOST_DEVICE int64_t per_channel() const { return batch * inner; }
};

/// Normalization parameters of each channel; arrays of [channels].
struct BatchNormChannels {
  const double* mean;
  const double* rstd;           ///< 1 / sqrt(var + eps)
  const void* weight;           ///< null: 1
  const void* bias;             ///< null: 0
  bool has_float32_parameters;  ///< weight and bias are float32; else of the input's dtype
  bool of_groups = false;       ///< statistics are those of groups of channels; used by batch_norm_backward
  /// relu replaces results above it by it, and their gradient is 0, also at the ceiling; infinity: no ceiling.
  double ceiling = std::numeric_limits<double>::infinity();
};

/// Numbers of each channel that follow from its mean and its sum of squared deviations (`squares`).
struct BatchNormUpdate {
  double count = 1;  ///< values per channel
  double eps = 0;
  double momentum = 0;
  double* rstd = nullptr;  ///< 1 / sqrt(squares / count + eps); null: not computed
  /// running = (1 - momentum) running + momentum * batch, where batch is the mean or squares / (count - 1); null: none.
  void* running_mean = nullptr;
  void* running_var = nullptr;
  DType mean_dtype = kFloat32;
  DType var_dtype = kFloat32;
};

/// Gradients of weight and bias; null: not computed. The flags select adding to the old contents.
struct BatchNormParameters {
  DType dtype = kFloat32;
  void* weight = nullptr;
  bool accumulate_weight = false;
  void* bias = nullptr;
  bool accumulate_bias = false;
};

/// How backward determines which results relu set to 0 or to the ceiling; their gradient is 0.
enum class ReluMask : int8_t {
  kNone,    ///< there is no relu
  kInput,   ///< results are recomputed from the input
  kOutput,  ///< results are given
};

/// Numbers saved by layer_norm per row, in float32 (float64 for float64): the mean as a sum of two parts, and 1 /
/// sqrt(var + eps).
inline constexpr int64_t kLayerNormStatistics = 3;
/// Elements of a row whose sums are accumulated in the type of the arithmetic; sums of these are added in float64.
inline constexpr int64_t kLayerNormChunk = 1 << 17;
/// Whether the mean of a row is so inexact that subtracting the square of its correction would cost precision of the
/// variance. The mean is corrected once, and the sums are computed again.
template <class C>
TANDEM_HOST_DEVICE bool is_large_correction(C correction, C variance) {
  return correction * correction > variance / 16;
}

/// Gradients of input, weight and bias; null: not computed. The flags select adding to the old contents.
struct LayerNormGradients {
  void* in;
  bool accumulate_in;
  void* weight;
  bool accumulate_weight;
  void* bias;
  bool accumulate_bias;
};

// clang-format off
TANDEM_KERNELS(
/// Bytes of the workspace of each batch_norm kernel.
int64_t batch_norm_workspace_bytes(const KernelContext& context, const BatchNormShape& shape);

/// mean[c], and squares[c] = the sum of squared deviations from it; also batch_norm_update unless `update` is null.
void batch_norm_moments(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                        void* workspace, double* mean, double* squares, const BatchNormUpdate* update);
/// The joint moments of all ranks: gathered [ranks, 3, channels] has the counts, means, and sums of squared deviations
/// of each rank, which are overwritten.
void batch_norm_join(const KernelContext& context, int64_t ranks, int64_t channels, double* gathered, double* mean,
                     double* squares);
/// Computes the numbers of `update` for n channels.
void batch_norm_update(const KernelContext& context, int64_t n, const double* mean, const double* squares,
                       const BatchNormUpdate& update);
/// Bytes of the mask that batch_norm stores for the backward of relu with a residual; 0 if it stores none, as on CPUs
/// and where not all accesses have 16 bytes.
int64_t batch_norm_mask_bytes(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                              const void* residual, const void* out);
/// out = normalized input (+ residual unless null), then relu if requested, with channels.ceiling. `positive`, unless
/// null, is the mask: for each 16 bytes of out one byte, whose bit i is 0 if element i is 0.
void batch_norm(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                const BatchNormChannels& channels, bool relu, const void* in, const void* residual, void* workspace,
                void* out, void* positive);

/// sums[0, c] = sum of g, sums[1, c] = sum of g * (in - mean), and the gradients of the parameters. g is `grad` masked
/// by relu. With ReluMask::kOutput, g is the sum of `grad` and `more` (null: 0), rounded to the dtype and masked by
/// `out`, or by the mask `positive` of out unless it is null, and g is stored to `counted`, which may be the memory of
/// grad. Otherwise out, positive, more and counted are null.
void batch_norm_backward_sums(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void* positive, const void* grad, const void* more, void* workspace, double* sums,
                              void* counted, const BatchNormParameters& parameters);
/// Stores the gradients of the parameters of n channels: the sums of g, and of g times the normalized input.
void batch_norm_parameters(const KernelContext& context, int64_t n, const double* sum, const double* sum_along,
                           const BatchNormParameters& parameters);
/// grad_in; the sums are over `count` values, and with channels.of_groups sums of the gradient times the weight over a
/// group. count = 0: mean and rstd do not depend on the input. With relu the gradient is masked, as by
/// ReluMask::kInput. grad_in may be the same memory as grad.
void batch_norm_backward(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, bool relu, const void* in, const void* grad,
                         const double* sums, double count, void* workspace, void* grad_in);

/// out = normalized rows of n elements, times weight plus bias ([n], or null); statistics [rows, 3]. Unless `centres`,
/// the mean is 0 (rms_norm). The dtype of out is `result`: `dtype` or, on GPUs for float32, a half type. Unless
/// `added`, of dtype `result`, is null, the rows are those of in + added, which is written to `sum`.
void layer_norm(const KernelContext& context, DType dtype, DType result, bool centres, int64_t rows, int64_t n,
                double eps, const void* in, const void* added, const void* weight, const void* bias, void* sum,
                void* statistics, void* out);
/// Bytes of the workspace of layer_norm_backward.
int64_t layer_norm_workspace_bytes(const KernelContext& context, DType dtype, int64_t rows, int64_t n);
/// `result` is the dtype of grad.
void layer_norm_backward(const KernelContext& context, DType dtype, DType result, bool centres, int64_t rows, int64_t n,
                         const void* in, const void* weight, const void* statistics, const void* grad, void* workspace,
                         const LayerNormGradients& gradients);
)
// clang-format on

}}  // namespace tandem::v0

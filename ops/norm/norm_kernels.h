// Kernels of the normalisations.  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// A tensor [batch, channels, inner] in one of two orders of memory: row-major, or with the channels innermost.
struct BatchNormShape {
  int64_t batch;
  int64_t channels;
  int64_t inner;
  bool channels_last;

  TANDEM_HOST_DEVICE int64_t per_channel() const { return batch * inner; }
};

/// How values of one channel are normalised; [channels] each.
struct BatchNormChannels {
  const double* mean;
  const double* rstd;  ///< 1 / sqrt(var + eps)
  const void* weight;  ///< of the input's dtype; null: 1
  const void* bias;    ///< of the input's dtype; null: 0
};

/// Where backward learns which results a fused relu cut off: their gradient does not count.
enum class ReluMask : int8_t {
  kNone,    ///< there is no relu
  kInput,   ///< the results are computed again from the input
  kOutput,  ///< the results are given
};

/// Numbers that layer_norm keeps of each row, in float32 or for float64 in that: the mean as a sum of two parts, and
/// 1 / sqrt(var + eps).
inline constexpr int64_t kLayerNormStatistics = 3;

/// Gradients: of the input (unless null), and of weight and bias (unless null), added to what they hold where told so.
struct LayerNormGradients {
  void* in;
  void* weight;
  bool accumulate_weight;
  void* bias;
  bool accumulate_bias;
};

// clang-format off
TANDEM_KERNELS(
/// Bytes of scratch memory that each of the batch norm's kernels needs.
int64_t batch_norm_workspace_bytes(const KernelContext& context, const BatchNormShape& shape);

/// mean[c], and squares[c] = the sum of squared deviations from it.
void batch_norm_moments(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                        void* workspace, double* mean, double* squares);
/// The moments of all ranks together from those of each: gathered [ranks, 3, channels] has their counts, means, and sums of squared
/// deviations from those.
void batch_norm_join(const KernelContext& context, int64_t ranks, int64_t channels, const double* gathered, double* mean,
                     double* squares);
/// rstd = 1 / sqrt(squares / divisor + eps), n numbers; squares may be rstd.
void batch_norm_rstd(const KernelContext& context, int64_t n, double divisor, double eps, const double* squares,
                     double* rstd);
/// running = (1 - momentum) running + momentum * batch / divisor, n numbers; `dtype` is that of running.
void batch_norm_running(const KernelContext& context, DType dtype, int64_t n, double momentum, double divisor,
                        const double* batch, void* running);
/// out = normalised input (+ residual unless null), cut off below 0 if relu.
void batch_norm(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                const BatchNormChannels& channels, bool relu, const void* in, const void* residual, void* workspace,
                void* out);

/// sums[0, c] = sum of g, sums[1, c] = sum of g * (in - mean) for the gradients g that count, which go to `counted` unless that
/// is null.  `out` is read under ReluMask::kOutput alone.
void batch_norm_backward_sums(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void* grad, void* workspace, double* sums, void* counted);
/// grad_in, where the sums run over `count` values; count = 0: mean and rstd do not depend on the input.
void batch_norm_backward(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                         const void* grad, const double* sums, double count, void* workspace, void* grad_in);
/// slot = value * factor (factor null: 1), or slot += that, for n numbers; `dtype` is the slot's.
void batch_norm_parameter_gradient(const KernelContext& context, DType dtype, int64_t n, const double* value,
                                   const double* factor, bool accumulate, void* slot);

/// out = normalised rows of n numbers, times weight plus bias ([n], or null); statistics [rows, 3].
void layer_norm(const KernelContext& context, DType dtype, int64_t rows, int64_t n, double eps, const void* in,
                const void* weight, const void* bias, void* statistics, void* out);
/// Bytes of scratch memory that layer_norm_backward needs.
int64_t layer_norm_workspace_bytes(const KernelContext& context, DType dtype, int64_t rows, int64_t n);
void layer_norm_backward(const KernelContext& context, DType dtype, int64_t rows, int64_t n, const void* in,
                         const void* weight, const void* statistics, const void* grad, void* workspace,
                         const LayerNormGradients& gradients);
)
// clang-format on

}}  // namespace tandem::v0

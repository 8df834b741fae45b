// Formulas of batch normalization for single elements and channels, for CPUs and GPUs. Private to the kernels of ops/.
#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/ops/norm/norm_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

/// a * b + c, rounded once.
TANDEM_HOST_DEVICE inline float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TANDEM_HOST_DEVICE inline double fused_multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// Maps the elements x of a channel to (x - shift) * scale + offset.
template <class C>
struct ChannelMap {
  C shift;
  C scale;
  C offset;

  TANDEM_HOST_DEVICE C operator()(C x) const { return fused_multiply_add(x - shift, scale, offset); }
};

/// The map of x to (x - mean) * scale + offset. The offset includes the digits of the mean that C cannot represent.
template <class C>
TANDEM_HOST_DEVICE inline ChannelMap<C> map_around(double mean, double scale, double offset) {
  const C shift = static_cast<C>(mean);
  return {shift, static_cast<C>(scale), static_cast<C>(offset - (mean - static_cast<double>(shift)) * scale)};
}

/// One channel of BatchNormChannels.
struct BatchNormChannel {
  double mean;
  double rstd;
  double weight;
  double bias;
  bool of_group;

  template <class C>
  TANDEM_HOST_DEVICE ChannelMap<C> normalising() const {
    return map_around<C>(mean, factor(), bias);
  }
  TANDEM_HOST_DEVICE double factor() const { return rstd * weight; }
  /// d x = factor (g - mean of g - (x - mean) rstd^2 * mean of g (x - mean)), for the gradient g of a result. In a
  /// group, whose channels have different weights, g is times the weight, and the factor is rstd.
  TANDEM_HOST_DEVICE double gradient_weight() const { return of_group ? weight : 1; }
  TANDEM_HOST_DEVICE double gradient_factor() const { return of_group ? rstd : factor(); }
  /// The map of x to the number that is subtracted from g in d x; the sums of g and of g (x - mean) are over `count`
  /// values. The number is subtracted before multiplying by the factor, which is large for nearly constant channels, so
  /// that equal g give exactly 0.
  template <class C>
  TANDEM_HOST_DEVICE ChannelMap<C> subtracted_from_gradient(double sum, double sum_along, double count) const {
    return map_around<C>(mean, rstd * rstd * sum_along / count, sum / count);
  }
};

struct JoinedMoments {
  double mean;
  double squares;
};

/// The joint moments of channel c over all ranks, in rank order; for `gathered` see batch_norm_join.
TANDEM_HOST_DEVICE inline JoinedMoments joined_moments(int64_t ranks, int64_t channels, const double* gathered,
                                                       int64_t c) {
  double count = 0;
  JoinedMoments all = {0, 0};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double* part = gathered + rank * 3 * channels + c;
    const double more = part[0];
    if (more == 0) continue;  // an empty batch has mean NaN
    const double share = more / (count + more), difference = part[channels] - all.mean;
    all.squares = part[2 * channels] + (count == 0 ? 0 : all.squares + difference * difference * count * share);
    all.mean = count == 0 ? part[channels] : all.mean + difference * share;
    count += more;
  }
  return all;
}

/// T: the dtype of the input.
template <class T>
TANDEM_HOST_DEVICE inline BatchNormChannel channel_of(const BatchNormChannels& all, int64_t c) {
  const auto parameter = [&](const void* values, double missing) {
    return values == nullptr            ? missing
           : all.has_float32_parameters ? static_cast<double>(static_cast<const float*>(values)[c])
                                        : static_cast<double>(static_cast<const T*>(values)[c]);
  };
  return {all.mean[c], all.rstd[c], parameter(all.weight, 1), parameter(all.bias, 0), all.of_groups};
}

/// 1 / sqrt(var + eps).
TANDEM_HOST_DEVICE inline double rstd_of(double squares, double divisor, double eps) {
  return 1 / std::sqrt(squares / divisor + eps);
}

/// The new value of a running statistic.
TANDEM_HOST_DEVICE inline double updated(double running, double momentum, double value) {
  return (1 - momentum) * running + momentum * value;
}

}}}  // namespace tandem::v0::functions

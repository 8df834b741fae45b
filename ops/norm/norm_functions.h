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

/// The joint moments of channel c over all ranks, joined in the order of a sum over ranks (tensor/sum_order.h). For
/// `gathered`, which is overwritten, see batch_norm_join.
TANDEM_HOST_DEVICE inline void join_moments(int64_t ranks, int64_t channels, double* gathered, int64_t c, double* mean,
                                            double* squares) {
  for (int64_t apart = 1; apart < ranks; apart *= 2) {
    for (int64_t rank = 0; rank + apart < ranks; rank += 2 * apart) {
      double* const a = gathered + rank * 3 * channels + c;
      const double* const b = a + apart * 3 * channels;
      if (b[0] == 0) continue;  // an empty batch has mean NaN
      const bool is_empty = a[0] == 0;
      const double count = is_empty ? 0 : a[0], share = b[0] / (count + b[0]), difference = b[channels] - a[channels];
      a[2 * channels] =
          is_empty ? b[2 * channels] : b[2 * channels] + (a[2 * channels] + difference * difference * count * share);
      a[channels] = is_empty ? b[channels] : a[channels] + difference * share;
      a[0] = count + b[0];
    }
  }
  const double* const all = gathered + c;
  *mean = all[0] == 0 ? 0 : all[channels];
  *squares = all[0] == 0 ? 0 : all[2 * channels];
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

/// Element i of floating `data`.
TANDEM_HOST_DEVICE inline double number_at(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case kFloat16: return static_cast<double>(static_cast<const Half*>(data)[i]);
    case kBFloat16: return static_cast<double>(static_cast<const BFloat16*>(data)[i]);
    case kFloat64: return static_cast<const double*>(data)[i];
    default: return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}
TANDEM_HOST_DEVICE inline void set_number(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case kFloat16: static_cast<Half*>(data)[i] = static_cast<Half>(value); return;
    case kBFloat16: static_cast<BFloat16*>(data)[i] = static_cast<BFloat16>(value); return;
    case kFloat64: static_cast<double*>(data)[i] = value; return;
    default: static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

/// Updates channel c.
TANDEM_HOST_DEVICE inline void update_channel(const BatchNormUpdate& update, int64_t c, double mean, double squares) {
  const auto move = [&](void* running, DType dtype, double value) {
    set_number(running, dtype, c, (1 - update.momentum) * number_at(running, dtype, c) + update.momentum * value);
  };
  if (update.rstd != nullptr) update.rstd[c] = 1 / std::sqrt(squares / update.count + update.eps);
  if (update.running_mean != nullptr) move(update.running_mean, update.mean_dtype, mean);
  if (update.running_var != nullptr) move(update.running_var, update.var_dtype, squares / (update.count - 1));
}

/// Stores the gradients of the parameters of channel c: the sums of g and of g * (x - mean) * rstd.
TANDEM_HOST_DEVICE inline void store_parameter_gradients(const BatchNormParameters& to, int64_t c, double sum,
                                                         double sum_along) {
  const auto store = [&](void* slot, bool accumulate, double gradient) {
    if (slot == nullptr) return;
    set_number(slot, to.dtype, c, gradient + (accumulate ? number_at(slot, to.dtype, c) : 0));
  };
  store(to.weight, to.accumulate_weight, sum_along);
  store(to.bias, to.accumulate_bias, sum);
}

}}}  // namespace tandem::v0::functions

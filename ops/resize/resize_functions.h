// Indices and weights of interpolation, for CPUs and GPUs. Private to ops/resize/.
#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/ops/resize/resize_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

/// One of the elements from which a result is computed.
template <class C>
struct Tap {
  int64_t index;
  C weight;
};

/// Cubic convolution with a = -0.75 at a distance from 0 to 2.
template <class C>
TANDEM_HOST_DEVICE C cubic_weight(C distance) {
  constexpr C a = C(-0.75);
  if (distance <= 1) return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
  return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a;
}

/// Tap k of element i of the resized axis. Indices ascend with k and with i. C is the type of coordinates.
template <class C>
TANDEM_HOST_DEVICE Tap<C> tap(const ResizeAxis& axis, int64_t i, int k) {
  const C scale = static_cast<C>(axis.scale), at = static_cast<C>(i);
  const int64_t last = axis.in - 1;
  const auto limited = [last](int64_t index) { return index < 0 ? 0 : index < last ? index : last; };
  // As in PyTorch, the nearest element is found in float32 for every dtype.
  if (axis.kind == ResizeKind::kNearest) {
    return {limited(static_cast<int64_t>(std::floor(static_cast<float>(scale * at)))), C(1)};
  }
  C position = axis.align_corners ? scale * at : scale * (at + C(0.5)) - C(0.5);
  if (axis.kind != ResizeKind::kCubic && position < 0) position = 0;
  if (axis.kind == ResizeKind::kNearestExact) {
    return {limited(static_cast<int64_t>(std::floor(static_cast<float>(position + C(0.5))))), C(1)};
  }
  if (axis.kind == ResizeKind::kLinear && axis.in == axis.out) position = at;  // even if the scale is not 1
  const int64_t below = static_cast<int64_t>(std::floor(position)), base = below < last ? below : last;
  C t = position - static_cast<C>(base);
  t = t < 1 ? t : C(1);
  if (axis.kind == ResizeKind::kLinear) return {limited(base + k), k == 0 ? 1 - t : t};
  const C distance = k == 0 ? t + 1 : k == 1 ? t : k == 2 ? 1 - t : (1 - t) + 1;
  return {limited(base + k - 1), cubic_weight(distance)};
}

/// Calls f(source, weight) for the sources of a result, in ascending order.
template <class C, class F>
TANDEM_HOST_DEVICE void for_taps(const ResizeAxis& axis, int64_t result, const F& f) {
  const int taps = axis.num_taps();
  if (!axis.transposed) {
    for (int k = 0; k < taps; ++k) {
      const Tap<C> source = tap<C>(axis, result, k);
      f(source.index, source.weight);
    }
    return;
  }
  // The first element with a tap at `result` or after it, from an estimate.
  const double estimate = axis.scale > 0 ? static_cast<double>(result - taps / 2) / axis.scale - 1 : 0;
  const double end = static_cast<double>(axis.out);
  int64_t i = static_cast<int64_t>(estimate < 0 ? 0 : estimate < end ? estimate : end);
  while (i > 0 && tap<C>(axis, i - 1, taps - 1).index >= result) --i;
  while (i < axis.out && tap<C>(axis, i, taps - 1).index < result) ++i;
  for (; i < axis.out && tap<C>(axis, i, 0).index <= result; ++i) {
    for (int k = 0; k < taps; ++k) {
      const Tap<C> source = tap<C>(axis, i, k);
      if (source.index == result) f(i, source.weight);
    }
  }
}

}}}  // namespace tandem::v0::functions

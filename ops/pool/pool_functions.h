// Geometry and comparison of max pooling, for CPUs and GPUs. Private to the kernels of ops/.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/ops/pool/pool_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

/// Whether x replaces `best`: it is larger, or the first NaN.
template <class C>
TANDEM_HOST_DEVICE inline bool beats(C x, C best) {
  return !(x <= best) && best == best;
}

template <class Index>
TANDEM_HOST_DEVICE inline Index smaller(Index a, Index b) {
  return a < b ? a : b;
}

template <class Index>
struct Range {
  Index begin;
  Index end;
};
/// The kernel elements [begin, end) of a window that are inside the image.
template <class Index, class Divisor>
TANDEM_HOST_DEVICE inline Range<Index> elements_inside(const BasicMaxPoolAxis<Index, Divisor>& axis, Index window) {
  const Index start = window * axis.stride;  // in the padded image
  const auto up = [&](Index n) { return (n + axis.dilation - 1) / axis.dilation; };
  return {start < axis.padding ? up(axis.padding - start) : 0,
          smaller(axis.kernel, up(axis.image + axis.padding - start))};
}
/// The windows [begin, end) whose extent covers element i of the image.
template <class Index, class Divisor>
TANDEM_HOST_DEVICE inline Range<Index> windows_over(const BasicMaxPoolAxis<Index, Divisor>& axis, Index i) {
  const Index last = i + axis.padding;  // start of the window whose kernel element 0 is i, relative to window 0
  const Index extent = (axis.kernel - 1) * axis.dilation + 1;
  return {last < extent ? 0 : (last - extent) / axis.stride + 1, smaller(axis.windows, last / axis.stride + 1)};
}
/// The kernel element of the window that is element i of the image; axis.kernel if there is none (dilation).
template <class Index, class Divisor>
TANDEM_HOST_DEVICE inline Index element_over(const BasicMaxPoolAxis<Index, Divisor>& axis, Index window, Index i) {
  const Index distance = i + axis.padding - window * axis.stride;
  if (axis.dilation == 1) return distance;
  return distance % axis.dilation == 0 ? distance / axis.dilation : axis.kernel;
}

}}}  // namespace tandem::v0::functions

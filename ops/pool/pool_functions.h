// Geometry and comparison of max pooling, for CPUs and GPUs. Private to the kernels of ops/.
#pragma once

#include <cstdint>
#include <limits>

#include <tandem/base/macros.h>
#include <tandem/base/math.h>
#include <tandem/ops/pool/pool_kernels.h>

namespace tandem { inline namespace v0 { namespace functions {

/// Whether x replaces `best`: it is larger, or the first NaN.
template <class C>
TANDEM_HOST_DEVICE inline bool beats(C x, C best) {
  return !(x <= best) && best == best;
}

/// The largest element so far and its index, negative if there is none.
template <class C, class Index>
struct Largest {
  C value = -std::numeric_limits<C>::infinity();
  Index index = -1;

  TANDEM_HOST_DEVICE void offer(C x, Index k) {
    if (index >= 0 && !beats(x, value)) return;
    value = x;
    index = k;
  }
};

TANDEM_HOST_DEVICE inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
TANDEM_HOST_DEVICE inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

struct Range {
  int64_t begin;
  int64_t end;
};
/// The kernel elements [begin, end) of a window that are inside the image.
TANDEM_HOST_DEVICE inline Range elements_inside(const MaxPoolAxis& axis, int64_t window) {
  const int64_t start = window * axis.stride - axis.padding;
  return {larger(0, ceil_div(-start, axis.dilation)),
          smaller(axis.kernel, ceil_div(axis.image - start, axis.dilation))};
}
/// The windows [begin, end) whose extent covers element i of the image.
TANDEM_HOST_DEVICE inline Range windows_over(const MaxPoolAxis& axis, int64_t i) {
  const int64_t last = i + axis.padding;  // start of the window whose kernel element 0 is i, relative to window 0
  return {larger(0, ceil_div(last - (axis.kernel - 1) * axis.dilation, axis.stride)),
          smaller(axis.windows, last / axis.stride + 1)};
}
/// The kernel element of the window that is element i of the image; -1 if there is none (dilation).
TANDEM_HOST_DEVICE inline int64_t element_over(const MaxPoolAxis& axis, int64_t window, int64_t i) {
  const int64_t distance = i + axis.padding - window * axis.stride;
  if (axis.dilation == 1) return distance;
  return distance % axis.dilation == 0 ? distance / axis.dilation : -1;
}

}}}  // namespace tandem::v0::functions

// CPU kernels of cumulative operations: each line is scanned in order, adjacent lines together. Sums of floats are
// accumulated in double.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/scan/scan_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Lines that are scanned together.
constexpr int64_t kStripe = 64;
/// Elements per piece of parallel work.
constexpr int64_t kGrain = 1 << 14;

template <class F>
void scan_lines(const Extents& sizes, bool reverse, const F& f) {
  if (sizes.size == 0) return;
  const int64_t stripes = (sizes.inner + kStripe - 1) / kStripe;
  const int64_t grain =
      std::max<int64_t>(1, kGrain / std::max<int64_t>(1, sizes.size * std::min(sizes.inner, kStripe)));
  parallel_for(sizes.outer * stripes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t column = item % stripes * kStripe;
      const int64_t width = std::min(kStripe, sizes.inner - column);
      const auto row = [&](int64_t i) {
        return (item / stripes * sizes.size + (reverse ? sizes.size - 1 - i : i)) * sizes.inner + column;
      };
      if (width == 1) {  // the state stays in registers
        typename F::State state = f.start();
        for (int64_t i = 0; i < sizes.size; ++i) {
          state = f.combine(state, f.load(row(i), i));
          f.store(row(i), i, state);
        }
        continue;
      }
      typename F::State states[kStripe];
      std::fill(states, states + width, f.start());
      for (int64_t i = 0; i < sizes.size; ++i) {
        const int64_t at = row(i);
        for (int64_t k = 0; k < width; ++k) {
          states[k] = f.combine(states[k], f.load(at + k, i));
          f.store(at + k, i, states[k]);
        }
      }
    }
  });
}

}  // namespace

void scan(const KernelContext&, ScanKind kind, DType dtype, const Extents& sizes, bool reverse, const void* in,
          void* out) {
  visit_scan<true>(kind, dtype, in, out, [&](const auto& f) { scan_lines(sizes, reverse, f); });
}

void linear_scan(const KernelContext&, DType dtype, const Extents& sizes, bool reverse, const void* factors,
                 const void* in, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    scan_lines(sizes, reverse,
               scans::Linear<T, double>{static_cast<const T*>(factors), static_cast<const T*>(in), static_cast<T*>(out),
                                        reverse ? sizes.inner : 0});
  });
}

void extremum_scan(const KernelContext&, DType dtype, const Extents& sizes, bool largest, const void* in, void* values,
                   int64_t* indices) {
  visit_dtype(dtype, [&]<class T>() {
    scan_lines(sizes, false,
               scans::Extremum<T>{static_cast<const T*>(in), static_cast<T*>(values), indices, largest, sizes.inner});
  });
}

}}}  // namespace tandem::v0::cpu

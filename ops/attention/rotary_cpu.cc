#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/attention/rotary_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

void rotary_embedding(const KernelContext&, const RotaryCall& call) {
  visit_floating_dtype(call.dtype, [&]<class T>() {
    using C = Accumulator<T>;
    const size_t dims = call.shape.size() - 1;
    const int64_t length = call.shape[dims - 1], half = call.shape[dims], partner = call.partner;
    const int64_t x_step = call.x_strides[dims], out_step = call.out_strides[dims];
    int64_t rows = 1;
    for (size_t d = 0; d < dims; ++d) rows *= call.shape[d];
    constexpr int64_t kGrainPairs = 1 << 12;
    parallel_for(rows, std::max<int64_t>(1, kGrainPairs / std::max<int64_t>(1, half)), [&](int64_t row, int64_t end) {
      for (; row < end; ++row) {
        const T* x = static_cast<const T*>(call.x);
        T* out = static_cast<T*>(call.out);
        for (int64_t d = static_cast<int64_t>(dims) - 1, rest = row; d >= 0; --d) {
          const auto at = static_cast<size_t>(d);
          x += rest % call.shape[at] * call.x_strides[at];
          out += rest % call.shape[at] * call.out_strides[at];
          rest /= call.shape[at];
        }
        const C* const cos = static_cast<const C*>(call.cos) + row % length * half;
        const C* const sin = static_cast<const C*>(call.sin) + row % length * half;
        const C sign = call.is_inverse ? C(-1) : C(1);
        for (int64_t i = 0; i < half; ++i) {
          const C a = static_cast<C>(x[i * x_step]), b = static_cast<C>(x[i * x_step + partner]);
          const C s = sign * sin[i];
          out[i * out_step] = static_cast<T>(a * cos[i] - b * s);
          out[i * out_step + partner] = static_cast<T>(b * cos[i] + a * s);
        }
      }
    });
  });
}

}}}  // namespace tandem::v0::cpu

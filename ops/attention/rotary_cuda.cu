// One thread per pair.
#include <tandem/ops/attention/rotary_kernels.h>
#include <tandem/tensor/cuda/strided.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

template <class T>
struct Rotate {
  const T* x;
  const Accumulator<T>*cos, *sin;
  Accumulator<T> sign;
  int64_t partner;
  T* out;

  __device__ void operator()(const int64_t (&offsets)[3]) const {
    using C = Accumulator<T>;
    const T* const from = x + offsets[0];
    const C a = static_cast<C>(from[0]), b = static_cast<C>(from[partner]);
    const C c = cos[offsets[2]], s = sign * sin[offsets[2]];
    T* const to = out + offsets[1];
    to[0] = static_cast<T>(a * c - b * s);
    to[partner] = static_cast<T>(b * c + a * s);
  }
};

}  // namespace

void rotary_embedding(const KernelContext& context, const RotaryCall& call) {
  Shape table_strides(call.shape.size(), 0);
  table_strides.back() = 1;
  table_strides[call.shape.size() - 2] = call.shape.back();
  visit_floating_dtype(call.dtype, [&]<class T>() {
    using C = Accumulator<T>;
    for_each_element(
        context, Strided<3>(call.shape, {call.x_strides, call.out_strides, table_strides}),
        Rotate<T>{static_cast<const T*>(call.x), static_cast<const C*>(call.cos), static_cast<const C*>(call.sin),
                  call.is_inverse ? C(-1) : C(1), call.partner, static_cast<T*>(call.out)});
  });
}

}}}  // namespace tandem::v0::cuda

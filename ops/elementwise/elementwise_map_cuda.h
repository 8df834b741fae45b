// GPU loops of elementwise kernels. Private to the *.cu files of ops/.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/tensor/cuda/packed.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// An operand: elements in GPU memory, or one number for all elements.
template <class T>
struct Elements {
  const T* data;
  T number;

  explicit Elements(Source source) : data(source.is_number ? nullptr : static_cast<const T*>(source.data)), number() {
    if (source.is_number) std::memcpy(&number, source.data, sizeof(T));
  }
  __device__ T operator[](int64_t i) const { return data == nullptr ? number : data[i]; }
};

/// `n` consecutive elements from i on (step 1), or n copies of one element (step 0).
template <int n, class T>
__device__ Pack<T, n> load(const Elements<T>& from, int64_t i, int step) {
  if (from.data != nullptr && step == 1) return *reinterpret_cast<const Pack<T, n>*>(from.data + i);
  Pack<T, n> pack;
  const T value = from[0];
  for (int v = 0; v < n; ++v) pack.values[v] = value;
  return pack;
}

/// The N operands of a loop as a kernel argument.
template <int N>
Strided<N> strided(const StridedLoop<N>& loop) {
  std::array<std::span<const int64_t>, N> steps;
  for (int k = 0; k < N; ++k) steps[k] = {loop.strides[k].data(), loop.strides[k].size()};
  return {{loop.sizes.data(), loop.sizes.size()}, steps};
}

/// Whether each operand of a loop is one contiguous range aligned for accesses of 16 bytes, or a single element.
template <int N>
bool is_flat(const StridedLoop<N>& loop, const std::array<const void*, N>& data) {
  if (loop.sizes.size() != 1 || loop.strides[0][0] != 1) return false;
  for (int k = 0; k < N; ++k) {
    if (loop.strides[k][0] == 1 && !is_aligned_for_packs(data[k])) return false;
    if (loop.strides[k][0] > 1) return false;
  }
  return true;
}

/// f(x...) for elements of type T.
template <class T, class F, class... X>
__device__ auto apply(const F& f, X... x) {
  if constexpr (kIsHalf<T> && requires { f.for_half(x...); }) {
    return f.for_half(x...);
  } else {
    return f(x...);
  }
}

template <class T, class Out, class F>
struct MapBinary {
  static constexpr int kPack = 16 / static_cast<int>(std::max(sizeof(T), sizeof(Out)));
  Out* out;
  Elements<T> a, b;
  int a_step, b_step;  // steps of contiguous operands: 1, or 0 for a single element
  int64_t n;
  F f;

  __device__ Out compute(T x, T y) const {
    return store<Out>(apply<T>(f, static_cast<Compute<T>>(x), static_cast<Compute<T>>(y)));
  }
  /// Processes one element of strided operands.
  __device__ void operator()(const int64_t (&at)[3]) const { out[at[0]] = compute(a[at[1]], b[at[2]]); }
  /// Processes one pack of contiguous operands.
  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack <= n) {
      const auto x = load<kPack>(a, begin, a_step), y = load<kPack>(b, begin, b_step);
      Pack<Out, kPack> result;
      for (int v = 0; v < kPack; ++v) result.values[v] = compute(x.values[v], y.values[v]);
      *reinterpret_cast<Pack<Out, kPack>*>(out + begin) = result;
    } else {
      for (int64_t i = begin; i < n; ++i) out[i] = compute(a[i * a_step], b[i * b_step]);
    }
  }
};

/// out[i] = f(a[i], b[i]).
template <class T, class Out, class F>
void map_binary(const KernelContext& context, const StridedLoop<3>& loop, Source a, Source b, void* out, F f) {
  using Kernel = MapBinary<T, Out, F>;
  Kernel kernel{static_cast<Out*>(out), Elements<T>(a), Elements<T>(b), 0, 0, loop.num_elements, f};
  if (is_flat<3>(loop, {out, a.data, b.data})) {
    kernel.a_step = static_cast<int>(loop.strides[1][0]);
    kernel.b_step = static_cast<int>(loop.strides[2][0]);
    return for_each_index(context, (loop.num_elements + Kernel::kPack - 1) / Kernel::kPack, kernel);
  }
  for_each_element(context, strided(loop), kernel);
}

template <class T, class Out, class F>
struct MapUnary {
  static constexpr int kPack = 16 / static_cast<int>(std::max(sizeof(T), sizeof(Out)));
  Out* out;
  Elements<T> a;
  int a_step;
  int64_t n;
  F f;

  __device__ Out compute(T x) const { return store<Out>(apply<T>(f, static_cast<Compute<T>>(x))); }
  __device__ void operator()(const int64_t (&at)[2]) const { out[at[0]] = compute(a[at[1]]); }
  __device__ void operator()(int64_t pack) const {
    const int64_t begin = pack * kPack;
    if (begin + kPack <= n) {
      const auto x = load<kPack>(a, begin, a_step);
      Pack<Out, kPack> result;
      for (int v = 0; v < kPack; ++v) result.values[v] = compute(x.values[v]);
      *reinterpret_cast<Pack<Out, kPack>*>(out + begin) = result;
    } else {
      for (int64_t i = begin; i < n; ++i) out[i] = compute(a[i * a_step]);
    }
  }
};

/// out[i] = f(a[i]).
template <class T, class F>
void map_unary(const KernelContext& context, const StridedLoop<2>& loop, Source a, void* out, F f) {
  using Kernel = MapUnary<T, T, F>;
  Kernel kernel{static_cast<T*>(out), Elements<T>(a), 0, loop.num_elements, f};
  if (is_flat<2>(loop, {out, a.data})) {
    kernel.a_step = static_cast<int>(loop.strides[1][0]);
    return for_each_index(context, (loop.num_elements + Kernel::kPack - 1) / Kernel::kPack, kernel);
  }
  for_each_element(context, strided(loop), kernel);
}

template <class T, class F>
struct MapTernary {
  T* out;
  const T* a;
  const T* b;
  const T* c;
  F f;
  __device__ void operator()(const int64_t (&at)[4]) const {
    using C = Compute<T>;
    out[at[0]] = store<T>(f(static_cast<C>(a[at[1]]), static_cast<C>(b[at[2]]), static_cast<C>(c[at[3]])));
  }
};

/// out[i] = f(a[i], b[i], c[i]).
template <class T, class F>
void map_ternary(const KernelContext& context, const StridedLoop<4>& loop, const void* a, const void* b, const void* c,
                 void* out, F f) {
  const MapTernary<T, F> kernel{static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b),
                                static_cast<const T*>(c), f};
  for_each_element(context, strided(loop), kernel);
}

}}}  // namespace tandem::v0::cuda

#define TANDEM_DEVICE_NAMESPACE cuda
#include <tandem/ops/elementwise/elementwise_kernels_inl.h>

// CPU loops of elementwise kernels: strided iteration in general, vectorized code for contiguous operands. Private to
// the CPU kernels of ops/.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

/// Elements per piece of parallel work.
inline constexpr int64_t kElementGrain = 32768;

/// Calls row(offsets, n) for runs of n elements along the innermost dimension; offsets[k] is the first element of
/// operand k.
template <int N>
void for_each_row(const StridedLoop<N>& loop, FunctionRef<void(const int64_t* offsets, int64_t n)> row) {
  const size_t dims = loop.sizes.size();
  const auto piece = [&](int64_t begin, int64_t end) {
    int64_t index[16];
    Shape many_indices;  // if there are more dimensions than fit
    int64_t* position = index;
    if (dims > std::size(index)) {
      many_indices.resize(dims);
      position = many_indices.data();
    }
    int64_t offsets[N] = {};
    int64_t rest = begin;
    for (size_t d = dims; d-- > 0;) {
      position[d] = rest % loop.sizes[d];
      rest /= loop.sizes[d];
      for (int k = 0; k < N; ++k) offsets[k] += position[d] * loop.strides[k][d];
    }
    const size_t last = dims - 1;
    for (int64_t left = end - begin; left > 0;) {
      const int64_t n = std::min(left, loop.sizes[last] - position[last]);
      row(offsets, n);
      left -= n;
      for (int k = 0; k < N; ++k) offsets[k] += n * loop.strides[k][last];
      position[last] += n;
      for (size_t d = last; d > 0 && position[d] == loop.sizes[d]; --d) {
        position[d] = 0;
        ++position[d - 1];
        for (int k = 0; k < N; ++k) {
          offsets[k] += loop.strides[k][d - 1] - loop.sizes[d] * loop.strides[k][d];
        }
      }
    }
  };
  if (dims == 1 && loop.num_elements <= kElementGrain) {
    constexpr int64_t kStart[N] = {};
    if (loop.num_elements > 0) row(kStart, loop.num_elements);
  } else if (loop.num_elements <= kElementGrain) {
    if (loop.num_elements > 0) piece(0, loop.num_elements);
  } else {
    parallel_for(loop.num_elements, kElementGrain, piece);
  }
}

/// run_wide if the arithmetic is in float; loops over integers and float64 gain nothing from wider vectors.
template <class C, class F>
void run_wide_if(const F& loop) {
  if constexpr (std::is_same_v<C, float>) {
    run_wide(loop);
  } else {
    loop();
  }
}

/// out[i] = f(a[i], b[i]). The pragma is valid because an operand either is the output itself or does not overlap it,
/// so iterations are independent.
template <class T, class Out, class F>
void map_binary(const KernelContext&, const StridedLoop<3>& loop, Source a_data, Source b_data, void* out_data, F f) {
  using C = Compute<T>;
  const int64_t out_step = loop.strides[0].back();
  const int64_t a_step = loop.strides[1].back();
  const int64_t b_step = loop.strides[2].back();
  for_each_row<3>(loop, [&](const int64_t* offsets, int64_t n) {
    Out* out = static_cast<Out*>(out_data) + offsets[0];
    const T* a = static_cast<const T*>(a_data.data) + offsets[1];
    const T* b = static_cast<const T*>(b_data.data) + offsets[2];
    if (out_step == 1 && a_step == 1 && b_step == 1) {
      run_wide_if<C>([=] {
        TANDEM_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = store<Out>(f(static_cast<C>(a[i]), static_cast<C>(b[i])));
      });
    } else if (out_step == 1 && a_step == 1 && b_step == 0) {
      const C b0 = static_cast<C>(*b);
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = store<Out>(f(static_cast<C>(a[i]), b0));
    } else if (out_step == 1 && a_step == 0 && b_step == 1) {
      const C a0 = static_cast<C>(*a);
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = store<Out>(f(a0, static_cast<C>(b[i])));
    } else {
      for (int64_t i = 0; i < n; ++i) {
        out[i * out_step] = store<Out>(f(static_cast<C>(a[i * a_step]), static_cast<C>(b[i * b_step])));
      }
    }
  });
}

/// Calls f with the step as a compile-time constant if it is 0 or 1.
template <class F>
void visit_step(int64_t step, F f) {
  step == 0 ? f(std::integral_constant<int64_t, 0>()) : f(std::integral_constant<int64_t, 1>());
}

/// out[i] = f(a[i], b[i], c[i]).
template <class T, class F>
void map_ternary(const KernelContext&, const StridedLoop<4>& loop, const void* a_data, const void* b_data,
                 const void* c_data, void* out_data, F f) {
  using C = Compute<T>;
  const auto step = [&](size_t operand) { return loop.strides[operand].back(); };
  for_each_row<4>(loop, [&](const int64_t* offsets, int64_t n) {
    T* out = static_cast<T*>(out_data) + offsets[0];
    const T* a = static_cast<const T*>(a_data) + offsets[1];
    const T* b = static_cast<const T*>(b_data) + offsets[2];
    const T* c = static_cast<const T*>(c_data) + offsets[3];
    const auto run = [&](auto out_step, auto a_step, auto b_step, auto c_step) {
      TANDEM_IVDEP
      for (int64_t i = 0; i < n; ++i) {
        const C x = static_cast<C>(a[i * a_step]), y = static_cast<C>(b[i * b_step]), z = static_cast<C>(c[i * c_step]);
        out[i * out_step] = store<T>(f(x, y, z));
      }
    };
    if (step(0) == 1 && step(1) <= 1 && step(2) <= 1 && step(3) <= 1) {
      visit_step(step(1), [&](auto a_step) {
        visit_step(step(2), [&](auto b_step) {
          visit_step(step(3), [&](auto c_step) { run(std::integral_constant<int64_t, 1>(), a_step, b_step, c_step); });
        });
      });
    } else {
      run(step(0), step(1), step(2), step(3));
    }
  });
}

/// Whether abs(a[i]) <= limit for all i.
template <class T>
bool is_within(const T* a, int64_t n, float limit) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(static_cast<float>(a[i])) & 0x7fffffffu);
  }
  return largest <= std::bit_cast<uint32_t>(limit);
}

/// out[i] = f(a[i]).
template <class T, class F>
void map_unary(const KernelContext&, const StridedLoop<2>& loop, const void* a_data, void* out_data, F f) {
  using C = Compute<T>;
  const int64_t out_step = loop.strides[0].back();
  const int64_t a_step = loop.strides[1].back();
  for_each_row<2>(loop, [&](const int64_t* offsets, int64_t n) {
    T* out = static_cast<T*>(out_data) + offsets[0];
    const T* a = static_cast<const T*>(a_data) + offsets[1];
    if constexpr (requires(float x) { f.fast(x); } && std::is_same_v<C, float>) {
      if (out_step == 1 && a_step == 1 && is_within(a, n, f.kFastLimit)) {
        run_wide_if<C>([=] {
          TANDEM_IVDEP
          for (int64_t i = 0; i < n; ++i) out[i] = store<T>(f.fast(static_cast<C>(a[i])));
        });
        return;
      }
    }
    if (out_step == 1 && a_step == 1) {
      run_wide_if<C>([=] {
        TANDEM_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = store<T>(f(static_cast<C>(a[i])));
      });
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * out_step] = store<T>(f(static_cast<C>(a[i * a_step])));
    }
  });
}

}}}  // namespace tandem::v0::cpu

#define TANDEM_DEVICE_NAMESPACE cpu
#include <tandem/ops/elementwise/elementwise_kernels_inl.h>

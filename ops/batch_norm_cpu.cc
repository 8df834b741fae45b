// CPU kernels of the batch norms.
//
// Sums run over *pieces* whose sizes depend on the shape alone; the pieces' sums are joined in their order.  They are formed in
// float64, of float32 data without a loss: the square of a float32 is exact there.  float64 data are shifted by the first
// value of their channel, so that a common offset costs no digits.  Per channel the maps are written as
// (x - shift) * scale + offset, where x - shift is exact for values near the mean, so that an offset costs none there either.
#include <algorithm>
#include <type_traits>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/norm_kernels.h>

namespace tandem::inline v0::cpu {
namespace {

/// Elements of a piece.
constexpr int64_t kPieceElements = 1 << 15;
/// Planar rows are summed in so many interleaved sums.
constexpr int64_t kLanes = 16;

template <class T>
using Compute = Accumulator<T>;

float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// Positions of a channels-last tensor, or images of a planar one, that make a piece.
int64_t piece_length(const BatchNormShape& shape) {
  if (shape.channels_last) return std::max<int64_t>(32, kPieceElements / std::max<int64_t>(1, shape.channels));
  return std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, shape.inner));
}
int64_t num_pieces(const BatchNormShape& shape) {
  const int64_t items = shape.channels_last ? shape.per_channel() : shape.batch, length = piece_length(shape);
  return (items + length - 1) / length;
}

/// Two numbers that are summed together.
struct Pair {
  double a;
  double b;
};

/// sums[0, c] and sums[1, c] = the sums of f(c, position) over the tensor, position counted in elements.
template <class F>
void sum_channels(const BatchNormShape& shape, double* partial, double* sums, F f) {
  const int64_t channels = shape.channels, length = piece_length(shape), pieces = num_pieces(shape);
  if (shape.channels_last) {
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t last = std::min(shape.per_channel(), (piece + 1) * length);
        double* __restrict first_sum = partial + 2 * piece * channels;
        double* __restrict second_sum = first_sum + channels;
        std::fill(first_sum, first_sum + 2 * channels, 0.0);
        int64_t row = piece * length;
        for (; row + 4 <= last; row += 4) {  // four at a time, because the sums are read and written each time
          const int64_t at = row * channels;
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c) {
            const Pair p = f(c, at + c), q = f(c, at + channels + c);
            const Pair r = f(c, at + 2 * channels + c), s = f(c, at + 3 * channels + c);
            first_sum[c] += (p.a + q.a) + (r.a + s.a);
            second_sum[c] += (p.b + q.b) + (r.b + s.b);
          }
        }
        for (; row < last; ++row) {
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c) {
            const Pair p = f(c, row * channels + c);
            first_sum[c] += p.a;
            second_sum[c] += p.b;
          }
        }
      }
    });
  } else {
    const int64_t inner = shape.inner;
    const int64_t grain =
        std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, std::min(length, shape.batch) * inner));
    parallel_for(pieces * channels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t piece = item / channels, c = item % channels;
        double a[kLanes] = {}, b[kLanes] = {};
        for (int64_t image = piece * length; image < std::min(shape.batch, (piece + 1) * length); ++image) {
          const int64_t at = (image * channels + c) * inner;
          int64_t i = 0;
          for (; i + kLanes <= inner; i += kLanes) {
#pragma GCC ivdep
            for (int64_t k = 0; k < kLanes; ++k) {
              const Pair p = f(c, at + i + k);
              a[k] += p.a;
              b[k] += p.b;
            }
          }
          for (int64_t k = 0; i < inner; ++i, ++k) {
            const Pair p = f(c, at + i);
            a[k] += p.a;
            b[k] += p.b;
          }
        }
        for (int64_t width = kLanes / 2; width > 0; width /= 2) {
          for (int64_t k = 0; k < width; ++k) {
            a[k] += a[k + width];
            b[k] += b[k + width];
          }
        }
        partial[2 * piece * channels + c] = a[0];
        partial[(2 * piece + 1) * channels + c] = b[0];
      }
    });
  }
  std::fill(sums, sums + 2 * channels, 0.0);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (int64_t c = 0; c < 2 * channels; ++c) sums[c] += partial[2 * piece * channels + c];
  }
}

/// Calls f(c, position) for each element.
template <class F>
void map_channels(const BatchNormShape& shape, F f) {
  const int64_t channels = shape.channels;
  if (shape.channels_last) {
    const int64_t grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, channels));
    parallel_for(shape.per_channel(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
#pragma GCC ivdep
        for (int64_t c = 0; c < channels; ++c) f(c, row * channels + c);
      }
    });
  } else {
    const int64_t grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, shape.inner));
    parallel_for(shape.batch * channels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t c = row % channels;
#pragma GCC ivdep
        for (int64_t i = 0; i < shape.inner; ++i) f(c, row * shape.inner + i);
      }
    });
  }
}

/// value = (x - shift[c]) * scale[c] + offset[c].
template <class C>
struct Affine {
  const C* shift;
  const C* scale;
  const C* offset;

  C operator()(int64_t c, C x) const { return fma_of(x - shift[c], scale[c], offset[c]); }
};

/// The map (x - mean) * scale(c) + offset(c); its numbers are kept in `memory`, 3 C.
template <class C, class Scale, class Offset>
Affine<C> make_affine(int64_t channels, const double* mean, C* memory, Scale scale, Offset offset) {
  for (int64_t c = 0; c < channels; ++c) {
    const C shift = static_cast<C>(mean[c]);
    memory[c] = shift;
    memory[channels + c] = static_cast<C>(scale(c));
    memory[2 * channels + c] = static_cast<C>(offset(c) - (mean[c] - static_cast<double>(shift)) * scale(c));
  }
  return {memory, memory + channels, memory + 2 * channels};
}

template <class T, class C>
Affine<C> normalising(int64_t channels, const BatchNormChannels& per, C* memory) {
  const T* weight = static_cast<const T*>(per.weight);
  const T* bias = static_cast<const T*>(per.bias);
  return make_affine<C>(
      channels, per.mean, memory,
      [&](int64_t c) { return per.rstd[c] * (weight == nullptr ? 1.0 : static_cast<double>(weight[c])); },
      [&](int64_t c) { return bias == nullptr ? 0.0 : static_cast<double>(bias[c]); });
}

/// Calls f(counts) where counts(c, position, gradient) is the gradient, or 0 where relu cut the result off.
template <class T, class F>
void visit_mask(int64_t channels, const BatchNormChannels& per, ReluMask mask, const T* in, const T* out,
                Compute<T>* memory, F f) {
  using C = Compute<T>;
  switch (mask) {
    case ReluMask::kNone: return f([](int64_t, int64_t, C g) { return g; });
    case ReluMask::kInput: {
      const Affine<C> result = normalising<T>(channels, per, memory);
      return f([=](int64_t c, int64_t at, C g) { return result(c, static_cast<C>(in[at])) <= C(0) ? C(0) : g; });
    }
    case ReluMask::kOutput:
      return f([=](int64_t, int64_t at, C g) { return static_cast<C>(out[at]) <= C(0) ? C(0) : g; });
  }
}

}  // namespace

int64_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  const int64_t affine = 8 * shape.channels, partial = 2 * num_pieces(shape) * shape.channels;
  return (affine + partial) * static_cast<int64_t>(sizeof(double));
}

void batch_norm_moments(const KernelContext&, DType dtype, const BatchNormShape& shape, const void* in, void* workspace,
                        double* mean, double* squares) {
  const int64_t channels = shape.channels;
  double* sums = static_cast<double*>(workspace);
  double* shifts = sums + 2 * channels;
  double* partial = sums + 8 * channels;
  if (shape.per_channel() == 0) {
    std::fill(mean, mean + channels, 0.0);
    std::fill(squares, squares + channels, 0.0);
    return;
  }
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(in);
    if constexpr (std::is_same_v<T, double>) {
      for (int64_t c = 0; c < channels; ++c) shifts[c] = x[shape.channels_last ? c : c * shape.inner];
      sum_channels(shape, partial, sums, [=](int64_t c, int64_t at) {
        const double value = x[at] - shifts[c];
        return Pair{value, value * value};
      });
    } else {
      std::fill(shifts, shifts + channels, 0.0);
      sum_channels(shape, partial, sums, [=](int64_t, int64_t at) {
        const double value = static_cast<double>(static_cast<float>(x[at]));
        return Pair{value, value * value};
      });
    }
  });
  const double n = static_cast<double>(shape.per_channel());
  for (int64_t c = 0; c < channels; ++c) {
    const double shifted_mean = sums[c] / n;
    mean[c] = shifts[c] + shifted_mean;
    const double deviations = sums[channels + c] - sums[c] * shifted_mean;
    squares[c] = deviations < 0 ? 0 : deviations;  // a rounding error below zero; NaN passes
  }
}

void batch_norm_running(const KernelContext&, DType dtype, int64_t n, double momentum, const double* batch,
                        void* running) {
  visit_floating_dtype(dtype, [&]<class T>() {
    T* r = static_cast<T*>(running);
    for (int64_t c = 0; c < n; ++c) {
      const double value = (1 - momentum) * static_cast<double>(r[c]) + momentum * batch[c];
      r[c] = static_cast<T>(static_cast<Compute<T>>(value));
    }
  });
}

void batch_norm(const KernelContext&, DType dtype, const BatchNormShape& shape, const BatchNormChannels& channels,
                bool relu, const void* in, const void* residual, void* workspace, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const Affine<C> result = normalising<T>(shape.channels, channels, static_cast<C*>(workspace));
    const T* x = static_cast<const T*>(in);
    const T* r = static_cast<const T*>(residual);
    T* y = static_cast<T*>(out);
    const auto cut = [](C value) { return value < C(0) ? C(0) : value; };
    if (r != nullptr) {
      map_channels(shape, [=](int64_t c, int64_t at) {
        y[at] = static_cast<T>(cut(result(c, static_cast<C>(x[at])) + static_cast<C>(r[at])));
      });
    } else if (relu) {
      map_channels(shape,
                   [=](int64_t c, int64_t at) { y[at] = static_cast<T>(cut(result(c, static_cast<C>(x[at])))); });
    } else {
      map_channels(shape, [=](int64_t c, int64_t at) { y[at] = static_cast<T>(result(c, static_cast<C>(x[at]))); });
    }
  });
}

void batch_norm_backward_sums(const KernelContext&, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void* grad, void* workspace, double* sums, void* counted) {
  double* partial = static_cast<double*>(workspace) + 8 * shape.channels;
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const T* x = static_cast<const T*>(in);
    const T* g = static_cast<const T*>(grad);
    const double* mean = channels.mean;
    visit_mask<T>(
        shape.channels, channels, mask, x, static_cast<const T*>(out), static_cast<C*>(workspace), [&](auto counts) {
          const auto pair = [=](int64_t c, int64_t at, C value) {
            const double gradient = static_cast<double>(value);
            return Pair{gradient, gradient * (static_cast<double>(static_cast<C>(x[at])) - mean[c])};
          };
          if (counted == nullptr) {
            sum_channels(shape, partial, sums,
                         [=](int64_t c, int64_t at) { return pair(c, at, counts(c, at, static_cast<C>(g[at]))); });
          } else {
            T* kept = static_cast<T*>(counted);
            sum_channels(shape, partial, sums, [=](int64_t c, int64_t at) {
              const C value = counts(c, at, static_cast<C>(g[at]));
              kept[at] = static_cast<T>(value);
              return pair(c, at, value);
            });
          }
        });
  });
}

void batch_norm_backward(const KernelContext&, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                         const void* grad, const double* sums, double count, void* workspace, void* grad_in) {
  const int64_t n = shape.channels;
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    C* memory = static_cast<C*>(workspace);
    const T* x = static_cast<const T*>(in);
    const T* g = static_cast<const T*>(grad);
    T* dx = static_cast<T*>(grad_in);
    const T* weight = static_cast<const T*>(channels.weight);
    // d x = a (g - mean of g - (x - mean) rstd^2 * mean of g (x - mean)), a = weight * rstd.
    const auto factor = [&](int64_t c) {
      return channels.rstd[c] * (weight == nullptr ? 1.0 : static_cast<double>(weight[c]));
    };
    C* factors = memory + 3 * n;
    for (int64_t c = 0; c < n; ++c) factors[c] = static_cast<C>(factor(c));
    visit_mask<T>(n, channels, mask, x, static_cast<const T*>(out), memory, [&](auto counts) {
      if (count == 0) {
        map_channels(shape, [=](int64_t c, int64_t at) {
          dx[at] = static_cast<T>(counts(c, at, static_cast<C>(g[at])) * factors[c]);
        });
        return;
      }
      const Affine<C> rest = make_affine<C>(
          n, channels.mean, memory + 4 * n,
          [&](int64_t c) { return -factor(c) * channels.rstd[c] * channels.rstd[c] * sums[n + c] / count; },
          [&](int64_t c) { return -factor(c) * sums[c] / count; });
      map_channels(shape, [=](int64_t c, int64_t at) {
        dx[at] =
            static_cast<T>(fma_of(counts(c, at, static_cast<C>(g[at])), factors[c], rest(c, static_cast<C>(x[at]))));
      });
    });
  });
}

void batch_norm_parameter_gradient(const KernelContext&, DType dtype, int64_t n, const double* value,
                                   const double* factor, bool accumulate, void* slot) {
  visit_floating_dtype(dtype, [&]<class T>() {
    T* out = static_cast<T*>(slot);
    for (int64_t c = 0; c < n; ++c) {
      const double gradient =
          value[c] * (factor == nullptr ? 1.0 : factor[c]) + (accumulate ? static_cast<double>(out[c]) : 0);
      out[c] = static_cast<T>(static_cast<Compute<T>>(gradient));
    }
  });
}

}  // namespace tandem::inline v0::cpu

// CPU kernels of batch normalization.
//
// Sums run over *pieces* whose sizes depend only on the shape; the float64 sums of pieces are added in order. Within a
// piece, short runs of elements are summed in the compute type and then added to the piece's sums. The input is first
// shifted by approximately its mean, so that a common offset costs no precision: in forward by the mean of some
// elements, in backward by the mean. Per channel, maps have the form (x - shift) * scale + offset for the same reason.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/simd.h>
#include <tandem/ops/norm/norm_functions.h>
#include <tandem/ops/norm/norm_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

/// Elements per piece.
constexpr int64_t kPieceElements = 1 << 15;
/// Number of positions of a channels-last tensor that are summed before they are added to a piece's sums; positions per
/// step; channels per block.
constexpr int64_t kBlock = 64;
constexpr int64_t kRows = 4;
constexpr int64_t kStripe = 256;
/// Elements of a planar row that are summed before they are added to a piece's sums.
constexpr int64_t kRun = 512;
/// Number of elements whose mean is the shift of a channel; and the maximum of (shift - mean)^2 in variances.
constexpr int64_t kSamples = 32;
constexpr double kFarShift = 64;
/// Scratch memory for maps and shifts, in float64 numbers per channel; the sums of pieces follow it.
constexpr int64_t kMapNumbers = 8;

template <class T>
using Compute = Accumulator<T>;

/// Positions of a channels-last tensor, or images of a planar one, per piece.
int64_t piece_length(const BatchNormShape& shape) {
  if (shape.channels_last) return std::max<int64_t>(32, kPieceElements / std::max<int64_t>(1, shape.adjacent()));
  return std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, shape.inner));
}
int64_t num_pieces(const BatchNormShape& shape) {
  const int64_t items = shape.channels_last ? shape.per_channel() : shape.batch, length = piece_length(shape);
  return (items + length - 1) / length;
}

// Loops are written once for both memory orders. With kAlong, the lanes of a V are adjacent channels; otherwise they
// are elements of one channel.

/// values[c] and, with kAlong, the values of the adjacent channels.
template <bool kAlong, class V, class C>
inline __attribute__((always_inline)) V of_channel(const C* values, int64_t c) {
  if constexpr (kAlong) {
    return load_as<V>(values + c);
  } else {
    return broadcast<V>(values[c]);
  }
}

/// Two sums that are accumulated together.
template <class V>
struct Sums {
  V a = {};
  V b = {};
};

/// Adds to a[c] and b[c], c < count, the sums that f.operator()<true, V>(first + c, position, Sums<V>&) accumulates
/// over kCount positions, from `at` on, that are `stride` elements apart.
template <class C, int64_t kCount, class F>
inline __attribute__((always_inline)) void sum_rows(int64_t stride, int64_t at, int64_t first, int64_t count, C* a,
                                                    C* b, F f) {
  for_vecs<C>(
      count, [&]<class V>(int64_t c) __attribute__((always_inline)) {
        Sums<V> part;
#pragma GCC unroll 4
        for (int64_t r = 0; r < kCount; ++r) f.template operator()<true, V>(first + c, at + r * stride + c, part);
        store_as(a + c, load_as<V>(a + c) + part.a);
        store_as(b + c, load_as<V>(b + c) + part.b);
      });
}

/// sums[c] and sums[channels + c] = the sums of f over the positions [begin, end) of a sample, for its channels c; f as
/// above.
template <class C, class F>
void sum_positions(const BatchNormShape& shape, int64_t sample, int64_t begin, int64_t end, double* sums, F f) {
  const int64_t width = shape.adjacent(), last_channel = (sample + 1) * width;
  const int64_t start = sample * width * (shape.per_channel() - 1);  // of channel 0, if positions are counted from 0
  for (int64_t first = sample * width; first < last_channel; first += kStripe) {
    const int64_t count = std::min(kStripe, last_channel - first);
    double *sum_a = sums + first, *sum_b = sums + shape.channels + first;
    std::fill(sum_a, sum_a + count, 0.0);
    std::fill(sum_b, sum_b + count, 0.0);
    for (int64_t row = begin; row < end;) {
      C a[kStripe] = {}, b[kStripe] = {};
      const int64_t last = std::min(end, row + kBlock), offset = start + first;
      for (; row + kRows <= last; row += kRows) sum_rows<C, kRows>(width, row * width + offset, first, count, a, b, f);
      for (; row < last; ++row) sum_rows<C, 1>(width, row * width + offset, first, count, a, b, f);
      for (int64_t c = 0; c < count; ++c) sum_a[c] += static_cast<double>(a[c]);
      for (int64_t c = 0; c < count; ++c) sum_b[c] += static_cast<double>(b[c]);
    }
  }
}

/// The sums that f.operator()<false, V>(c, position, Sums<V>&) accumulates over n positions of one channel.
template <class C, class F>
inline __attribute__((always_inline)) Sums<double> sum_run(int64_t c, int64_t begin, int64_t n, F f) {
  constexpr int64_t kWidth = kVecSize<C>;
  using V = Vec<C>;
  Sums<V> first, second;  // two independent chains hide the latency of additions
  int64_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    f.template operator()<false, V>(c, begin + i, first);
    f.template operator()<false, V>(c, begin + i + kWidth, second);
  }
  if (i + kWidth <= n) {
    f.template operator()<false, V>(c, begin + i, first);
    i += kWidth;
  }
  Sums<C> rest;
  for (; i < n; ++i) f.template operator()<false, C>(c, begin + i, rest);
  return {static_cast<double>(sum_vec(first.a + second.a) + rest.a),
          static_cast<double>(sum_vec(first.b + second.b) + rest.b)};
}

/// sums[0, c] and sums[1, c] = the sums of f over the tensor; f as above, positions in elements.
template <class C, class F>
void sum_channels(const BatchNormShape& shape, double* partial, double* sums, F f) {
  const int64_t channels = shape.channels, length = piece_length(shape), pieces = num_pieces(shape);
  if (shape.channels_last) {
    const int64_t piece_elements = std::min(length, shape.per_channel()) * shape.adjacent();
    const int64_t grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, piece_elements));
    parallel_for(pieces * shape.samples, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t piece = item / shape.samples, sample = item % shape.samples;
        sum_positions<C>(shape, sample, piece * length, std::min(shape.per_channel(), (piece + 1) * length),
                         partial + 2 * piece * channels, f);
      }
    });
  } else {
    const int64_t inner = shape.inner;
    const int64_t grain =
        std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, std::min(length, shape.batch) * inner));
    parallel_for(pieces * channels, grain, [&](int64_t begin, int64_t end) {
      const F g = f;  // a local copy, which no store can alias, so that its members stay in registers
      for (int64_t item = begin; item < end; ++item) {
        const int64_t piece = item / channels, c = item % channels;
        Sums<double> sum;
        for (int64_t image = piece * length; image < std::min(shape.batch, (piece + 1) * length); ++image) {
          for (int64_t i = 0; i < inner; i += kRun) {
            const Sums<double> more = sum_run<C>(c, (image * channels + c) * inner + i, std::min(kRun, inner - i), g);
            sum.a += more.a;
            sum.b += more.b;
          }
        }
        partial[2 * piece * channels + c] = sum.a;
        partial[(2 * piece + 1) * channels + c] = sum.b;
      }
    });
  }
  std::fill(sums, sums + 2 * channels, 0.0);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (int64_t c = 0; c < 2 * channels; ++c) sums[c] += partial[2 * piece * channels + c];
  }
}

/// Calls f(c, position) for all elements. Iterations are independent, so the compiler can vectorize them.
template <class F>
void map_channels(const BatchNormShape& shape, F f) {
  const int64_t channels = shape.channels;
  if (shape.channels_last) {
    const int64_t width = shape.adjacent(), grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, width));
    parallel_for(shape.samples * shape.per_channel(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = shape.samples == 1 ? 0 : row / shape.per_channel() * width;
        TANDEM_IVDEP
        for (int64_t c = 0; c < width; ++c) f(first + c, row * width + c);
      }
    });
  } else {
    const int64_t grain = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, shape.inner));
    parallel_for(shape.batch * channels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t c = row % channels;
        TANDEM_IVDEP
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

  template <bool kAlong, class V>
  inline __attribute__((always_inline)) V at(int64_t c, V x) const {
    return fma_of(x - of_channel<kAlong, V>(shift, c), of_channel<kAlong, V>(scale, c),
                  of_channel<kAlong, V>(offset, c));
  }
};

/// The maps of(c) of all channels; their numbers are stored in `memory`, 3 per channel.
template <class C, class F>
Affine<C> make_affine(int64_t channels, C* memory, F of) {
  for (int64_t c = 0; c < channels; ++c) {
    const functions::ChannelMap<C> map = of(c);
    memory[c] = map.shift;
    memory[channels + c] = map.scale;
    memory[2 * channels + c] = map.offset;
  }
  return {memory, memory + channels, memory + 2 * channels};
}

template <class T, class C>
Affine<C> normalising(int64_t channels, const BatchNormChannels& per, C* memory) {
  return make_affine<C>(channels, memory,
                        [&](int64_t c) { return functions::channel_of<T>(per, c).template normalising<C>(); });
}

/// The effective gradients: `grad`, with kMore plus `more`, or 0 where relu set the result to 0 or to the ceiling.
template <ReluMask kMask, bool kMore, class T>
struct Counted {
  static constexpr bool kIsStored = kMask == ReluMask::kOutput, kIsSum = kMore;
  const T* grad;
  const T* more;
  const T* in;
  const T* out;
  Compute<T> ceiling;
  Affine<Compute<T>> result;

  template <bool kAlong, class V>
  inline __attribute__((always_inline)) V at(int64_t c, int64_t position) const {
    V g = load_as<V>(grad + position);
    if constexpr (kMore) g += load_as<V>(more + position);
    if constexpr (kMask == ReluMask::kNone) return g;
    const V y = kMask == ReluMask::kOutput ? load_as<V>((kMask == ReluMask::kOutput ? out : grad) + position)
                                           : result.template at<kAlong, V>(c, load_as<V>(in + position));
    const V above_zero = y <= V{} ? V{} : g;
    if (ceiling == std::numeric_limits<Compute<T>>::infinity()) return above_zero;
    return y >= broadcast<V>(ceiling) ? V{} : above_zero;
  }
};

/// Calls f(gradients); the numbers of a mask's map are stored in `memory`, 3 per channel.
template <class T, class F>
void visit_mask(int64_t channels, const BatchNormChannels& per, ReluMask mask, const T* grad, const T* more,
                const T* in, const T* out, Compute<T>* memory, F f) {
  const Compute<T> ceiling = static_cast<Compute<T>>(per.ceiling);
  switch (mask) {
    case ReluMask::kNone: return f(Counted<ReluMask::kNone, false, T>{grad, nullptr, in, out, ceiling, {}});
    case ReluMask::kInput:
      return f(
          Counted<ReluMask::kInput, false, T>{grad, nullptr, in, out, ceiling, normalising<T>(channels, per, memory)});
    case ReluMask::kOutput:
      if (more == nullptr) return f(Counted<ReluMask::kOutput, false, T>{grad, nullptr, in, out, ceiling, {}});
      return f(Counted<ReluMask::kOutput, true, T>{grad, more, in, out, ceiling, {}});
  }
}

/// shifts[c] = the mean of the first elements of channel c; `sums` is scratch memory for `channels` numbers.
template <class T>
void sample_means(const BatchNormShape& shape, const T* x, double* sums, Compute<T>* shifts) {
  const int64_t channels = shape.channels;
  const int64_t count = std::min(kSamples, shape.channels_last ? shape.per_channel() : shape.inner);
  std::fill(sums, sums + channels, 0.0);
  if (shape.channels_last) {
    const int64_t width = shape.adjacent();
    for (int64_t sample = 0; sample < shape.samples; ++sample) {
      for (int64_t row = 0; row < count; ++row) {
        const T* from = x + (sample * shape.per_channel() + row) * width;
        TANDEM_IVDEP
        for (int64_t c = 0; c < width; ++c)
          sums[sample * width + c] += static_cast<double>(static_cast<Compute<T>>(from[c]));
      }
    }
  } else {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < count; ++i)
        sums[c] += static_cast<double>(static_cast<Compute<T>>(x[c * shape.inner + i]));
    }
  }
  for (int64_t c = 0; c < channels; ++c) shifts[c] = static_cast<Compute<T>>(sums[c] / static_cast<double>(count));
}

}  // namespace

int64_t batch_norm_workspace_bytes(const KernelContext&, const BatchNormShape& shape) {
  return (kMapNumbers + 2 * num_pieces(shape)) * shape.channels * static_cast<int64_t>(sizeof(double));
}

void batch_norm_moments(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                        void* workspace, double* mean, double* squares, const BatchNormUpdate* update) {
  const int64_t channels = shape.channels;
  visit_floating_dtype(dtype, [&]<class T>() {
    if (shape.per_channel() == 0) {
      std::fill(mean, mean + channels, 0.0);
      std::fill(squares, squares + channels, 0.0);
      return;
    }
    using C = Compute<T>;
    const T* x = static_cast<const T*>(in);
    double* sums = static_cast<double*>(workspace);
    C* shifts = reinterpret_cast<C*>(sums + 2 * channels);
    double* partial = sums + kMapNumbers * channels;
    sample_means(shape, x, sums, shifts);
    const double n = static_cast<double>(shape.per_channel());
    for (int round = 0; round < 2; ++round) {
      sum_channels<C>(
          shape, partial,
          sums, [=]<bool kAlong, class V>(int64_t c, int64_t at, Sums<V> & sum) __attribute__((always_inline)) {
            const V value = load_as<V>(x + at) - of_channel<kAlong, V>(shifts, c);
            sum.a += value;
            sum.b += value * value;
          });
      bool exact = true;
      for (int64_t c = 0; c < channels; ++c) {
        const double shifted_mean = sums[c] / n;
        const double deviations = sums[channels + c] - sums[c] * shifted_mean;
        mean[c] = static_cast<double>(shifts[c]) + shifted_mean;
        squares[c] = deviations < 0 ? 0 : deviations;  // a rounding error; NaN is kept
        exact = exact && !(sums[c] * shifted_mean > kFarShift * deviations);
      }
      if (exact) break;
      // The first elements are not representative: sum again, shifted by the mean.
      for (int64_t c = 0; c < channels; ++c) shifts[c] = static_cast<C>(mean[c]);
    }
  });
  if (update != nullptr) batch_norm_update(context, channels, mean, squares, *update);
}

void batch_norm_join(const KernelContext&, int64_t ranks, int64_t channels, double* gathered, double* mean,
                     double* squares) {
  for (int64_t c = 0; c < channels; ++c) {
    functions::join_moments(ranks, channels, gathered, c, mean + c, squares + c);
  }
}

void batch_norm_update(const KernelContext&, int64_t n, const double* mean, const double* squares,
                       const BatchNormUpdate& update) {
  for (int64_t c = 0; c < n; ++c) functions::update_channel(update, c, mean[c], squares[c]);
}

int64_t batch_norm_mask_bytes(const KernelContext&, DType, const BatchNormShape&, const void*, const void*,
                              const void*) {
  return 0;
}

void batch_norm(const KernelContext&, DType dtype, const BatchNormShape& shape, const BatchNormChannels& channels,
                bool relu, const void* in, const void* residual, void* workspace, void* out, void*) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const Affine<C> result = normalising<T>(shape.channels, channels, static_cast<C*>(workspace));
    const T* x = static_cast<const T*>(in);
    const T* r = static_cast<const T*>(residual);
    T* y = static_cast<T*>(out);
    if (r != nullptr) {
      map_channels(shape, [=](int64_t c, int64_t at) {
        const C value = result.template at<false>(c, static_cast<C>(x[at])) + static_cast<C>(r[at]);
        y[at] = static_cast<T>(value < C(0) ? C(0) : value);
      });
    } else if (relu) {
      const C ceiling = static_cast<C>(channels.ceiling);
      map_channels(shape, [=](int64_t c, int64_t at) {
        const C value = result.template at<false>(c, static_cast<C>(x[at]));
        const C positive = value < C(0) ? C(0) : value;
        y[at] = static_cast<T>(positive > ceiling ? ceiling : positive);
      });
    } else {
      map_channels(shape, [=](int64_t c, int64_t at) {
        y[at] = static_cast<T>(result.template at<false>(c, static_cast<C>(x[at])));
      });
    }
  });
}

void batch_norm_backward_sums(const KernelContext&, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void*, const void* grad, const void* more, void* workspace, double* sums,
                              void* counted, const BatchNormParameters& parameters) {
  const int64_t n = shape.channels;
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    const T* x = static_cast<const T*>(in);
    C* memory = static_cast<C*>(workspace);
    C* means = memory + 3 * n;
    double* partial = static_cast<double*>(workspace) + kMapNumbers * n;
    for (int64_t c = 0; c < n; ++c) means[c] = static_cast<C>(channels.mean[c]);
    const T *g = static_cast<const T*>(grad), *added = static_cast<const T*>(more), *y = static_cast<const T*>(out);
    visit_mask(n, channels, mask, g, added, x, y, memory, [&](auto counts) {
      T* kept = static_cast<T*>(counted);
      sum_channels<C>(
          shape, partial,
          sums, [=]<bool kAlong, class V>(int64_t c, int64_t at, Sums<V> & sum) __attribute__((always_inline)) {
            V gradient = counts.template at<kAlong, V>(c, at);
            if constexpr (decltype(counts)::kIsStored) store_as(kept + at, gradient);
            if constexpr (decltype(counts)::kIsSum && kIsHalf<T>) gradient = load_as<V>(kept + at);  // rounded
            sum.a += gradient;
            sum.b += gradient * (load_as<V>(x + at) - of_channel<kAlong, V>(means, c));
          });
    });
    for (int64_t c = 0; c < n; ++c) sums[n + c] -= sums[c] * (channels.mean[c] - static_cast<double>(means[c]));
  });
  for (int64_t c = 0; c < n; ++c)
    functions::store_parameter_gradients(parameters, c, sums[c], sums[n + c] * channels.rstd[c]);
}

void batch_norm_parameters(const KernelContext&, int64_t n, const double* sum, const double* sum_along,
                           const BatchNormParameters& parameters) {
  for (int64_t c = 0; c < n; ++c) functions::store_parameter_gradients(parameters, c, sum[c], sum_along[c]);
}

void batch_norm_backward(const KernelContext&, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, bool relu, const void* in, const void* grad,
                         const double* sums, double count, void* workspace, void* grad_in) {
  const int64_t n = shape.channels;
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Compute<T>;
    C* memory = static_cast<C*>(workspace);
    const T* x = static_cast<const T*>(in);
    T* dx = static_cast<T*>(grad_in);
    C *factors = memory + 3 * n, *weights = memory + 7 * n;
    for (int64_t c = 0; c < n; ++c) {
      const functions::BatchNormChannel channel = functions::channel_of<T>(channels, c);
      factors[c] = static_cast<C>(channel.gradient_factor());
      weights[c] = static_cast<C>(channel.gradient_weight());
    }
    const ReluMask mask = relu ? ReluMask::kInput : ReluMask::kNone;
    visit_mask<T>(n, channels, mask, static_cast<const T*>(grad), nullptr, x, nullptr, memory, [&](auto counts) {
      if (count == 0) {
        map_channels(shape, [=](int64_t c, int64_t at) {
          dx[at] = static_cast<T>(counts.template at<false, C>(c, at) * factors[c]);
        });
        return;
      }
      const Affine<C> subtracted = make_affine<C>(n, memory + 4 * n, [&](int64_t c) {
        return functions::channel_of<T>(channels, c).template subtracted_from_gradient<C>(sums[c], sums[n + c], count);
      });
      map_channels(shape, [=](int64_t c, int64_t at) {
        const C gradient = counts.template at<false, C>(c, at) * weights[c];
        dx[at] = static_cast<T>((gradient - subtracted.template at<false>(c, static_cast<C>(x[at]))) * factors[c]);
      });
    });
  });
}

}}}  // namespace tandem::v0::cpu

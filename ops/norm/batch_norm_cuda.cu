// GPU kernels of batch normalization.
//
// A block processes a *piece* of one channel, or in channels-last memory of a few adjacent channels, so that a thread
// computes the numbers of its channel once and keeps them in registers; adjacent threads access adjacent addresses.
// Sums are in float64: per thread, per block, and over pieces, whose sizes depend only on the shape.
//
// In float64 the squares of float32 numbers are exact, and a mean of 10^4 deviations loses only 8 of 16 digits. So
// float32 and half types are read once for both moments; float64 is read a second time, for the deviations from the
// mean.
#include <bit>

#include <tandem/base/math.h>
#include <tandem/ops/norm/norm_functions.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::BatchNormChannel;
using functions::channel_of;
using functions::ChannelMap;

/// Two sums that are accumulated together.
struct Sums {
  double a;
  double b;
};

/// The assignment of threads to elements of a tensor: `width` adjacent threads access adjacent elements; a block has
/// threads / width such rows.
struct ThreadLayout {
  BatchNormShape shape;
  int width;       // a power of two
  int threads;     // per block, a power of two
  int64_t units;   // channels, or groups of `width` channels
  int64_t images;  // per piece: images of a planar tensor, positions of a channels-last one
  int64_t run;     // elements of each image in a piece of a planar tensor
  int64_t pieces;

  explicit ThreadLayout(const BatchNormShape& of) : shape(of) {
    // Enough blocks for a GPU if the tensor is large enough.
    const int64_t length = std::clamp<int64_t>(shape.per_channel() * shape.channels / 1024, 1024, 8192);
    const int64_t along = std::clamp<int64_t>(shape.channels_last ? shape.channels : shape.inner, 1, kBlock);
    width = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(along)));
    if (shape.channels_last) {
      width = std::min(width, 64);
      units = ceil_div(shape.channels, width);
      images = length / width;
      run = 1;
      pieces = ceil_div(shape.per_channel(), images);
      threads = threads_for(width * std::min(images, shape.per_channel()));
    } else {
      units = shape.channels;
      run = std::clamp<int64_t>(shape.inner, 1, length);
      images = length / run;
      pieces = ceil_div(shape.batch, images) * ceil_div(shape.inner, run);
      threads = threads_for(run * std::min(images, shape.batch));
    }
    pieces = std::max<int64_t>(pieces, 1);
  }

  /// Threads for a piece of that many elements.
  int threads_for(int64_t elements) const {
    const int64_t some = std::clamp<int64_t>(elements, std::max(width, kWarp), kBlock);
    return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(some)));
  }
  TANDEM_HOST_DEVICE int64_t num_blocks() const { return units * pieces; }
  __device__ int64_t piece(int64_t block) const { return block / units; }
  /// The channel of the calling thread; may be >= channels.
  __device__ int64_t channel(int64_t block) const {
    return shape.channels_last ? block % units * width + threadIdx.x % width : block % units;
  }
  /// Calls f(offset) for the calling thread's elements of channel c in the block's piece.
  template <class F>
  __device__ void for_each(int64_t block, int64_t c, F f) const {
    const int64_t row = threadIdx.x / width, rows = threads / width;
    if (shape.channels_last) {
      const int64_t begin = piece(block) * images, end = min(begin + images, shape.per_channel());
      for (int64_t position = begin + row; position < end; position += rows) f(position * shape.channels + c);
      return;
    }
    const int64_t runs = max(int64_t{1}, (shape.inner + run - 1) / run);
    const int64_t first_image = piece(block) / runs * images, last_image = min(first_image + images, shape.batch);
    const int64_t begin = piece(block) % runs * run, end = min(begin + run, shape.inner);
    for (int64_t image = first_image + row; image < last_image; image += rows) {
      const int64_t start = (image * shape.channels + c) * shape.inner;
      for (int64_t i = begin + threadIdx.x % width; i < end; i += width) f(start + i);
    }
  }
};

/// Calls f(f.numbers(c), offset) for all elements.
template <class F>
__global__ void map_kernel(ThreadLayout layout, F f) {
  for (int64_t block = blockIdx.x; block < layout.num_blocks(); block += gridDim.x) {
    const int64_t c = layout.channel(block);
    if (c >= layout.shape.channels) continue;
    const auto numbers = f.numbers(c);
    layout.for_each(block, c, [&](int64_t at) { f(numbers, at); });
  }
}

template <class F>
void map(const KernelContext& context, const BatchNormShape& shape, F f) {
  if (shape.per_channel() * shape.channels == 0) return;
  const ThreadLayout layout(shape);
  launch_kernel(context, map_kernel<F>, blocks_for(layout.num_blocks(), 1), layout.threads, 0, layout, f);
}

/// partial[0, c, piece] and partial[1, c, piece] = the sums that f(f.numbers(c), offset, sums) accumulates.
template <class F>
__global__ void sum_kernel(ThreadLayout layout, F f, double* partial) {
  __shared__ double a[kBlock], b[kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  const int first =
      layout.shape.channels_last ? layout.width : 1;  // the first `first` threads hold the sums of channels at the end
  for (int64_t block = blockIdx.x; block < layout.num_blocks(); block += gridDim.x) {
    const int64_t c = layout.channel(block);
    Sums sums = {0, 0};
    if (c < layout.shape.channels) {
      const auto numbers = f.numbers(c);
      layout.for_each(block, c, [&](int64_t at) { f(numbers, at, sums); });
    }
    __syncthreads();  // all reads of the previous iteration are complete
    a[thread] = sums.a;
    b[thread] = sums.b;
    for (int distance = layout.threads / 2; distance >= first; distance /= 2) {
      __syncthreads();
      if (thread >= distance) continue;
      a[thread] += a[thread + distance];
      b[thread] += b[thread + distance];
    }
    if (thread >= first || c >= layout.shape.channels) continue;
    const int64_t at = c * layout.pieces + layout.piece(block);
    partial[at] = a[thread];
    partial[layout.shape.channels * layout.pieces + at] = b[thread];
  }
}

/// Calls finish(c, sums over the pieces), with one warp per channel.
template <class Finish>
__global__ void join_kernel(int64_t channels, int64_t pieces, const double* partial, Finish finish) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t c = thread_index() / kWarp; c < channels; c += num_threads() / kWarp) {
    Sums sums = {0, 0};
    for (int64_t piece = lane; piece < pieces; piece += kWarp) {
      sums.a += partial[c * pieces + piece];
      sums.b += partial[(channels + c) * pieces + piece];
    }
    sums.a = warp_reduce(sums.a, Plus());
    sums.b = warp_reduce(sums.b, Plus());
    if (lane == 0) finish(c, sums);
  }
}

template <class F, class Finish>
void sum(const KernelContext& context, const BatchNormShape& shape, void* workspace, F f, Finish finish) {
  if (shape.channels == 0) return;
  const ThreadLayout layout(shape);
  double* partial = static_cast<double*>(workspace);
  launch_kernel(context, sum_kernel<F>, blocks_for(layout.num_blocks(), 1), layout.threads, 0, layout, f, partial);
  const int warps = static_cast<int>(std::min<int64_t>(shape.channels, kBlock / kWarp));
  launch_kernel(context, join_kernel<Finish>, blocks_for(shape.channels, warps), warps * kWarp, 0, shape.channels,
                layout.pieces, partial, finish);
}

/// Sums of x - shift and of its square; a null shift is 0.
template <class T>
struct AddMoments {
  const T* in;
  const double* shift;

  __device__ double numbers(int64_t c) const { return shift == nullptr ? 0 : shift[c]; }
  __device__ void operator()(double from, int64_t at, Sums& sums) const {
    const double value = static_cast<double>(in[at]) - from;
    sums.a += value;
    sums.b += value * value;
  }
};

struct StoreMoments {
  double count;
  const double* shift;  // may be the same memory as mean
  double* mean;
  double* squares;

  __device__ void operator()(int64_t c, Sums sums) const {
    const double shifted_mean = sums.a / count;
    const double deviations = sums.b - sums.a * shifted_mean;
    mean[c] = (shift == nullptr ? 0 : shift[c]) + shifted_mean;
    squares[c] = deviations < 0 ? 0 : deviations;  // a rounding error; NaN is kept
  }
};

template <class T>
struct Normalise {
  using C = Accumulator<T>;
  BatchNormChannels channels;
  bool relu;
  const T* in;
  const T* residual;
  T* out;

  __device__ ChannelMap<C> numbers(int64_t c) const { return channel_of<T>(channels, c).template normalising<C>(); }
  __device__ void operator()(const ChannelMap<C>& result, int64_t at) const {
    C value = result(static_cast<C>(in[at]));
    if (residual != nullptr) value += static_cast<C>(residual[at]);
    out[at] = static_cast<T>(relu && value < C{0} ? C{0} : value);
  }
};

/// The effective gradients: `grad`, or 0 where relu set the result to 0.
template <class T>
struct Counted {
  using C = Accumulator<T>;
  ReluMask mask;
  const T* in;
  const T* out;
  const T* grad;

  __device__ C at(const ChannelMap<C>& result, int64_t i) const {
    const C g = static_cast<C>(grad[i]);
    if (mask == ReluMask::kNone) return g;
    const C y = mask == ReluMask::kOutput ? static_cast<C>(out[i]) : result(static_cast<C>(in[i]));
    return y <= C{0} ? C{0} : g;
  }
};

template <class T>
struct AddGradients {
  using C = Accumulator<T>;
  BatchNormChannels channels;
  Counted<T> gradients;
  T* counted;  // null: not stored

  struct Numbers {
    ChannelMap<C> result;
    double mean;
  };
  __device__ Numbers numbers(int64_t c) const {
    const BatchNormChannel channel = channel_of<T>(channels, c);
    return {channel.normalising<C>(), channel.mean};
  }
  __device__ void operator()(const Numbers& of, int64_t at, Sums& sums) const {
    const C g = gradients.at(of.result, at);
    if (counted != nullptr) counted[at] = static_cast<T>(g);
    sums.a += static_cast<double>(g);
    sums.b += static_cast<double>(g) * (static_cast<double>(gradients.in[at]) - of.mean);
  }
};

struct StoreSums {
  int64_t channels;
  double* sums;
  __device__ void operator()(int64_t c, Sums of) const {
    sums[c] = of.a;
    sums[channels + c] = of.b;
  }
};

template <class T>
struct InputGradient {
  using C = Accumulator<T>;
  BatchNormChannels channels;
  Counted<T> gradients;
  const double* sums;
  int64_t num_channels;
  double count;
  T* grad_in;

  struct Numbers {
    ChannelMap<C> result;
    ChannelMap<C> subtracted;
    C factor;
  };
  __device__ Numbers numbers(int64_t c) const {
    const BatchNormChannel channel = channel_of<T>(channels, c);
    Numbers of = {channel.normalising<C>(), {}, static_cast<C>(channel.factor())};
    if (count != 0) of.subtracted = channel.subtracted_from_gradient<C>(sums[c], sums[num_channels + c], count);
    return of;
  }
  __device__ void operator()(const Numbers& of, int64_t at) const {
    const C g = gradients.at(of.result, at);
    grad_in[at] = static_cast<T>((count == 0 ? g : g - of.subtracted(static_cast<C>(gradients.in[at]))) * of.factor);
  }
};

struct Join {
  int64_t ranks;
  int64_t channels;
  const double* gathered;
  double* mean;
  double* squares;
  __device__ void operator()(int64_t c) const {
    const functions::JoinedMoments all = functions::joined_moments(ranks, channels, gathered, c);
    mean[c] = all.mean;
    squares[c] = all.squares;
  }
};

struct Rstd {
  double divisor;
  double eps;
  const double* squares;
  double* rstd;
  __device__ void operator()(int64_t c) const { rstd[c] = functions::rstd_of(squares[c], divisor, eps); }
};

template <class T>
struct MoveRunning {
  double momentum;
  double divisor;
  const double* batch;
  T* running;
  __device__ void operator()(int64_t c) const {
    const double value = functions::updated(static_cast<double>(running[c]), momentum, batch[c] / divisor);
    running[c] = static_cast<T>(static_cast<Accumulator<T>>(value));
  }
};

template <class T>
struct ParameterGradient {
  const double* value;
  const double* factor;
  bool accumulate;
  T* slot;
  __device__ void operator()(int64_t c) const {
    const double gradient =
        value[c] * (factor == nullptr ? 1.0 : factor[c]) + (accumulate ? static_cast<double>(slot[c]) : 0);
    slot[c] = static_cast<T>(static_cast<Accumulator<T>>(gradient));
  }
};

}  // namespace

int64_t batch_norm_workspace_bytes(const KernelContext&, const BatchNormShape& shape) {
  return 2 * ThreadLayout(shape).pieces * shape.channels * static_cast<int64_t>(sizeof(double));
}

void batch_norm_moments(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                        void* workspace, double* mean, double* squares) {
  const double count = static_cast<double>(shape.per_channel());
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(in);
    sum(context, shape, workspace, AddMoments<T>{x, nullptr}, StoreMoments{count, nullptr, mean, squares});
    if constexpr (sizeof(T) == sizeof(double)) {
      sum(context, shape, workspace, AddMoments<T>{x, mean}, StoreMoments{count, mean, mean, squares});
    }
  });
}

void batch_norm_join(const KernelContext& context, int64_t ranks, int64_t channels, const double* gathered,
                     double* mean, double* squares) {
  for_each_index(context, channels, Join{ranks, channels, gathered, mean, squares});
}

void batch_norm_rstd(const KernelContext& context, int64_t n, double divisor, double eps, const double* squares,
                     double* rstd) {
  for_each_index(context, n, Rstd{divisor, eps, squares, rstd});
}

void batch_norm_running(const KernelContext& context, DType dtype, int64_t n, double momentum, double divisor,
                        const double* batch, void* running) {
  visit_floating_dtype(dtype, [&]<class T>() {
    for_each_index(context, n, MoveRunning<T>{momentum, divisor, batch, static_cast<T*>(running)});
  });
}

void batch_norm(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                const BatchNormChannels& channels, bool relu, const void* in, const void* residual, void*, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    map(context, shape,
        Normalise<T>{channels, relu, static_cast<const T*>(in), static_cast<const T*>(residual), static_cast<T*>(out)});
  });
}

void batch_norm_backward_sums(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void* grad, void* workspace, double* sums, void* counted) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const Counted<T> gradients = {mask, static_cast<const T*>(in), static_cast<const T*>(out),
                                  static_cast<const T*>(grad)};
    sum(context, shape, workspace, AddGradients<T>{channels, gradients, static_cast<T*>(counted)},
        StoreSums{shape.channels, sums});
  });
}

void batch_norm_backward(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                         const void* grad, const double* sums, double count, void*, void* grad_in) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const Counted<T> gradients = {mask, static_cast<const T*>(in), static_cast<const T*>(out),
                                  static_cast<const T*>(grad)};
    map(context, shape, InputGradient<T>{channels, gradients, sums, shape.channels, count, static_cast<T*>(grad_in)});
  });
}

void batch_norm_parameter_gradient(const KernelContext& context, DType dtype, int64_t n, const double* value,
                                   const double* factor, bool accumulate, void* slot) {
  visit_floating_dtype(dtype, [&]<class T>() {
    for_each_index(context, n, ParameterGradient<T>{value, factor, accumulate, static_cast<T*>(slot)});
  });
}

}}}  // namespace tandem::v0::cuda

// GPU kernels of batch normalization.
//
// A block processes a *piece* of one channel, or in channels-last memory of adjacent channels, so that it computes the
// numbers of its channels once, and a thread keeps those of its own channels in registers; adjacent threads access
// adjacent addresses. In channels-last memory a thread has kPack channels, which it loads and stores together, 16 bytes
// if possible, and it loads F::kAhead positions before it uses the first. Sums are in float64: per thread, per block,
// and over pieces, whose sizes depend only on the shape and the alignment. Of half types a thread sums its positions of
// a piece, at most 64, in float32.
//
// In float64 the squares of float32 numbers are exact, and a mean of 10^4 deviations loses only 8 of 16 digits; the
// same is true of half types in float32. So these types are read once for both moments; float64 is read a second time,
// for the deviations from the mean.
#include <algorithm>
#include <bit>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/ops/norm/norm_functions.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/packed.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::BatchNormChannel;
using functions::channel_of;
using functions::ChannelMap;

constexpr int kMaxWidth = 64;  // of a channels-last tensor

/// Two sums that are accumulated together.
struct Sums {
  double a;
  double b;
};

/// The assignment of threads to elements of a tensor: `width` adjacent threads access adjacent elements; a block has
/// threads / width such rows.
struct ThreadLayout {
  BatchNormShape shape;
  int pack;          // channels per thread
  int width;         // a power of two
  int threads;       // per block, a power of two
  int64_t adjacent;  // channels at adjacent addresses in a channels-last tensor
  int64_t stripes;   // of width * pack channels in `adjacent`
  int64_t units;     // stripes of all samples, or channels of a planar tensor
  int64_t images;    // per piece: images of a planar tensor, positions of a channels-last one
  int64_t run;       // elements of each image in a piece of a planar tensor
  int64_t pieces;

  /// More than one channel per thread: only for channels-last tensors.
  ThreadLayout(const BatchNormShape& of, int channels_per_thread)
      : shape(of), pack(channels_per_thread), adjacent(of.adjacent()) {
    // Enough blocks for a GPU if the tensor is large enough.
    const int64_t length = std::clamp<int64_t>(shape.per_channel() * shape.channels / 1024 / pack, 1024, 8192);
    const int64_t row = shape.channels_last ? ceil_div<int64_t>(adjacent, pack) : shape.inner;
    width = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(row, 1, kBlock))));
    if (shape.channels_last) {
      width = std::min(width, kMaxWidth);
      stripes = ceil_div<int64_t>(adjacent, width * pack);
      units = stripes * shape.samples;
      images = length / width;
      run = 1;
      pieces = ceil_div(shape.per_channel(), images);
      threads = threads_for(width * std::min(images, shape.per_channel()));
    } else {
      stripes = units = shape.channels;
      run = std::clamp<int64_t>(shape.inner, 1, length);
      images = length / run;
      pieces = ceil_div(shape.batch, images) * ceil_div(shape.inner, run);
      threads = threads_for(run * std::min(images, shape.batch));
    }
    pieces = std::max<int64_t>(pieces, 1);
  }

  /// Threads for a piece of that many accesses.
  int threads_for(int64_t accesses) const {
    const int64_t some = std::clamp<int64_t>(accesses, std::max(width, kWarp), kBlock);
    return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(some)));
  }
  TANDEM_HOST_DEVICE int64_t num_blocks() const { return units * pieces; }
  __device__ int64_t piece(int64_t block) const { return block / units; }
  __device__ int64_t sample(int64_t block) const { return shape.samples == 1 ? 0 : block % units / stripes; }
  /// The first channel of a block, and of the calling thread, which may be >= end_channel.
  __device__ int64_t first_channel(int64_t block) const {
    if (!shape.channels_last) return block % units;
    const int64_t s = sample(block);
    return s * adjacent + (block % units - s * stripes) * (width * pack);
  }
  __device__ int64_t channel(int64_t block) const {
    return first_channel(block) + (shape.channels_last ? threadIdx.x % width * pack : 0);
  }
  /// The end of the channels of a block's sample.
  __device__ int64_t end_channel(int64_t block) const {
    return shape.channels_last ? (sample(block) + 1) * adjacent : shape.channels;
  }
  /// Number of channels of a block.
  __device__ int num_channels(int64_t block) const {
    const int64_t most = shape.channels_last ? width * pack : 1;
    return static_cast<int>(min(most, end_channel(block) - first_channel(block)));
  }
  /// Calls use(offset, load(offset)) for the calling thread's elements of channel c, or of the channels from c on, in
  /// the block's piece.
  template <int kAhead, class Load, class Use>
  __device__ void for_each(int64_t block, int64_t c, const Load& load, const Use& use) const {
    const int64_t row = threadIdx.x / width, rows = threads / width;
    if (shape.channels_last) {
      const int64_t begin = piece(block) * images, end = min(begin + images, shape.per_channel());
      const int64_t step = rows * adjacent;
      int64_t position = begin + row,
              at = position * adjacent + c + sample(block) * adjacent * (shape.per_channel() - 1);
      for (; position + (kAhead - 1) * rows < end; position += kAhead * rows, at += kAhead * step) {
        decltype(load(at)) loaded[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) loaded[i] = load(at + i * step);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) use(at + i * step, loaded[i]);
      }
#pragma unroll 1
      for (; position < end; position += rows, at += step) use(at, load(at));
      return;
    }
    const int64_t runs = max(int64_t{1}, (shape.inner + run - 1) / run);
    const int64_t first_image = piece(block) / runs * images, last_image = min(first_image + images, shape.batch);
    const int64_t begin = piece(block) % runs * run, end = min(begin + run, shape.inner);
    for (int64_t image = first_image + row; image < last_image; image += rows) {
      const int64_t start = (image * shape.channels + c) * shape.inner;
      for (int64_t i = begin + threadIdx.x % width; i < end; i += width) use(start + i, load(start + i));
    }
  }
};

/// Calls f with the number of channels per thread, as std::integral_constant: 16 bytes, or 1 if the memory is
/// not channels-last or not aligned.
template <class T, class F>
void with_pack(const BatchNormShape& shape, std::initializer_list<const void*> data, const F& f) {
  constexpr int kPack = static_cast<int>(16 / sizeof(T));
  const bool is_packed = shape.channels_last && shape.adjacent() % kPack == 0 &&
                         std::all_of(data.begin(), data.end(), is_aligned_for_packs);
  if (is_packed) {
    f(std::integral_constant<int, kPack>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

/// The numbers of F for the calling thread's channels, which must not be read if the thread has no channels. Must be
/// constructed by all threads of the block, which compute the numbers of a channel once.
template <class F, int kPack>
struct ChannelNumbers {
  typename F::Numbers of[kPack];
  __device__ ChannelNumbers(const F& f, const ThreadLayout& layout, int64_t block) {
    __shared__ typename F::Numbers of_block[kPack][kMaxWidth];
    const int64_t first = layout.first_channel(block);
    const int channels = layout.num_channels(block), own = static_cast<int>(layout.channel(block) - first);
    __syncthreads();  // all reads of the previous iteration are complete
    for (int i = static_cast<int>(threadIdx.x); i < channels; i += layout.threads)
      of_block[i % kPack][i / kPack] = f.numbers(first + i);
    __syncthreads();
    if (own >= channels) return;
#pragma unroll
    for (int v = 0; v < kPack; ++v) of[v] = of_block[v][own / kPack];
  }
};

/// Calls f(numbers, offset, loaded) for all packs of elements.
template <class F, int kPack>
__global__ void __launch_bounds__(kBlock, F::kBlocks) map_kernel(ThreadLayout layout, F f) {
  for (int64_t block = blockIdx.x; block < layout.num_blocks(); block += gridDim.x) {
    const ChannelNumbers<F, kPack> numbers(f, layout, block);
    const int64_t c = layout.channel(block);
    if (c >= layout.end_channel(block)) continue;
    layout.for_each<F::kAhead>(
        block, c, [&](int64_t at) { return f.template load<kPack>(at); },
        [&](int64_t at, const auto& loaded) { f(numbers.of, at, loaded); });
  }
}

template <int kPack, class F>
void map(const KernelContext& context, const BatchNormShape& shape, F f) {
  if (shape.per_channel() * shape.channels == 0) return;
  const ThreadLayout layout(shape, kPack);
  launch_kernel(context, map_kernel<F, kPack>, blocks_for(layout.num_blocks(), 1), layout.threads, 0, layout, f);
}

/// partial[0, c, piece] and partial[1, c, piece] = the sums that f(numbers, offset, loaded, a, b) accumulates.
template <class F, int kPack>
__global__ void __launch_bounds__(kBlock, F::kBlocks) sum_kernel(ThreadLayout layout, F f, double* partial) {
  __shared__ double totals[2][kBlock * kPack];
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = layout.shape.channels_last ? layout.width : 1;  // sums of a row of threads that stay apart
  for (int64_t block = blockIdx.x; block < layout.num_blocks(); block += gridDim.x) {
    const ChannelNumbers<F, kPack> numbers(f, layout, block);
    const int64_t c = layout.channel(block);
    typename F::Run a[kPack] = {}, b[kPack] = {};
    if (c < layout.end_channel(block)) {
      layout.for_each<F::kAhead>(
          block, c, [&](int64_t at) { return f.template load<kPack>(at); },
          [&](int64_t at, const auto& loaded) { f(numbers.of, at, loaded, a, b); });
    }
    // totals[.][row][v][column], so that a warp writes consecutive numbers.
    const int row = thread / columns, rows = layout.threads / columns;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      totals[0][(row * kPack + v) * columns + thread % columns] = static_cast<double>(a[v]);
      totals[1][(row * kPack + v) * columns + thread % columns] = static_cast<double>(b[v]);
    }
    for (int half = rows / 2; half > 0; half /= 2) {
      __syncthreads();
      for (int i = thread; i < half * kPack * columns; i += layout.threads) {
        totals[0][i] += totals[0][i + half * kPack * columns];
        totals[1][i] += totals[1][i + half * kPack * columns];
      }
    }
    __syncthreads();
    for (int i = thread; i < kPack * columns; i += layout.threads) {
      const int64_t channel = layout.first_channel(block) + i % columns * kPack + i / columns;
      if (channel >= layout.end_channel(block)) continue;
      const int64_t at = channel * layout.pieces + layout.piece(block);
      partial[at] = totals[0][i];
      partial[layout.shape.channels * layout.pieces + at] = totals[1][i];
    }
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

template <int kPack, class F, class Finish>
void sum(const KernelContext& context, const BatchNormShape& shape, void* workspace, F f, Finish finish) {
  if (shape.channels == 0) return;
  const ThreadLayout layout(shape, kPack);
  double* partial = static_cast<double*>(workspace);
  launch_kernel(context, sum_kernel<F, kPack>, blocks_for(layout.num_blocks(), 1), layout.threads, 0, layout, f,
                partial);
  const int warps = static_cast<int>(std::min<int64_t>(shape.channels, kBlock / kWarp));
  launch_kernel(context, join_kernel<Finish>, blocks_for(shape.channels, warps), warps * kWarp, 0, shape.channels,
                layout.pieces, partial, finish);
}

/// The type in which a thread sums its positions of a piece.
template <class T>
using RunOf = std::conditional_t<kIsHalf<T>, float, double>;

/// Sums of x - shift and of its square; a null shift is 0.
template <class T>
struct AddMoments {
  using Run = RunOf<T>;
  using Numbers = Run;
  static constexpr int kBlocks = 3, kAhead = 4;
  const T* in;
  const double* shift;

  __device__ Numbers numbers(int64_t c) const { return shift == nullptr ? Run{0} : static_cast<Run>(shift[c]); }
  template <int kPack>
  __device__ Pack<T, kPack> load(int64_t at) const {
    return load_pack<kPack>(in + at, kPack);
  }
  template <int kPack>
  __device__ void operator()(const Numbers (&from)[kPack], int64_t, const Pack<T, kPack>& x, Run (&a)[kPack],
                             Run (&b)[kPack]) const {
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const Run value = static_cast<Run>(x.values[v]) - from[v];
      a[v] += value;
      b[v] += value * value;
    }
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
  using Numbers = ChannelMap<C>;
  template <int kPack>
  struct Inputs {
    Pack<T, kPack> x, added;
  };
  static constexpr int kBlocks = 3, kAhead = 2;
  BatchNormChannels channels;
  bool relu;
  const T* in;
  const T* residual;
  T* out;

  __device__ Numbers numbers(int64_t c) const { return channel_of<T>(channels, c).template normalising<C>(); }
  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    Inputs<kPack> inputs = {load_pack<kPack>(in + at, kPack), {}};
    if (residual != nullptr) inputs.added = load_pack<kPack>(residual + at, kPack);
    return inputs;
  }
  template <int kPack>
  __device__ void operator()(const Numbers (&result)[kPack], int64_t at, const Inputs<kPack>& inputs) const {
    const C ceiling = static_cast<C>(channels.ceiling);
    Pack<T, kPack> results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      C value = result[v](static_cast<C>(inputs.x.values[v]));
      if (residual != nullptr) value += static_cast<C>(inputs.added.values[v]);
      if (relu && value < C{0}) value = C{0};
      if (relu && value > ceiling) value = ceiling;
      results.values[v] = static_cast<T>(value);
    }
    store_pack(out + at, results, kPack);
  }
};

/// The effective gradients: `grad`, or 0 where relu set the result to 0 or to the ceiling.
template <class T>
struct Counted {
  using C = Accumulator<T>;
  template <int kPack>
  struct Inputs {
    Pack<T, kPack> x, grad, out;
  };
  ReluMask mask;
  C ceiling;
  const T* in;
  const T* out;
  const T* grad;

  template <int kPack>
  __device__ Inputs<kPack> load(int64_t at) const {
    Inputs<kPack> inputs = {load_pack<kPack>(in + at, kPack), load_pack<kPack>(grad + at, kPack), {}};
    if (mask == ReluMask::kOutput) inputs.out = load_pack<kPack>(out + at, kPack);
    return inputs;
  }
  /// The gradient of element v of a pack; the map gives its result without relu.
  template <int kPack>
  __device__ C operator()(const Inputs<kPack>& inputs, int v, const ChannelMap<C>& result) const {
    const C gradient = static_cast<C>(inputs.grad.values[v]);
    if (mask == ReluMask::kNone) return gradient;
    const C of =
        mask == ReluMask::kOutput ? static_cast<C>(inputs.out.values[v]) : result(static_cast<C>(inputs.x.values[v]));
    return of <= C{0} || of >= ceiling ? C{0} : gradient;
  }
};

template <class T>
struct AddGradients {
  using C = Accumulator<T>;
  using Run = RunOf<T>;
  static constexpr int kBlocks = 2, kAhead = 2;
  BatchNormChannels channels;
  Counted<T> gradients;
  T* counted;  // null: not stored

  struct alignas(16) Numbers {
    ChannelMap<C> result;
    Run mean;
  };
  __device__ Numbers numbers(int64_t c) const {
    const BatchNormChannel channel = channel_of<T>(channels, c);
    return {channel.normalising<C>(), static_cast<Run>(channel.mean)};
  }
  template <int kPack>
  __device__ auto load(int64_t at) const {
    return gradients.template load<kPack>(at);
  }
  template <int kPack, class Inputs>
  __device__ void operator()(const Numbers (&of)[kPack], int64_t at, const Inputs& inputs, Run (&a)[kPack],
                             Run (&b)[kPack]) const {
    Pack<T, kPack> stored;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const C g = gradients(inputs, v, of[v].result);
      stored.values[v] = static_cast<T>(g);
      a[v] += static_cast<Run>(g);
      b[v] += static_cast<Run>(g) * (static_cast<Run>(inputs.x.values[v]) - of[v].mean);
    }
    if (counted != nullptr) store_pack(counted + at, stored, kPack);
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
  static constexpr int kBlocks = 2, kAhead = 2;
  BatchNormChannels channels;
  Counted<T> gradients;
  const double* sums;
  int64_t num_channels;
  double count;
  T* grad_in;

  struct alignas(16) Numbers {
    ChannelMap<C> result;
    ChannelMap<C> subtracted;
    C weight;
    C factor;
  };
  __device__ Numbers numbers(int64_t c) const {
    const BatchNormChannel channel = channel_of<T>(channels, c);
    Numbers of = {channel.normalising<C>(),
                  {},
                  static_cast<C>(channel.gradient_weight()),
                  static_cast<C>(channel.gradient_factor())};
    if (count != 0) of.subtracted = channel.subtracted_from_gradient<C>(sums[c], sums[num_channels + c], count);
    return of;
  }
  template <int kPack>
  __device__ auto load(int64_t at) const {
    return gradients.template load<kPack>(at);
  }
  template <int kPack, class Inputs>
  __device__ void operator()(const Numbers (&of)[kPack], int64_t at, const Inputs& inputs) const {
    Pack<T, kPack> results;
#pragma unroll
    for (int v = 0; v < kPack; ++v) {
      const C g = gradients(inputs, v, of[v].result), x = static_cast<C>(inputs.x.values[v]);
      const C rest = count == 0 ? g : g * of[v].weight - of[v].subtracted(x);
      results.values[v] = static_cast<T>(rest * of[v].factor);
    }
    store_pack(grad_in + at, results, kPack);
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
  int64_t pieces = 0;
  for (const int pack : {1, 2, 4, 8}) pieces = std::max(pieces, ThreadLayout(shape, pack).pieces);
  return 2 * pieces * shape.channels * static_cast<int64_t>(sizeof(double));
}

void batch_norm_moments(const KernelContext& context, DType dtype, const BatchNormShape& shape, const void* in,
                        void* workspace, double* mean, double* squares) {
  const double count = static_cast<double>(shape.per_channel());
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(in);
    with_pack<T>(shape, {x}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      sum<kPack>(context, shape, workspace, AddMoments<T>{x, nullptr}, StoreMoments{count, nullptr, mean, squares});
      if constexpr (sizeof(T) == sizeof(double)) {
        sum<kPack>(context, shape, workspace, AddMoments<T>{x, mean}, StoreMoments{count, mean, mean, squares});
      }
    });
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
    with_pack<T>(shape, {in, residual, out}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      map<kPack>(context, shape,
                 Normalise<T>{channels, relu, static_cast<const T*>(in), static_cast<const T*>(residual),
                              static_cast<T*>(out)});
    });
  });
}

void batch_norm_backward_sums(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                              const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                              const void* grad, void* workspace, double* sums, void* counted) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const Counted<T> gradients = {mask, static_cast<Accumulator<T>>(channels.ceiling), static_cast<const T*>(in),
                                  static_cast<const T*>(out), static_cast<const T*>(grad)};
    with_pack<T>(shape, {in, out, grad, counted}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      sum<kPack>(context, shape, workspace, AddGradients<T>{channels, gradients, static_cast<T*>(counted)},
                 StoreSums{shape.channels, sums});
    });
  });
}

void batch_norm_backward(const KernelContext& context, DType dtype, const BatchNormShape& shape,
                         const BatchNormChannels& channels, ReluMask mask, const void* in, const void* out,
                         const void* grad, const double* sums, double count, void*, void* grad_in) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const Counted<T> gradients = {mask, static_cast<Accumulator<T>>(channels.ceiling), static_cast<const T*>(in),
                                  static_cast<const T*>(out), static_cast<const T*>(grad)};
    with_pack<T>(shape, {in, out, grad, grad_in}, [&]<int kPack>(std::integral_constant<int, kPack>) {
      map<kPack>(context, shape,
                 InputGradient<T>{channels, gradients, sums, shape.channels, count, static_cast<T*>(grad_in)});
    });
  });
}

void batch_norm_parameter_gradient(const KernelContext& context, DType dtype, int64_t n, const double* value,
                                   const double* factor, bool accumulate, void* slot) {
  visit_floating_dtype(dtype, [&]<class T>() {
    for_each_index(context, n, ParameterGradient<T>{value, factor, accumulate, static_cast<T*>(slot)});
  });
}

}}}  // namespace tandem::v0::cuda

// Maps and sums over the channels of a tensor. Private to the kernels of ops/norm; for *.cu files.
//
// A block processes a *piece* of one channel, or in channels-last memory of adjacent channels (a *stripe*), so that it
// computes the numbers of its channels once, and a thread keeps those of its own channels in registers; adjacent
// threads access adjacent addresses. In channels-last memory a thread has kPack channels, which it loads and stores
// together, 16 bytes if possible, and it loads F::kAhead positions before it uses the first.
//
// Sums are in float64: per thread, per block, and over pieces, whose sizes depend only on the shape and the alignment.
// Of half types a thread sums its positions of a piece, at most kMaxPositions, in float32.
//
// Stripes are narrow, and in channels-last memory blocks are as few as keep the GPU busy: what a block does besides its
// loop, and what adding up the pieces costs, takes longer than the loops of small tensors.
//
// F of `map` and `sum` has: kBlocks, the number of blocks that a multiprocessor runs at a time; kAhead; Numbers and
// numbers(c), the numbers of channel c; load<kPack>(at), the elements from offset `at` on.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <tandem/base/math.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/launch.h>
#include <tandem/tensor/cuda/packed.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Threads of a stripe: at most 128 bytes with 16 bytes per thread.
inline constexpr int max_width(int pack) { return pack == 1 ? 32 : 8; }
inline constexpr int kMaxPositions = 64;  // of a thread in a piece of a channels-last tensor

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

  /// More than one channel per thread: only for channels-last tensors. `resident` is the number of blocks that a
  /// multiprocessor executes at a time.
  ThreadLayout(const BatchNormShape& of, int channels_per_thread, int resident)
      : shape(of), pack(channels_per_thread), adjacent(of.adjacent()) {
    const auto power_of_two = [](int64_t n, int64_t most) {
      return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(n, 1, most))));
    };
    if (shape.channels_last) {
      width = power_of_two(ceil_div<int64_t>(adjacent, pack), max_width(pack));
      stripes = ceil_div<int64_t>(adjacent, width * pack);
      units = stripes * shape.samples;
      run = 1;
      const int64_t positions = shape.per_channel(), rows = kBlock / width;
      // Of the numbers of blocks that keep all multiprocessors busy, the smallest for which no piece is too long. But a
      // piece has at least 8 positions of each thread.
      const int64_t slots = int64_t{kMultiprocessors} * resident;
      const int64_t least = units * ceil_div(positions, kMaxPositions * rows);
      const int64_t most = std::max<int64_t>(1, ceil_div(least, slots)) * slots / std::max<int64_t>(1, units);
      images = std::max(ceil_div(positions, std::max<int64_t>(1, most)), 8 * rows);
      pieces = ceil_div(positions, images);
      threads = threads_for(width * std::min(images, positions));
    } else {
      // Enough blocks for a GPU if the tensor is large enough.
      const int64_t length = std::clamp<int64_t>(shape.per_channel() * shape.channels / 1024, 1024, 8192);
      width = power_of_two(shape.inner, kBlock);
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
    return static_cast<int>(::min(most, end_channel(block) - first_channel(block)));
  }
  /// Calls use(offset, load(offset)) for the calling thread's elements of channel c, or of the channels from c on, in
  /// the block's piece.
  template <int kPack, int kAhead, class Load, class Use>
  __device__ void for_each(int64_t block, int64_t c, const Load& load, const Use& use) const {
    const int64_t row = threadIdx.x / width, rows = threads / width;
    if (kPack > 1 || shape.channels_last) {
      const int64_t begin = piece(block) * images, end = ::min(begin + images, shape.per_channel());
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
    const int64_t runs = ::max(int64_t{1}, (shape.inner + run - 1) / run);
    const int64_t first_image = piece(block) / runs * images, last_image = ::min(first_image + images, shape.batch);
    const int64_t begin = piece(block) % runs * run, end = ::min(begin + run, shape.inner);
    for (int64_t image = first_image + row; image < last_image; image += rows) {
      const int64_t start = (image * shape.channels + c) * shape.inner;
      for (int64_t i = begin + threadIdx.x % width; i < end; i += width) use(start + i, load(start + i));
    }
  }
};

/// The size of a row of adjacent channels, for visit_pack; 1 in a planar tensor, where a thread has one channel.
inline int64_t row_size(const BatchNormShape& shape) { return shape.channels_last ? shape.adjacent() : 1; }

/// The numbers of F for the calling thread's channels, which must not be read if the thread has no channels. Must be
/// constructed by all threads of the block, which compute the numbers of a channel once.
template <class F, int kPack>
struct ChannelNumbers {
  typename F::Numbers of[kPack];
  __device__ ChannelNumbers(const F& f, const ThreadLayout& layout, int64_t block) {
    __shared__ typename F::Numbers of_block[kPack][max_width(kPack)];
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
    layout.for_each<kPack, F::kAhead>(
        block, c, [&](int64_t at) { return f.template load<kPack>(at); },
        [&](int64_t at, const auto& loaded) { f(numbers.of, at, loaded); });
  }
}

template <int kPack, class F>
void map(const KernelContext& context, const BatchNormShape& shape, F f) {
  if (shape.per_channel() * shape.channels == 0) return;
  const ThreadLayout layout(shape, kPack, F::kBlocks);
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
      layout.for_each<kPack, F::kAhead>(
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

/// Calls finish(c, sums over the pieces), with one block per channel.
template <class Finish>
__global__ void join_kernel(int64_t channels, int64_t pieces, const double* partial, Finish finish) {
  for (int64_t c = blockIdx.x; c < channels; c += gridDim.x) {
    Sums sums = fold_ahead<4>(
        pieces, Sums{0, 0},
        [&](int64_t piece) {
          return Sums{partial[c * pieces + piece], partial[(channels + c) * pieces + piece]};
        },
        [](Sums a, Sums b) {
          return Sums{a.a + b.a, a.b + b.b};
        });
    sums.a = block_reduce(sums.a, 0.0, Plus());
    sums.b = block_reduce(sums.b, 0.0, Plus());
    if (threadIdx.x == 0) finish(c, sums);
  }
}

/// The most pieces into which `sum` divides a tensor; its workspace has two float64 per piece and channel.
inline int64_t max_pieces(const BatchNormShape& shape) {
  int64_t pieces = 0;
  for (const int pack : {1, 2, 4, 8}) {
    for (const int resident : {2, 3}) pieces = std::max(pieces, ThreadLayout(shape, pack, resident).pieces);
  }
  return pieces;
}

template <int kPack, class F, class Finish>
void sum(const KernelContext& context, const BatchNormShape& shape, void* workspace, F f, Finish finish) {
  static_assert(F::kBlocks == 2 || F::kBlocks == 3, "max_pieces must include it");
  if (shape.channels == 0) return;
  const ThreadLayout layout(shape, kPack, F::kBlocks);
  double* partial = static_cast<double*>(workspace);
  launch_kernel(context, sum_kernel<F, kPack>, blocks_for(layout.num_blocks(), 1), layout.threads, 0, layout, f,
                partial);
  const int64_t joining = std::clamp<int64_t>(layout.pieces / 4, kWarp, kBlock);
  launch_kernel(context, join_kernel<Finish>, blocks_for(shape.channels, 1),
                static_cast<int>(std::bit_ceil(static_cast<uint64_t>(joining))), 0, shape.channels, layout.pieces,
                partial, finish);
}

}}}  // namespace tandem::v0::cuda

// Stable sort of positions by key. Private to the *.cu files of ops/.
//
// Radix sort, least significant digit first (Knuth, "The Art of Computer Programming", volume 3, 5.2.5): for each
// digit, blocks of the sequence count the digit's values, the counts are summed over blocks, and each block scatters
// its elements. Within a block each thread handles one value of the digit and takes its elements in order, so the
// result does not depend on thread scheduling.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <tandem/base/math.h>
#include <tandem/tensor/cuda/launch.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace sorting {  // templates, because several files instantiate these kernels

constexpr int kDigitBits = 8;
constexpr int kValues = 1 << kDigitBits;
constexpr int64_t kMaxBlockSize = 2048;
/// Elements per block. The time of a block grows with its elements, the time of the scan with the number of blocks.
inline int64_t block_size(int64_t n) { return n <= 1 << 16 ? 512 : kMaxBlockSize; }
inline int64_t num_blocks(int64_t n) { return ceil_div(n, block_size(n)); }

struct alignas(16) Pair {  // loaded and stored by one instruction
  int64_t key;
  int64_t position;
};

__device__ inline int digit_of(int64_t key, int shift) { return static_cast<int>(key >> shift) & (kValues - 1); }

/// counts[value, block]. In the first pass `keys` is read instead of pairs.
template <class Key>
__global__ void count_kernel(int64_t n, int64_t length, int shift, const Key* keys, const Pair* pairs,
                             int64_t* counts) {
  __shared__ int digits[kMaxBlockSize];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * length, size = ::min(length, n - begin);
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    digits[i] = digit_of(keys != nullptr ? keys[begin + i] : pairs[begin + i].key, shift);
  }
  __syncthreads();
  int64_t count = 0;
  for (int64_t i = 0; i < size; ++i) count += digits[i] == static_cast<int>(threadIdx.x);
  counts[threadIdx.x * gridDim.x + blockIdx.x] = count;
}

/// Exclusive prefix sums of the counts, in place. One block of kValues threads.
template <class Count>
__global__ void scan_kernel(int64_t num_blocks, Count* counts) {
  __shared__ int64_t totals[kValues];
  const int64_t begin = threadIdx.x * num_blocks;
  int64_t total = 0;
  for (int64_t b = 0; b < num_blocks; ++b) total += counts[begin + b];
  totals[threadIdx.x] = total;
  __syncthreads();
  int64_t before = 0;
  for (int v = 0; v < static_cast<int>(threadIdx.x); ++v) before += totals[v];
  for (int64_t b = 0; b < num_blocks; ++b) {
    const int64_t count = counts[begin + b];
    counts[begin + b] = before;
    before += count;
  }
}

template <class Key>
__global__ void scatter_kernel(int64_t n, int64_t length, int shift, const Key* keys, const Pair* pairs,
                               const int64_t* counts, Pair* out) {
  __shared__ int digits[kMaxBlockSize];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * length, size = ::min(length, n - begin);
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    digits[i] = digit_of(keys != nullptr ? keys[begin + i] : pairs[begin + i].key, shift);
  }
  __syncthreads();
  int64_t next = counts[threadIdx.x * gridDim.x + blockIdx.x];
  for (int64_t i = 0; i < size; ++i) {
    if (digits[i] != static_cast<int>(threadIdx.x)) continue;
    out[next++] = keys != nullptr ? Pair{keys[begin + i], begin + i} : pairs[begin + i];
  }
}

/// The first of n pairs whose key is at least `key`.
__device__ inline int64_t lower_bound(const Pair* pairs, int64_t n, int64_t key) {
  int64_t begin = 0, end = n;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (pairs[middle].key < key) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

struct FindStart {
  int64_t n;
  const Pair* pairs;
  int64_t* starts;
  __device__ void operator()(int64_t key) const { starts[key] = lower_bound(pairs, n, key); }
};

}  // namespace sorting

/// Bytes of the workspace of sorted_pairs.
inline int64_t sort_workspace_bytes(int64_t n) {
  return 2 * n * static_cast<int64_t>(sizeof(sorting::Pair)) +
         sorting::num_blocks(n) * sorting::kValues * static_cast<int64_t>(sizeof(int64_t));
}

/// The memory after the workspace in which n pairs are sorted.
inline int64_t* after_sort(void* workspace, int64_t n) {
  return reinterpret_cast<int64_t*>(static_cast<std::byte*>(workspace) + sort_workspace_bytes(n));
}

/// The two buffers of a sort in its workspace, which is aligned like newly allocated memory. `from` holds the result.
struct PairBuffers {
  PairBuffers(int64_t size, void* workspace)
      : n(size),
        from(static_cast<sorting::Pair*>(workspace)),
        to(from + n),
        counts(reinterpret_cast<int64_t*>(to + n)) {}
  int64_t n;
  sorting::Pair* from;
  sorting::Pair* to;
  int64_t* counts;
};

/// Sorts by the low `bits` bits of the keys, as unsigned numbers. The pairs are {keys[i], i}, or if `keys` is null, the
/// pairs in buffers.from.
template <class Key>
void sort_pairs(const KernelContext& context, int bits, const Key* keys, PairBuffers& buffers) {
  using namespace sorting;
  const int64_t n = buffers.n, length = block_size(n), blocks = num_blocks(n);
  for (int shift = 0; shift < bits && n > 0; shift += kDigitBits) {
    const Key* first = shift == 0 ? keys : nullptr;
    const dim3 grid(static_cast<unsigned>(blocks));
    launch_kernel(context, count_kernel<Key>, grid, kValues, 0, n, length, shift, first, buffers.from, buffers.counts);
    launch_kernel(context, scan_kernel<int64_t>, 1, kValues, 0, blocks, buffers.counts);
    launch_kernel(context, scatter_kernel<Key>, grid, kValues, 0, n, length, shift, first, buffers.from, buffers.counts,
                  buffers.to);
    std::swap(buffers.from, buffers.to);
  }
}

/// {key, position} of n keys in [0, num_keys), ascending, stored in the workspace.
template <class Key>
const sorting::Pair* sorted_pairs(const KernelContext& context, int64_t n, int64_t num_keys, const Key* keys,
                                  void* workspace) {
  PairBuffers buffers(n, workspace);
  sort_pairs(context, std::bit_width(static_cast<uint64_t>(std::max<int64_t>(num_keys - 1, 1))), keys, buffers);
  return buffers.from;
}

/// Bytes of the workspace of sorted_pairs and starts_of_keys.
inline int64_t starts_workspace_bytes(int64_t n, int64_t num_keys) {
  return sort_workspace_bytes(n) + (num_keys + 1) * static_cast<int64_t>(sizeof(int64_t));
}

/// For the n pairs that sorted_pairs stored in the workspace: element `key`, 0 <= key <= num_keys, is the first pair
/// whose key is at least `key`.
inline const int64_t* starts_of_keys(const KernelContext& context, int64_t n, int64_t num_keys,
                                     const sorting::Pair* pairs, void* workspace) {
  int64_t* const starts = after_sort(workspace, n);
  for_each_index(context, num_keys + 1, sorting::FindStart{n, pairs, starts});
  return starts;
}

}}}  // namespace tandem::v0::cuda

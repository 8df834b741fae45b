// Top-k of rows. Private to the *.cu files of ops/.
//
// One block per row. Each element has a unique rank: the bits of its value, mapped so that they have the order of the
// values, followed by its position in the low bits. The rank of the last selected element is found digit by digit from
// the top, by counting the next digit of the elements that match the digits so far (radix select; T. Alabi et al.,
// "Fast k-selection algorithms for graphics processing units", 2012). The selected elements are sorted by merge
// exchange (Knuth, "The Art of Computer Programming", volume 3, 5.2.2, algorithm M), whose steps exchange disjoint
// pairs.
#pragma once

#include <bit>
#include <cstdint>

#include <tandem/base/error.h>
#include <tandem/ops/common/order_key.h>
#include <tandem/tensor/cuda/block.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace selecting {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int64_t kSortedInShared = 1024;  ///< positions sorted in shared memory, at most
constexpr int kMaxThreads = 1024;          ///< per block

using Rank = unsigned __int128;

/// The elements of a row.
template <class T>
struct Ranked {
  const T* x;
  int position_bits;  ///< rounded up to full digits
  bool largest;
  __device__ Rank rank(int64_t i) const {
    return static_cast<Rank>(sort_key(x[i], largest)) << position_bits | static_cast<Rank>(i);
  }
};

/// Returns to all threads a rank that is >= the ranks of the first k elements of a row and < all others.
template <class T>
__device__ Rank last_rank(const Ranked<T>& row, int64_t size, unsigned k) {
  struct Found {
    int digit;
    unsigned before, count;
  };
  __shared__ unsigned counts[kDigits];
  __shared__ Found found;
  Rank prefix = 0;      // the digits found so far
  unsigned wanted = k;  // number of elements still to select among those that match prefix
  for (int shift = 8 * static_cast<int>(sizeof(T)) + row.position_bits - kDigitBits;; shift -= kDigitBits) {
    for (unsigned d = threadIdx.x; d < kDigits; d += blockDim.x) counts[d] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      const Rank digits = row.rank(i) >> shift;
      if (digits >> kDigitBits == prefix) atomicAdd(&counts[static_cast<int>(digits) & (kDigits - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {  // each lane handles some adjacent digits
      constexpr int kOwn = kDigits / kWarp;
      const int lane = static_cast<int>(threadIdx.x);
      unsigned own = 0;
      for (int d = 0; d < kOwn; ++d) own += counts[lane * kOwn + d];
      unsigned before = own;
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const unsigned others = __shfl_up_sync(kAllLanes, before, static_cast<unsigned>(distance));
        if (lane >= distance) before += others;
      }
      before -= own;
      if (before < wanted && wanted <= before + own) {
        int digit = lane * kOwn;
        while (before + counts[digit] < wanted) before += counts[digit++];
        found = {digit, before, counts[digit]};
      }
    }
    __syncthreads();
    prefix = prefix << kDigitBits | static_cast<Rank>(found.digit);
    wanted -= found.before;
    if (wanted == found.count)
      return prefix << shift | ((Rank{1} << shift) - 1);  // true at the last digit, because ranks are unique
  }
}

/// Sorts k positions of a row by rank.
template <class T>
__device__ void sort_positions(const Ranked<T>& row, int64_t k, int64_t* positions) {
  int64_t top = 1;
  while (2 * top < k) top *= 2;
  for (int64_t p = top; p > 0; p /= 2) {
    for (int64_t q = top, r = 0, distance = p;; distance = q - p, q /= 2, r = p) {
      for (int64_t i = threadIdx.x; i < k - distance; i += blockDim.x) {
        if ((i & p) != r) continue;
        const int64_t a = positions[i], b = positions[i + distance];
        if (row.rank(b) < row.rank(a)) {
          positions[i] = b;
          positions[i + distance] = a;
        }
      }
      __syncthreads();
      if (q == p) break;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads)
    select_kernel(int64_t rows, int64_t size, int64_t k, bool largest, int position_bits, const T* input, T* values,
                  int64_t* indices) {
  __shared__ int64_t in_shared[kSortedInShared];
  __shared__ unsigned num_chosen;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const Ranked<T> row{input + r * size, position_bits, largest};
    int64_t* chosen = k <= kSortedInShared ? in_shared : indices + r * k;
    if (threadIdx.x == 0) num_chosen = 0;
    const Rank last = last_rank(row, size, static_cast<unsigned>(k));
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      if (row.rank(i) <= last) chosen[atomicAdd(&num_chosen, 1u)] = i;  // unordered; sorted below
    }
    __syncthreads();
    sort_positions(row, k, chosen);
    for (int64_t j = threadIdx.x; j < k; j += blockDim.x) {
      indices[r * k + j] = chosen[j];
      if (values != nullptr) values[r * k + j] = row.x[chosen[j]];
    }
    __syncthreads();  // before the elements of the next row are written
  }
}

}  // namespace selecting

/// The positions of the first k elements of each row of `size` elements, in descending (largest) or ascending order,
/// equal elements in order of position; NaN counts as the largest. 1 <= k <= size. Also writes their values, unless
/// `values` is null.
template <class T>
void select_first(const KernelContext& context, int64_t rows, int64_t size, int64_t k, bool largest, const T* input,
                  T* values, int64_t* indices) {
  using namespace selecting;
  if (rows == 0) return;
  TANDEM_CHECK(ShapeError, size <= UINT32_MAX, "top-k on a GPU: rows have at most 2^32 - 1 elements, got ", size);
  const int digits = (std::bit_width(static_cast<uint64_t>(size - 1)) + kDigitBits - 1) / kDigitBits;
  const int threads = size <= 256 ? kWarp : size <= 1024 ? 128 : size <= 8192 ? 512 : kMaxThreads;
  launch_kernel(context, select_kernel<T>, blocks_for(rows, 1), threads, 0, rows, size, k, largest, digits * kDigitBits,
                input, values, indices);
}

}}}  // namespace tandem::v0::cuda

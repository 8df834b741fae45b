// CPU kernels of sorting and searching. Long rows are sorted by digits, least significant first (Knuth, "The Art of
// Computer Programming", volume 3, 5.2.5); digits that are equal in the whole row are skipped.
#include <algorithm>
#include <cstddef>
#include <utility>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/sort/sort_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Pieces of parallel work at most; each has a part of the workspace.
constexpr int64_t kMaxPieces = 64;
/// Elements per piece of parallel work.
constexpr int64_t kGrain = 1 << 13;
/// Rows up to this length are sorted by comparisons.
constexpr int64_t kShort = 24;
constexpr int kValues = 256;  // of a digit

template <class Key>
struct Entry {
  Key key;
  uint32_t position;
  bool operator<(const Entry& other) const { return key != other.key ? key < other.key : position < other.position; }
};

int64_t rows_per_piece(int64_t rows, int64_t n) {
  return std::max({int64_t{1}, ceil_div(rows, kMaxPieces), kGrain / std::max<int64_t>(n, 1)});
}

/// Sorts the n entries in `from`; returns the one that holds the result, `from` or `to`.
template <class Key>
Entry<Key>* radix_sort(Entry<Key>* from, Entry<Key>* to, int64_t n) {
  constexpr int kDigits = sizeof(Key);
  const auto digit = [](Key key, int d) { return static_cast<size_t>(key >> (8 * d)) & (kValues - 1); };
  uint32_t counts[kDigits][kValues] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int d = 0; d < kDigits; ++d) ++counts[d][digit(from[i].key, d)];
  }
  for (int d = 0; d < kDigits; ++d) {
    uint32_t* next = counts[d];
    if (next[digit(from[0].key, d)] == n) continue;
    uint32_t before = 0;
    for (int v = 0; v < kValues; ++v) before += std::exchange(next[v], before);
    for (int64_t i = 0; i < n; ++i) to[next[digit(from[i].key, d)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

}  // namespace

int64_t sort_workspace_bytes(const KernelContext&, DType dtype, int64_t rows, int64_t n) {
  const int64_t pieces = ceil_div(rows, rows_per_piece(rows, n));
  return visit_dtype(dtype, [&]<class T>() {
    return pieces * 2 * n * static_cast<int64_t>(sizeof(Entry<decltype(sort_key(T{}, false))>));
  });
}

void sort(const KernelContext&, DType dtype, int64_t rows, int64_t n, bool descending, const void* input,
          void* workspace, void* values, int64_t* indices) {
  visit_dtype(dtype, [&]<class T>() {
    using Key = decltype(sort_key(T{}, false));
    const int64_t grain = rows_per_piece(rows, n);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      Entry<Key>* entries = static_cast<Entry<Key>*>(workspace) + begin / grain * 2 * n;
      for (int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(input) + row * n;
        for (int64_t i = 0; i < n; ++i) entries[i] = {sort_key(x[i], descending), static_cast<uint32_t>(i)};
        const Entry<Key>* sorted = entries;
        if (n <= kShort) {
          std::sort(entries, entries + n);
        } else {
          sorted = radix_sort(entries, entries + n, n);
        }
        for (int64_t i = 0; i < n; ++i) {
          static_cast<T*>(values)[row * n + i] = x[sorted[i].position];
          indices[row * n + i] = sorted[i].position;
        }
      }
    });
  });
}

void searchsorted(const KernelContext&, DType dtype, int64_t size, int64_t num_values, int64_t row_size, bool right,
                  const void* sequence, const void* values, int64_t* out) {
  visit_dtype(dtype, [&]<class T>() {
    const SearchSorted<T> search{size, row_size, right, static_cast<const T*>(sequence), static_cast<const T*>(values),
                                 out};
    parallel_for(num_values, kGrain / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) search(i);
    });
  });
}

}}}  // namespace tandem::v0::cpu

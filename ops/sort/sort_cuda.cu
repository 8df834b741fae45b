// GPU kernels of sorting and searching. Short rows are sorted by one block each; long ones together, by value and then
// by row.
#include <tandem/ops/index/sort_cuda.h>
#include <tandem/ops/index/topk_cuda.h>
#include <tandem/ops/sort/sort_kernels.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

bool is_short(int64_t n) { return n <= selecting::kSortedInShared; }

template <class T>
struct MakeKeys {
  bool descending;
  const T* input;
  int64_t* keys;
  __device__ void operator()(int64_t i) const { keys[i] = static_cast<int64_t>(sort_key(input[i], descending)); }
};

struct KeyByRow {
  int64_t n;
  sorting::Pair* pairs;
  __device__ void operator()(int64_t i) const { pairs[i].key = pairs[i].position / n; }
};

template <class T>
struct StoreSorted {
  int64_t n;
  const sorting::Pair* pairs;
  const T* input;
  T* values;
  int64_t* indices;
  __device__ void operator()(int64_t i) const {
    values[i] = input[pairs[i].position];
    indices[i] = pairs[i].position % n;
  }
};

}  // namespace

int64_t sort_workspace_bytes(const KernelContext&, DType, int64_t rows, int64_t n) {
  return is_short(n) ? 0 : sort_workspace_bytes(rows * n) + rows * n * static_cast<int64_t>(sizeof(int64_t));
}

void sort(const KernelContext& context, DType dtype, int64_t rows, int64_t n, bool descending, const void* input,
          void* workspace, void* values, int64_t* indices) {
  const int64_t all = rows * n;
  visit_dtype(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(input);
    if (is_short(n)) {
      return select_first(context, rows, n, n, descending, from, static_cast<T*>(values), indices);
    }
    auto* keys = reinterpret_cast<int64_t*>(static_cast<std::byte*>(workspace) + sort_workspace_bytes(all));
    for_each_index(context, all, MakeKeys<T>{descending, from, keys});
    PairBuffers buffers(all, workspace);
    sort_pairs(context, 8 * static_cast<int>(sizeof(T)), keys, buffers);
    if (rows > 1) {
      for_each_index(context, all, KeyByRow{n, buffers.from});
      sort_pairs<int64_t>(context, std::bit_width(static_cast<uint64_t>(rows - 1)), nullptr, buffers);
    }
    for_each_index(context, all, StoreSorted<T>{n, buffers.from, from, static_cast<T*>(values), indices});
  });
}

void searchsorted(const KernelContext& context, DType dtype, int64_t size, int64_t num_values, int64_t row_size,
                  bool right, const void* sequence, const void* values, int64_t* out) {
  visit_dtype(dtype, [&]<class T>() {
    for_each_index(
        context, num_values,
        SearchSorted<T>{size, row_size, right, static_cast<const T*>(sequence), static_cast<const T*>(values), out});
  });
}

}}}  // namespace tandem::v0::cuda

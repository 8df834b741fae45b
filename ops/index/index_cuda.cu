// GPU kernels of index_kernels.h. An invalid index was reported by check_indices: reading it gives 0, and values
// written to it are dropped.
#include <algorithm>
#include <cstddef>

#include <tandem/ops/elementwise/elementwise_map_cuda.h>
#include <tandem/ops/index/index_kernels.h>
#include <tandem/ops/index/sort_cuda.h>
#include <tandem/ops/index/topk_cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

__device__ bool is_in(int64_t index, int64_t size) { return index >= 0 && index < size; }

/// Calls f with an unsigned integer of that many bytes.
template <class F>
void visit_element(int64_t element_bytes, const F& f) {
  switch (element_bytes) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    default: return f(uint64_t{});
  }
}

template <class T>
struct Gather {
  int64_t n, inner, size;
  const int64_t* index;
  const T* input;
  T* out;
  __device__ void operator()(int64_t i) const {
    const int64_t column = i / inner, k = i % inner, at = index[i];
    out[i] = is_in(at, size) ? input[(column / n * size + at) * inner + k] : T{};
  }
};

/// One thread writes a column of src [outer, n, inner] in order.
template <ScatterOp op, class T, class A>
struct WriteColumn {
  int64_t n, inner, size;
  const int64_t* index;
  const T* src;
  A* out;
  __device__ void operator()(int64_t column) const {
    const int64_t o = column / inner, k = column % inner;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t from = (o * n + i) * inner + k, at = index[from];
      if (!is_in(at, size)) continue;
      A& target = out[(o * size + at) * inner + k];
      target = combine<op>(target, static_cast<A>(src[from]));
    }
  }
};

/// The position in out of each element of src; the end of out for invalid indices.
struct FindTarget {
  int64_t n, inner, size, nowhere;
  const int64_t* index;
  int64_t* targets;
  __device__ void operator()(int64_t i) const {
    const int64_t column = i / inner, k = i % inner, at = index[i];
    targets[i] = is_in(at, size) ? (column / n * size + at) * inner + k : nowhere;
  }
};

/// Elements of src with the same target are adjacent in `pairs`; the thread of the first one writes them.
template <ScatterOp op, class T, class A>
struct WriteRun {
  int64_t n, nowhere;
  const sorting::Pair* pairs;
  const T* src;
  A* out;
  __device__ void operator()(int64_t first) const {
    const int64_t target = pairs[first].key;
    if (target == nowhere || (first > 0 && pairs[first - 1].key == target)) return;
    A value = out[target];
    for (int64_t i = first; i < n && pairs[i].key == target; ++i) {
      value = combine<op>(value, static_cast<A>(src[pairs[i].position]));
    }
    out[target] = value;
  }
};

/// Whether the elements are sorted by target: if there are too few columns for one thread each, and the columns are
/// long. Both ways write in the same order.
bool sorts(int64_t outer, int64_t n, int64_t inner) { return n > 128 && outer * inner < (1 << 14); }

}  // namespace

void gather(const KernelContext& context, int64_t element_bytes, int64_t outer, int64_t n, int64_t inner, int64_t size,
            const int64_t* index, const void* input, void* out) {
  visit_element(element_bytes, [&]<class T>(T) {
    for_each_index(context, outer * n * inner,
                   Gather<T>{n, inner, size, index, static_cast<const T*>(input), static_cast<T*>(out)});
  });
}

int64_t scatter_workspace_bytes(const KernelContext&, int64_t outer, int64_t n, int64_t inner) {
  const int64_t all = outer * n * inner;
  return sorts(outer, n, inner) ? all * static_cast<int64_t>(sizeof(int64_t)) + sort_workspace_bytes(all) : 0;
}

void scatter(const KernelContext& context, ScatterOp op, DType dtype, int64_t outer, int64_t n, int64_t inner,
             int64_t size, const int64_t* index, const void* src, void* workspace, void* out) {
  const int64_t all = outer * n * inner, num_targets = outer * size * inner;
  const bool sorted = sorts(outer, n, inner);
  const sorting::Pair* pairs = nullptr;
  if (sorted) {
    int64_t* targets = after_sort(workspace, all);
    for_each_index(context, all, FindTarget{n, inner, size, num_targets, index, targets});
    pairs = sorted_pairs(context, all, num_targets + 1, targets, workspace);
  }
  visit_scatter(op, dtype, [&]<ScatterOp known, class T, class A>() {
    const T* from = static_cast<const T*>(src);
    A* to = static_cast<A*>(out);
    if (sorted) {
      for_each_index(context, all, WriteRun<known, T, A>{all, num_targets, pairs, from, to});
    } else {
      for_each_index(context, outer * inner, WriteColumn<known, T, A>{n, inner, size, index, from, to});
    }
  });
}

namespace {

/// Copies rows of `units` elements of type U.
template <class U>
struct SelectRows {
  int64_t n, size, units;
  const int64_t* index;
  const U* input;
  U* out;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / units, at = index[row % n];
    out[i] = is_in(at, size) ? input[(row / n * size + at) * units + i % units] : U{};
  }
};

/// Writes to an element of out [outer, size, inner] pairs[starts[row]] .. pairs[starts[row + 1] - 1], the slices with
/// index `row`.
template <ScatterOp op, class T, class A>
struct WriteUses {
  int64_t n, inner, size;
  const sorting::Pair* pairs;
  const int64_t* starts;
  const T* src;
  A* out;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / inner, k = i % inner, o = row / size;
    const int64_t end = starts[row % size + 1];
    A value = out[i];
    for (int64_t use = starts[row % size]; use < end; ++use) {
      value = combine<op>(value, static_cast<A>(src[(o * n + pairs[use].position) * inner + k]));
    }
    out[i] = value;
  }
};

}  // namespace

void index_select(const KernelContext& context, int64_t row_bytes, int64_t outer, int64_t n, int64_t size,
                  const int64_t* index, const void* input, void* out) {
  if (row_bytes == 0) return;  // the pointers may be null
  const auto run = [&]<class U>(U) {
    const int64_t units = row_bytes / static_cast<int64_t>(sizeof(U));
    for_each_index(context, outer * n * units,
                   SelectRows<U>{n, size, units, index, static_cast<const U*>(input), static_cast<U*>(out)});
  };
  // The widest type that divides the rows' size and alignment.
  const uint64_t low_bits =
      static_cast<uint64_t>(row_bytes) | reinterpret_cast<uintptr_t>(input) | reinterpret_cast<uintptr_t>(out);
  if (low_bits % 16 == 0) return run(Pack<uint64_t, 2>{});
  visit_element(int64_t{1} << std::min(std::countr_zero(low_bits), 3), run);
}

int64_t scatter_slices_workspace_bytes(const KernelContext&, int64_t n, int64_t size) {
  return starts_workspace_bytes(n, size);
}

void scatter_slices(const KernelContext& context, ScatterOp op, DType dtype, int64_t outer, int64_t n, int64_t inner,
                    int64_t size, const int64_t* index, const void* src, void* workspace, void* out) {
  const sorting::Pair* pairs = sorted_pairs(context, n, size, index, workspace);
  const int64_t* starts = starts_of_keys(context, n, size, pairs, workspace);
  visit_scatter(op, dtype, [&]<ScatterOp known, class T, class A>() {
    if constexpr (known == ScatterOp::kAssign || known == ScatterOp::kSum) {
      for_each_index(
          context, outer * size * inner,
          WriteUses<known, T, A>{n, inner, size, pairs, starts, static_cast<const T*>(src), static_cast<A*>(out)});
    }
  });
}

namespace {

/// 0 for elements that are not 0, else 1, so that they come first.
struct NonzeroKey {
  const bool* mask;
  uint8_t* keys;
  __device__ void operator()(int64_t i) const { keys[i] = !mask[i]; }
};

struct CountFirst {
  int64_t n;
  const sorting::Pair* pairs;
  int64_t* count;
  __device__ void operator()(int64_t) const { *count = sorting::lower_bound(pairs, n, 1); }
};

/// One coordinate of each position; `stride` is the stride of its dimension.
struct Coordinate {
  int64_t num_dims, dim, stride, size;
  const sorting::Pair* pairs;
  int64_t* out;
  __device__ void operator()(int64_t i) const { out[i * num_dims + dim] = pairs[i].position / stride % size; }
};

/// Where sorted_pairs stores the result for keys of one digit.
const sorting::Pair* nonzero_pairs(const void* workspace, int64_t n) {
  return static_cast<const sorting::Pair*>(workspace) + n;
}

}  // namespace

int64_t nonzero_workspace_bytes(const KernelContext&, int64_t n) { return sort_workspace_bytes(n) + n; }

void count_nonzero(const KernelContext& context, int64_t n, const bool* mask, void* workspace, int64_t* count) {
  uint8_t* keys = reinterpret_cast<uint8_t*>(after_sort(workspace, n));
  for_each_index(context, n, NonzeroKey{mask, keys});
  sorted_pairs(context, n, 2, keys, workspace);
  for_each_index(context, 1, CountFirst{n, nonzero_pairs(workspace, n), count});
}

void nonzero(const KernelContext& context, const Shape& shape, int64_t count, const bool*, const void* workspace,
             int64_t* out) {
  const int64_t n = num_elements(shape), num_dims = shape.dim();
  int64_t stride = 1;
  for (int64_t d = num_dims - 1; d >= 0; --d) {
    const int64_t size = shape[static_cast<size_t>(d)];
    for_each_index(context, count, Coordinate{num_dims, d, stride, size, nonzero_pairs(workspace, n), out});
    stride *= size;
  }
}

namespace {

struct OneHot {
  int64_t classes;
  const int64_t* labels;
  int64_t* out;
  __device__ void operator()(int64_t i) const { out[i] = labels[i / classes] == i % classes; }
};

template <class T>
struct Triangle {
  bool upper;
  int64_t rows, columns, diagonal;
  const T* input;
  T* out;
  __device__ void operator()(int64_t i) const {
    const int64_t last = i / columns % rows + diagonal, column = i % columns;
    out[i] = (upper ? column >= last : column <= last) ? input[i] : T{};
  }
};

}  // namespace

void one_hot(const KernelContext& context, int64_t n, int64_t classes, const int64_t* labels, int64_t* out) {
  for_each_index(context, n * classes, OneHot{classes, labels, out});
}

void topk(const KernelContext& context, DType dtype, int64_t rows, int64_t size, int64_t k, bool largest,
          const void* input, void* values, int64_t* indices) {
  if (k == 0) return;
  visit_dtype(dtype, [&]<class T>() {
    select_first(context, rows, size, k, largest, static_cast<const T*>(input), static_cast<T*>(values), indices);
  });
}

void triangle(const KernelContext& context, bool upper, int64_t element_bytes, int64_t matrices, int64_t rows,
              int64_t columns, int64_t diagonal, const void* input, void* out) {
  visit_element(element_bytes, [&]<class T>(T) {
    const int64_t nearest = std::clamp<int64_t>(diagonal, -rows, columns);
    for_each_index(context, matrices * rows * columns,
                   Triangle<T>{upper, rows, columns, nearest, static_cast<const T*>(input), static_cast<T*>(out)});
  });
}

}}}  // namespace tandem::v0::cuda

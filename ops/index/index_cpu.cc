// CPU kernels of index_kernels.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/order_key.h>
#include <tandem/ops/index/index_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

/// Minimum number of elements per piece of parallel work.
constexpr int64_t kGrain = 1 << 14;
/// Columns of [outer, n, inner] that are summed together.
constexpr int64_t kColumns = 256;

int64_t grain_of(int64_t elements_per_item) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements_per_item));
}

/// Calls f with an unsigned integer of that many bytes.
template <class F>
void visit_element(int64_t element_bytes, F f) {
  switch (element_bytes) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    default: return f(uint64_t{});
  }
}

/// Calls f(o, first, last) for columns [first, last) of block o. Each column belongs to one piece, so that sums over
/// the middle dimension have a fixed order. An item costs `length` steps per column.
template <class F>
void for_columns(int64_t outer, int64_t inner, int64_t length, F f) {
  const int64_t stripes = (inner + kColumns - 1) / kColumns;
  parallel_for(outer * stripes, grain_of(length * std::min(inner, kColumns)), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % stripes * kColumns;
      f(item / stripes, first, std::min(first + kColumns, inner));
    }
  });
}

}  // namespace

void gather(const KernelContext&, int64_t element_bytes, int64_t outer, int64_t n, int64_t inner, int64_t size,
            const int64_t* index, const void* input, void* out) {
  visit_element(element_bytes, [&]<class T>(T) {
    const T* from = static_cast<const T*>(input);
    T* to = static_cast<T*>(out);
    for_columns(outer, inner, n, [=](int64_t o, int64_t first, int64_t last) {
      if (inner == 1) {
        for (int64_t i = 0; i < n; ++i) to[o * n + i] = from[o * size + index[o * n + i]];
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = (o * n + i) * inner;
        for (int64_t k = first; k < last; ++k) to[row + k] = from[(o * size + index[row + k]) * inner + k];
      }
    });
  });
}

int64_t scatter_workspace_bytes(const KernelContext&, int64_t, int64_t, int64_t) { return 0; }

void scatter(const KernelContext&, ScatterOp op, DType dtype, int64_t outer, int64_t n, int64_t inner, int64_t size,
             const int64_t* index, const void* src, void*, void* out) {
  visit_scatter(op, dtype, [&]<ScatterOp known, class T, class A>() {
    const T* from = static_cast<const T*>(src);
    A* to = static_cast<A*>(out);
    for_columns(outer, inner, n, [=](int64_t o, int64_t first, int64_t last) {
      if (inner == 1) {
        for (int64_t i = 0; i < n; ++i) {
          A& target = to[o * size + index[o * n + i]];
          target = combine<known>(target, static_cast<A>(from[o * n + i]));
        }
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = (o * n + i) * inner;
        for (int64_t k = first; k < last; ++k) {
          A& target = to[(o * size + index[row + k]) * inner + k];
          target = combine<known>(target, static_cast<A>(from[row + k]));
        }
      }
    });
  });
}

void index_select(const KernelContext&, int64_t row_bytes, int64_t outer, int64_t n, int64_t size, const int64_t* index,
                  const void* input, void* out) {
  if (row_bytes == 0) return;  // the pointers may be null
  const std::byte* from = static_cast<const std::byte*>(input);
  std::byte* to = static_cast<std::byte*>(out);
  if (row_bytes == 1 || row_bytes == 2 || row_bytes == 4 ||
      row_bytes == 8) {  // a copy of constant size is one load and one store
    visit_element(row_bytes, [&]<class T>(T) {
      parallel_for(outer, grain_of(n), [=](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) {
          const std::byte* rows = from + o * size * static_cast<int64_t>(sizeof(T));
          std::byte* selected = to + o * n * static_cast<int64_t>(sizeof(T));
          for (int64_t i = 0; i < n; ++i) {
            std::memcpy(selected + i * static_cast<int64_t>(sizeof(T)),
                        rows + index[i] * static_cast<int64_t>(sizeof(T)), sizeof(T));
          }
        }
      });
    });
    return;
  }
  parallel_for(outer * n, grain_of(row_bytes / 4), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      std::memcpy(to + item * row_bytes, from + (item / n * size + index[item % n]) * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  });
}

int64_t scatter_slices_workspace_bytes(const KernelContext&, int64_t, int64_t) { return 0; }

void scatter_slices(const KernelContext&, ScatterOp op, DType dtype, int64_t outer, int64_t n, int64_t inner,
                    int64_t size, const int64_t* index, const void* src, void*, void* out) {
  visit_scatter(op, dtype, [&]<ScatterOp known, class T, class A>() {
    if constexpr (known == ScatterOp::kAssign || known == ScatterOp::kSum) {
      const T* from = static_cast<const T*>(src);
      A* to = static_cast<A*>(out);
      for_columns(outer, inner, n, [=](int64_t o, int64_t first, int64_t last) {
        for (int64_t i = 0; i < n; ++i) {
          const T* source = from + (o * n + i) * inner;
          A* target = to + (o * size + index[i]) * inner;
          if (inner == 1) {
            *target = combine<known>(*target, static_cast<A>(*source));
          } else {
            for (int64_t k = first; k < last; ++k) target[k] = combine<known>(target[k], static_cast<A>(source[k]));
          }
        }
      });
    }
  });
}

int64_t nonzero_workspace_bytes(const KernelContext&, int64_t) { return 0; }

void count_nonzero(const KernelContext&, int64_t n, const bool* mask, void*, int64_t* count) {
  *count = std::count(mask, mask + n, true);
}

void nonzero(const KernelContext&, const Shape& shape, int64_t, const bool* mask, const void*, int64_t* out) {
  const int64_t n = num_elements(shape);
  if (shape.size() == 1) {  // without branches, which random masks would make slow
    constexpr int64_t kBlock = 256;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      int64_t found[kBlock], count = 0;
      for (int64_t i = begin; i < std::min(begin + kBlock, n); ++i) {
        found[count] = i;
        count += mask[i];
      }
      out = std::copy_n(found, count, out);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (!mask[i]) continue;
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) out[d] = rest % shape[d];
    out += shape.size();
  }
}

void one_hot(const KernelContext&, int64_t n, int64_t classes, const int64_t* labels, int64_t* out) {
  parallel_for(n, grain_of(classes), [&](int64_t begin, int64_t end) {
    std::fill(out + begin * classes, out + end * classes, int64_t{0});
    for (int64_t i = begin; i < end; ++i) out[i * classes + labels[i]] = 1;
  });
}

// The output holds a heap of the k best positions so far, with the worst on top; it is sorted at the end.
void topk(const KernelContext&, DType dtype, int64_t rows, int64_t size, int64_t k, bool largest, const void* input,
          void* values, int64_t* indices) {
  if (k == 0) return;
  visit_dtype(dtype, [&]<class T>() {
    parallel_for(rows, grain_of(size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(input) + row * size;
        int64_t* chosen = indices + row * k;
        const auto key = [&](int64_t i) { return sort_key(x[i], largest); };
        const auto is_before = [&](int64_t a, int64_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; };
        for (int64_t i = 0; i < k; ++i) chosen[i] = i;
        std::make_heap(chosen, chosen + k, is_before);
        auto worst = key(chosen[0]);
        for (int64_t i = k; i < size; ++i) {
          if (key(i) >= worst) continue;
          std::pop_heap(chosen, chosen + k, is_before);
          chosen[k - 1] = i;
          std::push_heap(chosen, chosen + k, is_before);
          worst = key(chosen[0]);
        }
        std::sort_heap(chosen, chosen + k, is_before);
        for (int64_t i = 0; i < k; ++i) static_cast<T*>(values)[row * k + i] = x[chosen[i]];
      }
    });
  });
}

void triangle(const KernelContext&, bool upper, int64_t element_bytes, int64_t matrices, int64_t rows, int64_t columns,
              int64_t diagonal, const void* input, void* out) {
  if (columns == 0) return;  // the pointers may be null
  const std::byte* from = static_cast<const std::byte*>(input);
  std::byte* to = static_cast<std::byte*>(out);
  const int64_t row_bytes = columns * element_bytes;
  parallel_for(matrices * rows, grain_of(columns), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t last = std::clamp<int64_t>(diagonal, -rows, columns) + item % rows;
      const int64_t split = std::clamp<int64_t>(upper ? last : last + 1, 0, columns) * element_bytes;
      const auto [kept, kept_end] = upper ? std::pair(split, row_bytes) : std::pair(int64_t{0}, split);
      const int64_t row = item * row_bytes;
      std::memset(to + row, 0, static_cast<size_t>(kept));
      std::memcpy(to + row + kept, from + row + kept, static_cast<size_t>(kept_end - kept));
      std::memset(to + row + kept_end, 0, static_cast<size_t>(row_bytes - kept_end));
    }
  });
}

}}}  // namespace tandem::v0::cpu

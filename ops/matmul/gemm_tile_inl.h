// Implementation of gemm_tile.h. A file for an instruction set includes it after defining, in its anonymous namespace,
// struct V: Element, Vector, kLanes, kRows, kVectors, zero(), broadcast(float), load(const float*), store(float*,
// Vector), load_some(const float*, n), store_some(float*, Vector, n), dot(a, b, c) of words, fma(a, b, c), multiply,
// add, positive(Vector) (negative -> 0). Everything here is in an anonymous namespace, so that the linker cannot use
// code for wider instructions elsewhere.
#pragma once

#include <tandem/ops/matmul/gemm_tile.h>

namespace tandem { inline namespace v0 { namespace {

constexpr int kColumns = V::kVectors * V::kLanes;

/// Consecutive floats at any address.
typedef float Two __attribute__((vector_size(8), aligned(4), may_alias));
typedef float Four __attribute__((vector_size(16), aligned(1), may_alias));  // also words of bfloat16
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

/// The columns of a 4 x 4 block whose rows are `stride` bytes apart.
struct Columns4 {
  Four at[4];
};
inline Columns4 transpose4(const void* in, long stride) {
  auto row = [&](long i) { return *reinterpret_cast<const Four*>(static_cast<const char*>(in) + i * stride); };
  const Four a = row(0), b = row(1), c = row(2), d = row(3);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return {{__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
           __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
           __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)}};
}

/// The sums of a tile, in registers.
template <int R, int C>
struct Sums {
  V::Vector at[R][C];
};

constexpr long kPair = sizeof(float) / sizeof(V::Element);  // elements of a word, neighbours along k

/// The broadcast words of a tile's rows, one k after the other. last(r) is the last word, if half of it is used.
struct PackedLeft {
  const float* at;
  long stride;
  V::Vector operator()(int r) const { return V::broadcast(at[r]); }
  V::Vector last(int r) const { return V::broadcast(at[r]); }
  void next() { at += stride; }
};

/// Rows whose words are adjacent. kTogether rows share a pointer: their addresses are p, p + stride, p + 2 * stride.
template <int R, int kTogether>
struct LeftRows {
  static constexpr int kPointers = (R + kTogether - 1) / kTogether;
  const char* at[kPointers];
  long stride;  // bytes

  template <class T>
  T read(int r) const {
    T value;
    __builtin_memcpy(&value, at[r / kTogether] + (r % kTogether) * stride, sizeof(T));
    return value;
  }
  V::Vector operator()(int r) const { return V::broadcast(read<float>(r)); }
  V::Vector last(int r) const {
    const unsigned word = read<unsigned short>(r);
    float value;
    __builtin_memcpy(&value, &word, sizeof(value));
    return V::broadcast(value);
  }
  void next() {
    for (int p = 0; p < kPointers; ++p) at[p] += sizeof(float);
  }
};

/// sums += left * right, over k elements.
template <int R, int C, class Left>
inline __attribute__((always_inline)) void add_products(Sums<R, C>& sums, long k, Left left, const float* right,
                                                        long right_stride) {
  const auto add = [&](auto value) __attribute__((always_inline)) {
    typename V::Vector columns[C];
    for (int c = 0; c < C; ++c) columns[c] = V::load(right + c * V::kLanes);
    for (int r = 0; r < R; ++r) {
      const typename V::Vector factor = value(r);
      for (int c = 0; c < C; ++c) sums.at[r][c] = V::dot(factor, columns[c], sums.at[r][c]);
    }
  };
  for (long l = 0; l < k / kPair; ++l) {
    add([&](int r) { return left(r); });
    left.next();
    right += right_stride;
  }
  if (k % kPair != 0) add([&](int r) { return left.last(r); });
}

template <int R, int C>
inline __attribute__((always_inline)) Sums<R, C> multiply_tile(const GemmTile<float>& t) {
  Sums<R, C> sums;
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums.at[r][c] = V::zero();
  }
  if (t.left_rows != nullptr) {
    const float* const* rows = t.left_rows;
    for (long s = 0; s < t.segments; ++s, rows += V::kRows) {
      LeftRows<R, 1> left{{}, 0};
      for (int r = 0; r < R; ++r) left.at[r] = reinterpret_cast<const char*>(rows[r]);
      add_products(sums, t.k, left, t.right + t.segment_offsets[s], t.right_stride);
    }
  } else if (t.left_stride == 0) {
    add_products(sums, t.k, PackedLeft{t.left, t.left_k_stride != 0 ? t.left_k_stride : V::kRows}, t.right,
                 t.right_stride);
  } else {
    LeftRows<R, 3> left{{}, t.left_stride * static_cast<long>(sizeof(V::Element))};
    for (int p = 0; p < left.kPointers; ++p) left.at[p] = reinterpret_cast<const char*>(t.left) + 3 * p * left.stride;
    add_products(sums, t.k, left, t.right, t.right_stride);
  }
  return sums;
}

/// Stores results of rows r, r + 1, ... of a transposed tile; N is float or some floats.
template <class N>
inline __attribute__((always_inline)) void finish(const GemmTile<float>& t, N value, long r, float* to) {
  const auto load = [](const float* from) {  // from any address, which the type of a template argument does not allow
    N loaded;
    __builtin_memcpy(&loaded, from, sizeof(N));
    return loaded;
  };
  if (t.beta != 0) value = value + t.beta * load(to);
  if (t.bias != nullptr) value = value + load(t.bias + r);
  if (t.relu) value = value < N{} ? N{} : value;
  __builtin_memcpy(to, &value, sizeof(N));
}

void store_transposed(const GemmTile<float>& t, const float* values, long stride) {
  const long rows = t.rows;
  long j = 0;
  for (; j + 4 <= t.columns; j += 4) {
    float* const out = t.out + j * t.out_leading;
    long r = 0;
    for (; r + 4 <= rows; r += 4) {
      const Columns4 columns = transpose4(values + r * stride + j, stride * static_cast<long>(sizeof(float)));
      for (int i = 0; i < 4; ++i) finish(t, columns.at[i], r, out + i * t.out_leading + r);
    }
    for (; r + 2 <= rows; r += 2) {
      const float* row = values + r * stride + j;
      for (int i = 0; i < 4; ++i) finish(t, Two{row[i], row[stride + i]}, r, out + i * t.out_leading + r);
    }
    for (; r < rows; ++r) {
      for (int i = 0; i < 4; ++i) finish(t, values[r * stride + j + i], r, out + i * t.out_leading + r);
    }
  }
  for (; j < t.columns; ++j) {
    for (long r = 0; r < rows; ++r) finish(t, values[r * stride + j], r, t.out + j * t.out_leading + r);
  }
}

template <int R, int C>
inline __attribute__((always_inline)) void store_tile(const GemmTile<float>& t, const Sums<R, C>& sums) {
  if (!t.transposed) {
    const typename V::Vector alpha = V::broadcast(t.alpha), beta = V::broadcast(t.beta);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        float* out = t.out + r * t.out_leading + c * V::kLanes;
        const long n = t.columns - c * V::kLanes;
        if (n <= 0) break;
        typename V::Vector value = V::multiply(alpha, sums.at[r][c]);
        if (t.beta != 0) value = V::fma(beta, n >= V::kLanes ? V::load(out) : V::load_some(out, n), value);
        if (t.bias != nullptr) {
          const float* bias = t.bias + c * V::kLanes;
          value = V::add(value, n >= V::kLanes ? V::load(bias) : V::load_some(bias, n));
        }
        if (t.relu) value = V::positive(value);
        n >= V::kLanes ? V::store(out, value) : V::store_some(out, value, n);
      }
    }
    return;
  }
  alignas(64) float values[R * C * V::kLanes];
  const typename V::Vector alpha = V::broadcast(t.alpha);
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) V::store(values + (r * C + c) * V::kLanes, V::multiply(alpha, sums.at[r][c]));
  }
  store_transposed(t, values, C * V::kLanes);
}

template <int R, int C>
void solve_tile(const GemmTile<float>& t) {
  if (!t.transposed) {  // prefetch the cache lines of out while the tile is computed
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C * V::kLanes; c += 16) __builtin_prefetch(t.out + r * t.out_leading + c, 1);
    }
  }
  store_tile<R, C>(t, multiply_tile<R, C>(t));
}

template <int R, int C>
void solve_columns(const GemmTile<float>& t) {
  if constexpr (C > 1) {
    if (t.columns <= (C - 1) * V::kLanes) return solve_columns<R, C - 1>(t);
  }
  solve_tile<R, C>(t);
}

template <int R>
void solve_rows(const GemmTile<float>& t) {
  if constexpr (R > 1) {
    if (t.rows < R) return solve_rows<R - 1>(t);
  }
  solve_columns<R, V::kVectors>(t);
}

void solve(const GemmTile<float>& t) { solve_rows<V::kRows>(t); }

/// The columns of a panel that are written for `columns` columns.
long padded_columns(long columns) { return columns <= 16 ? 16 : (columns + 15) / 16 * 16; }

/// panel[l][j] = word l of column j; the words of a column are adjacent.
void pack_columns(const void* source, long words, long columns, long column_bytes, float* panel) {
  const auto from = [=](long l, long j) {
    return static_cast<const char*>(source) + j * column_bytes + l * static_cast<long>(sizeof(float));
  };
  const auto copy = [&](long l, long j) { __builtin_memcpy(panel + l * kColumns + j, from(l, j), sizeof(float)); };
  // Sixteen words at a time for all columns, so that each cache line of source and panel is loaded once.
  constexpr long kTogether = 16;
  for (long begin = 0; begin < words; begin += kTogether) {
    const long end = begin + kTogether < words ? begin + kTogether : words;
    long j = 0;
    for (; j + 4 <= columns; j += 4) {
      long l = begin;
      for (; l + 4 <= end; l += 4) {
        const Columns4 block = transpose4(from(l, j), column_bytes);
        for (long i = 0; i < 4; ++i) *reinterpret_cast<Four*>(panel + (l + i) * kColumns + j) = block.at[i];
      }
      for (; l < end; ++l) {
        for (long i = 0; i < 4; ++i) copy(l, j + i);
      }
    }
    for (; j < columns; ++j) {
      for (long l = begin; l < end; ++l) copy(l, j);
    }
    for (; j < padded_columns(columns); ++j) {
      for (long l = begin; l < end; ++l) panel[l * kColumns + j] = 0;
    }
  }
}

[[maybe_unused]] void pack_right(const float* source, long k, long columns, long k_stride, long column_stride,
                                 float* panel) {
  if (column_stride != 1) {
    return pack_columns(source, k, columns, column_stride * static_cast<long>(sizeof(float)), panel);
  }
  if (columns == kColumns) {
    for (long l = 0; l < k; ++l) {
      for (int c = 0; c < V::kVectors; ++c) {
        V::store(panel + l * kColumns + c * V::kLanes, V::load(source + l * k_stride + c * V::kLanes));
      }
    }
    return;
  }
  for (long l = 0; l < k; ++l) {
    for (long j = 0; j < padded_columns(columns); j += V::kLanes) {
      const float* from = source + l * k_stride + j;
      const long n = columns - j;
      V::store(panel + l * kColumns + j, n >= V::kLanes ? V::load(from) : n > 0 ? V::load_some(from, n) : V::zero());
    }
  }
}

[[maybe_unused]] void pack_left(const float* source, long k, long rows, long k_stride, float* panel) {
  if (rows == V::kRows) {
    // Copies eight values at a time; the next copy overwrites the excess. The last row is copied exactly.
    static_assert(V::kRows <= 8);
    for (long l = 0; l + 1 < k; ++l) {
      *reinterpret_cast<Eight*>(panel + l * V::kRows) = *reinterpret_cast<const Eight*>(source + l * k_stride);
    }
    for (int i = 0; i < V::kRows; ++i) panel[(k - 1) * V::kRows + i] = source[(k - 1) * k_stride + i];
    return;
  }
  for (long l = 0; l < k; ++l) {
    for (long i = 0; i < V::kRows; ++i) panel[l * V::kRows + i] = i < rows ? source[l * k_stride + i] : 0;
  }
}

}}}  // namespace tandem::v0

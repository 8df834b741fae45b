// Strided loops over tensors of one shape.
//
// A StridedLoop sorts the dimensions by stride (elementwise primitives may visit elements in any order), merges
// dimensions that are contiguous in every tensor, and splits the rest into lines: runs along the innermost dimension.
// Threads get pieces of lines that depend only on the sizes.
#include <tandem/tensor/primitives.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/convert.h>
#include <tandem/tensor/convert_float16_avx2.h>
#include <tandem/tensor/copy_nontemporal_avx2.h>
#include <tandem/tensor/cuda_primitives.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace primitives {

namespace {

// Elements per piece of parallel_for: a wake-up takes some ten microseconds.
constexpr int64_t kGrain = 1 << 16;
// Tile of a transposed copy: wide enough to fill a cache line of floats, and with few enough rows for one set of the L1
// cache, to which all rows of a matrix map if its width is a power of two.
constexpr int64_t kTile = 16;
// Tiles are copied in square blocks, so that the pages of a block stay in the TLB until all of its lines are read.
constexpr int64_t kBlock = 64;
// Copies from this size on use non-temporal stores: cached lines would be evicted before they are read, and a fully
// written line need not be fetched first. Measured 1.7 to 2 times as fast; slower for smaller copies.
constexpr int64_t kNontemporalBytes = int64_t{16} << 20;
constexpr int64_t kNontemporalRun = 4096;    // only for contiguous runs of at least this many bytes
constexpr int64_t kNontemporalPiece = 8192;  // bytes per piece of a sum

/// The dimensions of a loop over kTensors tensors of one shape, outermost first.
template <size_t kTensors>
struct StridedLoop {
  struct Dim {
    int64_t size;
    std::array<int64_t, kTensors> strides;
  };
  SmallVector<Dim, 6> dims;  // at least one

  /// Dimensions are sorted by the strides of the first tensor.
  explicit StridedLoop(const std::array<const TensorImpl*, kTensors>& tensors) {
    if (std::all_of(tensors.begin(), tensors.end(), [](const TensorImpl* t) { return t->is_row_major; })) {
      Dim all{tensors[0]->num_elements, {}};
      all.strides.fill(1);
      dims.push_back(all);
      return;
    }
    const Shape& shape = tensors[0]->shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      Dim dim{shape[d], {}};
      for (size_t i = 0; i < kTensors; ++i) dim.strides[i] = tensors[i]->strides[d];
      dims.push_back(dim);
    }
    std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.strides[0] > b.strides[0]; });
    join();  // dims is not empty: a tensor whose sizes are all 1 is row-major
  }

  int64_t line_size() const { return dims.back().size; }
  int64_t num_lines() const {
    int64_t n = 1;
    for (size_t d = 0; d + 1 < dims.size(); ++d) n *= dims[d].size;
    return n;
  }
  bool has_unit_lines() const {
    const auto& strides = dims.back().strides;
    return std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 1; });
  }

 private:
  void join() {
    size_t kept = 0;
    for (size_t d = 1; d < dims.size(); ++d) {
      Dim& outer = dims[kept];
      const Dim& inner = dims[d];
      bool contiguous = true;
      for (size_t i = 0; i < kTensors; ++i) contiguous &= outer.strides[i] == inner.strides[i] * inner.size;
      if (contiguous) {
        outer = Dim{outer.size * inner.size, inner.strides};
      } else {
        dims[++kept] = inner;
      }
    }
    dims.resize(kept + 1, dims[0]);
  }
};

/// Calls fn(offsets) for each of the positions [begin, end) in the first `num_dims` dimensions, in order; offsets are
/// in elements, one for each tensor.
template <size_t kTensors, class F>
void for_positions(const StridedLoop<kTensors>& loop, size_t num_dims, int64_t begin, int64_t end, const F& fn) {
  SmallVector<int64_t, 6> index(num_dims, 0);
  std::array<int64_t, kTensors> offsets{};
  int64_t rest = begin;
  for (size_t d = num_dims; d-- > 0;) {
    index[d] = rest % loop.dims[d].size;
    rest /= loop.dims[d].size;
    for (size_t i = 0; i < kTensors; ++i) offsets[i] += index[d] * loop.dims[d].strides[i];
  }
  for (int64_t position = begin; position < end; ++position) {
    fn(offsets);
    for (size_t d = num_dims; d-- > 0;) {
      const auto& dim = loop.dims[d];
      for (size_t i = 0; i < kTensors; ++i) offsets[i] += dim.strides[i];
      if (++index[d] < dim.size) break;
      index[d] = 0;
      for (size_t i = 0; i < kTensors; ++i) offsets[i] -= dim.size * dim.strides[i];
    }
  }
}

/// Calls line(offsets, n) for runs of n elements along the innermost dimension that together cover the tensors.
template <size_t kTensors, class F>
void for_lines(const StridedLoop<kTensors>& loop, const F& line) {
  const int64_t n = loop.line_size();
  if (loop.dims.size() == 1) {
    const auto& strides = loop.dims[0].strides;
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      std::array<int64_t, kTensors> offsets;
      for (size_t i = 0; i < kTensors; ++i) offsets[i] = begin * strides[i];
      line(offsets, end - begin);
    });
    return;
  }
  parallel_for(loop.num_lines(), std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    for_positions(loop, loop.dims.size() - 1, begin, end, [&](const auto& offsets) { line(offsets, n); });
  });
}

template <class T>
constexpr bool kIsFloating = std::is_floating_point_v<T> || kIsHalf<T>;

/// Converts n elements; strides are in elements.
using ConvertLine = void (*)(const std::byte* src, int64_t src_stride, std::byte* out, int64_t out_stride, int64_t n);

template <class To, class From>
void convert_line(const std::byte* src_bytes, int64_t src_stride, std::byte* out_bytes, int64_t out_stride, int64_t n) {
  const From* src = reinterpret_cast<const From*>(src_bytes);
  To* out = reinterpret_cast<To*>(out_bytes);
  if (src_stride == 1 && out_stride == 1) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(out, src, static_cast<size_t>(n) * sizeof(To));
    } else if constexpr (std::is_same_v<To, Half> && std::is_same_v<From, float>) {
      to_float16_avx2(src, reinterpret_cast<uint16_t*>(out), static_cast<size_t>(n));
    } else if constexpr (std::is_same_v<To, float> && std::is_same_v<From, Half>) {
      from_float16_avx2(reinterpret_cast<const uint16_t*>(src), out, static_cast<size_t>(n));
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(src[i]);
    }
  } else if (src_stride == 0 && out_stride == 1) {
    std::fill_n(out, n, convert<To>(src[0]));
  } else if (std::is_same_v<To, From> && src_stride == -1 && out_stride == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(src[-i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i * out_stride] = convert<To>(src[i * src_stride]);
  }
}

/// out[r * out_stride + c] = src[c * src_stride + r] for r < rows, c < columns.
using TransposeTile = void (*)(const std::byte* src, int64_t src_stride, std::byte* out, int64_t out_stride,
                               int64_t rows, int64_t columns);

/// 8 x 8 elements of 4 bytes, in registers: three rounds exchange between lines that are 1, 2 and 4 apart.
void transpose_8x8(const uint32_t* src, int64_t src_stride, uint32_t* out, int64_t out_stride) {
  typedef uint32_t Line __attribute__((vector_size(32)));
  Line a[8], b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], src + i * src_stride, sizeof(Line));
  for (int i = 0; i < 8; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = i; j < i + 2; ++j) {
      a[j] = __builtin_shufflevector(b[j], b[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[j + 2] = __builtin_shufflevector(b[j], b[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(out + i * out_stride, &b[i], sizeof(Line));
}

template <class To, class From>
void transpose_tile(const std::byte* src_bytes, int64_t src_stride, std::byte* out_bytes, int64_t out_stride,
                    int64_t rows, int64_t columns) {
  const From* src = reinterpret_cast<const From*>(src_bytes);
  To* out = reinterpret_cast<To*>(out_bytes);
  const auto copy = [&](int64_t num_rows, int64_t num_columns) {
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t c = 0; c < num_columns; ++c) out[r * out_stride + c] = convert<To>(src[c * src_stride + r]);
    }
  };
  if (rows != kTile || columns != kTile) return copy(rows, columns);
  if constexpr (std::is_same_v<To, uint32_t> && std::is_same_v<From, uint32_t>) {
    for (int64_t r = 0; r < kTile; r += 8) {
      for (int64_t c = 0; c < kTile; c += 8) {
        transpose_8x8(src + c * src_stride + r, src_stride, out + r * out_stride + c, out_stride);
      }
    }
  } else {
    copy(kTile, kTile);
  }
}

/// A copy between CPU tensors. Only `line` and `tile` depend on the dtypes, because there are 132 pairs of them.
struct Conversion {
  const std::byte* src;
  int64_t src_size;  // bytes per element
  std::byte* out;
  int64_t out_size;
  ConvertLine line;
  TransposeTile tile;  // null: line by line, which takes twice as long; between types of which one is not floating
};

/// Copies by tiles of two dimensions, the innermost one, contiguous in `out`, and `src_inner`, contiguous in `src`, so
/// that a cache line read for one element is still cached for its neighbours.
void copy_transposed(StridedLoop<2> loop, size_t src_inner, const Conversion& copy) {
  std::rotate(loop.dims.begin() + src_inner, loop.dims.begin() + src_inner + 1, loop.dims.end() - 1);
  const size_t num_outer = loop.dims.size() - 2;
  const auto row = loop.dims[num_outer];         // contiguous in src
  const auto column = loop.dims[num_outer + 1];  // contiguous in out
  const int64_t row_blocks = ceil_div(row.size, kBlock);
  const int64_t column_blocks = ceil_div(column.size, kBlock);
  const int64_t num_matrices = loop.num_lines() / row.size;
  const auto copy_tile = [&](const std::array<int64_t, 2>& offsets, int64_t r, int64_t c) {
    const int64_t rows = std::min(kTile, row.size - r), columns = std::min(kTile, column.size - c);
    const std::byte* const from = copy.src + (offsets[1] + r + c * column.strides[1]) * copy.src_size;
    std::byte* const to = copy.out + (offsets[0] + r * row.strides[0] + c) * copy.out_size;
    if (copy.tile != nullptr) return copy.tile(from, column.strides[1], to, row.strides[0], rows, columns);
    for (int64_t i = 0; i < rows; ++i) {
      copy.line(from + i * copy.src_size, column.strides[1], to + i * row.strides[0] * copy.out_size, 1, columns);
    }
  };
  parallel_for(num_matrices * row_blocks * column_blocks, kGrain / (kBlock * kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t matrix = block / (row_blocks * column_blocks);
      const int64_t first_row = block / column_blocks % row_blocks * kBlock;
      const int64_t first_column = block % column_blocks * kBlock;
      for_positions(loop, num_outer, matrix, matrix + 1, [&](const auto& offsets) {
        for (int64_t c = first_column; c < std::min(first_column + kBlock, column.size); c += kTile) {
          for (int64_t r = first_row; r < std::min(first_row + kBlock, row.size); r += kTile) copy_tile(offsets, r, c);
        }
      });
    }
  });
}

/// Copies `src` to `out`, which is a part of `total_bytes` that are copied together.
void copy_elements(const Tensor& src, const Tensor& out, int64_t total_bytes, const Conversion& copy) {
  const StridedLoop<2> loop({&out.impl(), &src.impl()});
  const auto& inner = loop.dims.back();
  if (inner.strides[0] == 1 && inner.strides[1] > 1) {
    for (size_t d = 0; d + 1 < loop.dims.size(); ++d) {
      if (loop.dims[d].strides[1] == 1) return copy_transposed(loop, d, copy);
    }
  }
  const int64_t run = inner.size * copy.out_size;
  const bool is_nontemporal =
      src.dtype() == out.dtype() && total_bytes >= kNontemporalBytes && run >= kNontemporalRun && loop.has_unit_lines();
  for_lines(loop, [&](const std::array<int64_t, 2>& offsets, int64_t n) {
    const std::byte* const from = copy.src + offsets[1] * copy.src_size;
    std::byte* const to = copy.out + offsets[0] * copy.out_size;
    if (is_nontemporal) {
      copy_nontemporal(to, from, static_cast<size_t>(n * copy.out_size));
    } else {
      copy.line(from, inner.strides[1], to, inner.strides[0], n);
    }
  });
}

/// Calls f.operator()<T>() with the unsigned integer type of the dtype's size: for primitives that move or compare
/// bits.
template <class F>
void visit_size(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

/// Which properties of two tensors must be equal, in addition to the shape.
enum class Alike { kNothing, kDType, kDTypeAndDevice };

void check_pair(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b, Alike alike) {
  const auto operands = [&] { return str("\n  ", a_name, "  ", describe(a), "\n  ", b_name, "  ", describe(b)); };
  TANDEM_CHECK(ShapeError, a.shape() == b.shape(), op, ": shapes differ", operands());
  if (alike == Alike::kNothing) return;
  TANDEM_CHECK(DTypeError, a.dtype() == b.dtype(), op, ": dtypes differ", operands());
  TANDEM_CHECK(DeviceError, alike == Alike::kDType || a.device() == b.device(), op,
               ": operands are on different devices", operands());
}

/// The trace span of a primitive that reads or writes all elements of tensors like `out` a number of `times`.
TraceSpan trace_primitive(const char* name, int64_t times, const Tensor& out) {
  return {name, "copy", times * out.num_bytes()};
}

}  // namespace

void copy_nontemporal(void* out, const void* src, size_t num_bytes) {
  const size_t head =
      kHasNontemporalCopy ? std::min<size_t>(-reinterpret_cast<uintptr_t>(out) % 64, num_bytes) : num_bytes;
  if (num_bytes > 0) std::memcpy(out, src, head);
#if defined(__x86_64__)
  copy_nontemporal_avx2(static_cast<std::byte*>(out) + head, static_cast<const std::byte*>(src) + head,
                        num_bytes - head);
#endif
}

void copy_bytes(Device device, void* out, const void* src, int64_t num_bytes) {
  if (num_bytes == 0) return;
  if (!device.is_cpu()) return cuda::copy_bytes(device, out, src, num_bytes);
  std::memcpy(out, src, static_cast<size_t>(num_bytes));
}

void fill(const Tensor& out, Scalar value) {
  if (out.numel() == 0) return;
  const TraceSpan span = trace_primitive("fill", 1, out);
  if (!out.device().is_cpu()) return cuda::fill(out, value);
  visit_dtype(out.dtype(), [&]<class T>() {
    const T element = value.dtype() == kFloat64 ? convert<T>(value.to_double()) : convert<T>(value.to_int());
    T* data = out.data<T>();
    const StridedLoop<1> loop({&out.impl()});
    const int64_t stride = loop.dims.back().strides[0];
    for_lines(loop, [&](const std::array<int64_t, 1>& offsets, int64_t n) {
      convert_line<T, T>(reinterpret_cast<const std::byte*>(&element), 0,
                         reinterpret_cast<std::byte*>(data + offsets[0]), stride, n);
    });
  });
}

void copy(const Tensor& src, const Tensor& out, int64_t total_bytes) {
  check_pair("copy", "src", src, "out", out, Alike::kNothing);
  if (out.numel() == 0) return;
  const TraceSpan span = trace_primitive("copy", 2, out);
  if (!src.device().is_cpu() || !out.device().is_cpu()) return cuda::copy(src, out);
  Conversion conversion = {src.data_ptr(), size_of(src.dtype()), out.data_ptr(), size_of(out.dtype()), nullptr,
                           nullptr};
  if (src.dtype() == out.dtype()) {
    visit_size(src.dtype(), [&]<class T>() {
      conversion.line = convert_line<T, T>;
      conversion.tile = transpose_tile<T, T>;
    });
  } else {
    visit_dtype(src.dtype(), [&]<class From>() {
      visit_dtype(out.dtype(), [&]<class To>() {
        if constexpr (!std::is_same_v<From, To>) conversion.line = convert_line<To, From>;
        if constexpr (kIsFloating<From> && kIsFloating<To> && !std::is_same_v<From, To>)
          conversion.tile = transpose_tile<To, From>;
      });
    });
  }
  copy_elements(src, out, std::max(total_bytes, out.num_bytes()), conversion);
}

bool can_read(Device device, Device memory) {
  return device.is_cpu() ? memory.is_cpu() : !memory.is_cpu() && cuda::can_access_peer(device, memory);
}

void sum(std::span<const Tensor> inputs, const Tensor& out, int64_t total_bytes) {
  std::vector<const std::byte*> data;
  for (const Tensor& input : inputs) {
    check_pair("sum", "input", input, "out", out, Alike::kDType);
    TANDEM_CHECK(ShapeError, input.is_contiguous() && out.is_contiguous(), "sum: a tensor is not row-major");
    TANDEM_CHECK(DeviceError, can_read(out.device(), input.device()), "sum: ", out.device(), " cannot read memory of ",
                 input.device());
    data.push_back(input.data_ptr());
  }
  const TraceSpan span = trace_primitive("sum", static_cast<int64_t>(inputs.size()) + 1, out);
  if (!out.device().is_cpu()) return cuda::sum(inputs, out);
  const int64_t element = size_of(out.dtype());
  if (std::max(total_bytes, out.num_bytes()) < kNontemporalBytes) {
    return reduce(ReduceOp::kSum, out.dtype(), data, out.numel(), out.data_ptr());
  }
  // Sum into a piece that stays in the L1 cache, then write it with non-temporal stores.
  alignas(64) std::byte piece[kNontemporalPiece];
  for (int64_t begin = 0; begin < out.num_bytes(); begin += kNontemporalPiece) {
    const int64_t n = std::min(kNontemporalPiece, out.num_bytes() - begin);
    reduce(ReduceOp::kSum, out.dtype(), data, n / element, piece);
    copy_nontemporal(out.data_ptr() + begin, piece, static_cast<size_t>(n));
    for (const std::byte*& input : data) input += n;
  }
}

void add_into(const Tensor& src, const Tensor& out) {
  check_pair("add_into", "src", src, "out", out, Alike::kDTypeAndDevice);
  if (out.numel() == 0) return;
  const TraceSpan span = trace_primitive("add_into", 3, out);
  if (!out.device().is_cpu()) return cuda::add_into(src, out);
  visit_dtype(out.dtype(), [&]<class T>() {
    const T* from = src.data<T>();
    T* to = out.data<T>();
    const StridedLoop<2> loop({&out.impl(), &src.impl()});
    const auto strides = loop.dims.back().strides;
    const bool unit = loop.has_unit_lines();
    for_lines(loop, [&](const std::array<int64_t, 2>& offsets, int64_t n) {
      T* a = to + offsets[0];
      const T* b = from + offsets[1];
      if (unit) {
        for (int64_t i = 0; i < n; ++i) a[i] = add(a[i], b[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) a[i * strides[0]] = add(a[i * strides[0]], b[i * strides[1]]);
      }
    });
  });
}

bool bytes_equal(const Tensor& a, const Tensor& b) {
  check_pair("bytes_equal", "a", a, "b", b, Alike::kDTypeAndDevice);
  if (a.numel() == 0) return true;
  if (!a.device().is_cpu()) return cuda::bytes_equal(a, b);
  std::atomic<bool> equal{true};
  visit_size(a.dtype(), [&]<class T>() {
    const T* a_data = reinterpret_cast<const T*>(a.data_ptr());
    const T* b_data = reinterpret_cast<const T*>(b.data_ptr());
    const StridedLoop<2> loop({&a.impl(), &b.impl()});
    const auto strides = loop.dims.back().strides;
    const bool unit = loop.has_unit_lines();
    for_lines(loop, [&](const std::array<int64_t, 2>& offsets, int64_t n) {
      const T* x = a_data + offsets[0];
      const T* y = b_data + offsets[1];
      bool same = true;
      if (unit) {
        same = std::memcmp(x, y, static_cast<size_t>(n) * sizeof(T)) == 0;
      } else {
        for (int64_t i = 0; i < n; ++i) same &= x[i * strides[0]] == y[i * strides[1]];
      }
      if (!same) equal.store(false, std::memory_order_relaxed);
    });
  });
  return equal;
}

}}}  // namespace tandem::v0::primitives

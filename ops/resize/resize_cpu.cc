// CPU kernel of interpolate and its gradient.
//
// Channels-last images are computed element by element, vectorized over channels. For planes the two axes are computed
// one after the other: if the height grows, rows with the result's columns are computed once and kept in a buffer of
// the accumulation type; if it shrinks, the rows of each result are summed first. The order of additions depends on
// sizes alone.
#include <algorithm>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/simd.h>
#include <tandem/ops/resize/resize_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

using Tables = ResizeShape<ResizeTable>;

constexpr int64_t kGrainElements = 1 << 14;  // per piece of parallel work
constexpr int64_t kBlockRows = 64;           // results' rows that are computed together
constexpr int64_t kStripe = 256;             // results' columns that are computed together
constexpr int64_t kBufferRows = 32;          // rows of kStripe elements
constexpr int64_t kBuffer = kBufferRows * kStripe;

/// Results [begin, end) of a row. from[0] is source `first` of the row.
template <int kTaps, class C, class From, class To>
void combine_columns(const ResizeTable& axis, int64_t begin, int64_t end, int64_t first, const From* from, To* to) {
  const C* weights = static_cast<const C*>(axis.weights);
  for (int64_t x = begin; x < end; ++x) {
    const int64_t t_begin = kTaps > 0 ? x * kTaps : axis.begin[x];
    const int64_t t_end = kTaps > 0 ? t_begin + kTaps : axis.begin[x + 1];
    C sum = 0;
    for (int64_t t = t_begin; t < t_end; ++t) sum += weights[t] * static_cast<C>(from[axis.index[t] - first]);
    to[x - begin] = static_cast<To>(sum);
  }
}
template <class C, class From, class To>
void combine_columns(const ResizeTable& axis, int64_t begin, int64_t end, int64_t first, const From* from, To* to) {
  switch (axis.num_taps) {
    case 1: return combine_columns<1, C>(axis, begin, end, first, from, to);
    case 2: return combine_columns<2, C>(axis, begin, end, first, from, to);
    case 4: return combine_columns<4, C>(axis, begin, end, first, from, to);
    default: return combine_columns<0, C>(axis, begin, end, first, from, to);
  }
}

/// Row y of results, n columns. row(i) is source i's row.
template <class C, class Row, class To>
void combine_rows(const ResizeTable& axis, int64_t y, int64_t n, Row row, To* to) {
  const C* weights = static_cast<const C*>(axis.weights);
  for_vecs<C>(n, [&]<class V>(int64_t x) {
    V sum = {};
    for (int64_t t = axis.begin[y]; t < axis.begin[y + 1]; ++t) sum += load_as<V>(row(axis.index[t]) + x) * weights[t];
    store_as<V>(to + x, sum);
  });
}

/// One result [y, x] of a channels-last image, for the channels of kCount adjacent V. `in` and `out` are at the first.
template <class V, int kCount, class T, class C = Accumulator<T>>
inline void combine_pixels(const Tables& shape, int64_t channels, int64_t y, int64_t x, const T* in, T* out) {
  constexpr int64_t kStep = sizeof(V) / sizeof(C);
  const ResizeTable &rows = shape.height, &columns = shape.width;
  const C *row_weights = static_cast<const C*>(rows.weights), *weights = static_cast<const C*>(columns.weights);
  V sum[kCount] = {};
  for (int64_t s = rows.begin[y]; s < rows.begin[y + 1]; ++s) {
    const T* row = in + rows.index[s] * columns.num_sources * channels;
    V line[kCount] = {};
    for (int64_t t = columns.begin[x]; t < columns.begin[x + 1]; ++t) {
      const T* from = row + columns.index[t] * channels;
      for (int v = 0; v < kCount; ++v) line[v] += load_as<V>(from + v * kStep) * weights[t];
    }
    for (int v = 0; v < kCount; ++v) sum[v] += line[v] * row_weights[s];
  }
  for (int v = 0; v < kCount; ++v) store_as<V>(out + v * kStep, sum[v]);
}

/// Results [x_begin, x_end) of row y of a channels-last image; `out` is the first one.
template <class T>
void resize_pixels(const Tables& shape, int64_t channels, int64_t y, int64_t x_begin, int64_t x_end, const T* image,
                   T* out) {
  using C = Accumulator<T>;
  constexpr int64_t kBlock = 4 * kVecSize<C>;
  for (int64_t x = x_begin; x < x_end; ++x, out += channels) {
    int64_t first = 0;
    for (; first + kBlock <= channels; first += kBlock) {
      combine_pixels<Vec<C>, 4>(shape, channels, y, x, image + first, out + first);
    }
    for_vecs<C>(channels - first, [&]<class V>(int64_t c) {
      combine_pixels<V, 1>(shape, channels, y, x, image + first + c, out + first + c);
    });
  }
}

struct Range {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

/// The sources of the results [begin, end).
Range sources_of(const ResizeTable& axis, int64_t begin, int64_t end) {
  const int64_t first = axis.begin[begin], last = axis.begin[end];
  if (first == last) return {0, 0};
  return {axis.index[first], axis.index[last - 1] + 1};
}

/// Results ys x xs of a plane.
template <class T>
void resize_tile(const Tables& shape, Range ys, Range xs, const T* plane, T* out) {
  using C = Accumulator<T>;
  const ResizeTable &rows = shape.height, &columns = shape.width;
  const Range sources = sources_of(columns, xs.begin, xs.end);
  const int64_t n = xs.size();
  const bool rows_first = rows.num_results < rows.num_sources && sources.size() <= kBuffer;
  C buffer[kBuffer];
  int64_t num_buffered = 0;  // the needed source rows before this one are in the buffer
  for (int64_t y = ys.begin; y < ys.end; ++y) {
    T* to = out + y * columns.num_results + xs.begin;
    if (rows_first) {
      combine_rows<C>(
          rows, y, sources.size(), [&](int64_t i) { return plane + i * columns.num_sources + sources.begin; }, buffer);
      combine_columns<C>(columns, xs.begin, xs.end, sources.begin, buffer, to);
      continue;
    }
    const Range needed = sources_of(rows, y, y + 1);
    if (needed.size() > kBufferRows) {
      resize_pixels(shape, 1, y, xs.begin, xs.end, plane, to);
      continue;
    }
    const auto buffered = [&](int64_t i) { return buffer + i % kBufferRows * kStripe; };
    for (int64_t i = std::max(needed.begin, num_buffered); i < needed.end; ++i) {
      combine_columns<C>(columns, xs.begin, xs.end, 0, plane + i * columns.num_sources, buffered(i));
    }
    num_buffered = std::max(num_buffered, needed.end);
    combine_rows<C>(rows, y, n, buffered, to);
  }
}

}  // namespace

void resize(const KernelContext&, DType dtype, const ResizeMap& map, const void* in, void* out) {
  const Tables& shape = map.tables;
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t height = shape.height.num_results, width = shape.width.num_results;
  const int64_t image_elements = shape.height.num_sources * shape.width.num_sources * pixel;
  const int64_t block_rows = shape.channels_last ? 1 : kBlockRows, blocks = ceil_div(height, block_rows);
  const int64_t grain = std::max<int64_t>(1, kGrainElements / (block_rows * width * pixel));
  visit_floating_dtype(dtype, [&]<class T>() {
    parallel_for(images * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks, y = i % blocks * block_rows;
        const T* from = static_cast<const T*>(in) + image * image_elements;
        T* to = static_cast<T*>(out) + image * height * width * pixel;
        if (shape.channels_last) {
          resize_pixels(shape, pixel, y, 0, width, from, to + y * width * pixel);
          continue;
        }
        for (int64_t x = 0; x < width; x += kStripe) {
          const Range ys = {y, std::min(y + kBlockRows, height)}, xs = {x, std::min(x + kStripe, width)};
          resize_tile(shape, ys, xs, from, to);
        }
      }
    });
  });
}

}}}  // namespace tandem::v0::cpu

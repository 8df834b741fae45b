// im2col: gathers the inputs of each result of a convolution into one row. Private to ops/.
//
// A *position* is an element of a grid, for which one row is gathered from a channels-last *source*: for each tap, by
// rows and columns of the filter, the channels of one group. Positions are numbered image by image, row by row. The
// forward pass has one grid, whose positions are its outputs. The gradient of the input gathers from the gradient of
// the output: inputs whose indices have the same remainder modulo the stride have the same taps, so there is one grid,
// and one set of taps, per pair of remainders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include <tandem/base/math.h>
#include <tandem/ops/conv/conv_kernels.h>

namespace tandem { inline namespace v0 {

/// One axis of a grid of positions, height or width.
struct Im2colAxis {
  int64_t positions = 0;
  int64_t source = 0;  ///< size of the source
  int64_t step = 1;    ///< pixels of the source from one position to the next
  int64_t taps = 0;
  int64_t first = 0;       ///< pixel of tap 0 of position 0; may be outside the source
  int64_t tap_step = 1;    ///< pixels from one tap to the next
  int64_t first_tap = 0;   ///< index in the filter of tap 0
  int64_t tap_stride = 1;  ///< taps of the filter from one tap of the grid to the next
  int64_t out_first = 0;   ///< index in the result of position 0
  int64_t out_stride = 1;  ///< indices in the result from one position to the next

  static Im2colAxis forward(int64_t size, int64_t out, int64_t kernel, int64_t stride, int64_t padding,
                            int64_t dilation) {
    return {.positions = out, .source = size, .step = stride, .taps = kernel, .first = -padding, .tap_step = dilation};
  }

  /// The inputs `remainder`, `remainder` + stride, .... Output (i + padding - t * dilation) / stride reads input i by
  /// tap t, if the division is exact. Taps are in descending order, so that outputs ascend.
  static Im2colAxis backward(int64_t size, int64_t out, int64_t kernel, int64_t stride, int64_t padding,
                             int64_t dilation, int64_t remainder) {
    Im2colAxis side{.source = out, .out_first = remainder, .out_stride = stride};
    side.positions = (size - remainder + stride - 1) / stride;
    const int64_t common = std::gcd(stride, dilation);
    const int64_t period = stride / common;  // distance of taps for which the division is exact
    int64_t tap = 0;
    while (tap < std::min(period, kernel) && (remainder + padding - tap * dilation) % stride != 0) ++tap;
    if (tap >= std::min(period, kernel)) return side;
    side.taps = (kernel - 1 - tap) / period + 1;
    side.first_tap = tap + (side.taps - 1) * period;
    side.tap_stride = -period;
    side.first = (remainder + padding - side.first_tap * dilation) / stride;
    side.tap_step = dilation / common;
    return side;
  }
};

struct Im2colGrid {
  int64_t batch = 0;
  Im2colAxis y, x;
  int64_t source_channels = 0;  ///< elements from one pixel of the source to the next
  int64_t channels = 0;         ///< channels per group

  int64_t rows() const { return batch * y.positions * x.positions; }
  int64_t row_length() const { return y.taps * x.taps * channels; }

  static Im2colGrid forward(const ConvGeometry& g) {
    return {g.batch,
            Im2colAxis::forward(g.size.height, g.out.height, g.kernel.height, g.stride.height, g.padding.height,
                                g.dilation.height),
            Im2colAxis::forward(g.size.width, g.out.width, g.kernel.width, g.stride.width, g.padding.width,
                                g.dilation.width),
            g.channels, g.group_channels()};
  }
  static Im2colGrid backward(const ConvGeometry& g, int64_t remainder_y, int64_t remainder_x) {
    return {g.batch,
            Im2colAxis::backward(g.size.height, g.out.height, g.kernel.height, g.stride.height, g.padding.height,
                                 g.dilation.height, remainder_y),
            Im2colAxis::backward(g.size.width, g.out.width, g.kernel.width, g.stride.width, g.padding.width,
                                 g.dilation.width, remainder_x),
            g.out_channels, g.group_out_channels()};
  }

  /// Whether rows can be read from the source without gathering: the row of position i begins at element i *
  /// source_channels.
  bool is_source() const {
    auto plain = [](const Im2colAxis& side) {
      return side.taps == 1 && side.first == 0 && side.step == 1 && side.positions == side.source;
    };
    return plain(y) && plain(x);
  }
};

/// Calls f(grid) for the grids of the gradient of the input.
template <class F>
void for_backward_grids(const ConvGeometry& g, F f) {
  for (int64_t y = 0; y < std::min(g.stride.height, g.size.height); ++y) {
    for (int64_t x = 0; x < std::min(g.stride.width, g.size.width); ++x) f(Im2colGrid::backward(g, y, x));
  }
}

/// Copies `count` consecutive elements. Most runs are too short for a call of memcpy.
template <class T>
inline void copy_run(const T* from, int64_t count, T* to) {
  if (count >= 64) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

/// copy_run in steps of at most 32 bytes: reads and writes up to kOvershoot elements after the run.
constexpr int64_t kOvershoot = 8;
template <class T>
inline void copy_steps(const T* from, int64_t count, T* to) {
  constexpr int64_t kStep = std::min<int64_t>(kOvershoot, 32 / sizeof(T));
  for (int64_t i = 0; i < count; i += kStep) std::memcpy(to + i, from + i, kStep * sizeof(T));
}

/// Calls write(row - begin, column, values, count) for runs of consecutive elements of the rows [begin, end); `values`
/// is null for zeros. `source` points to the first channel of the group.
template <class T, class Write>
void for_im2col_runs(const Im2colGrid& grid, const T* source, int64_t begin, int64_t end, Write write) {
  const Im2colAxis &y = grid.y, &x = grid.x;
  const int64_t line = x.taps * grid.channels;
  const bool runs = x.tap_step == 1 && grid.channels == grid.source_channels;
  int64_t at_x = begin % x.positions, at_y = begin / x.positions % y.positions;
  int64_t image = begin / (x.positions * y.positions);
  for (int64_t row = 0; row < end - begin; ++row) {
    const T* pixels = source + image * y.source * x.source * grid.source_channels;
    const int64_t source_x = at_x * x.step + x.first;
    for (int64_t tap_y = 0; tap_y < y.taps; ++tap_y) {
      const int64_t source_y = at_y * y.step + y.first + tap_y * y.tap_step;
      const int64_t column = tap_y * line;
      if (source_y < 0 || source_y >= y.source) {
        write(row, column, static_cast<const T*>(nullptr), line);
        continue;
      }
      const T* from = pixels + source_y * x.source * grid.source_channels;
      if (runs) {
        const int64_t low = std::clamp<int64_t>(-source_x, 0, x.taps);
        const int64_t high = std::clamp<int64_t>(x.source - source_x, low, x.taps);
        if (low > 0) write(row, column, static_cast<const T*>(nullptr), low * grid.channels);
        if (high > low) {
          write(row, column + low * grid.channels, from + (source_x + low) * grid.channels,
                (high - low) * grid.channels);
        }
        if (high < x.taps) {
          write(row, column + high * grid.channels, static_cast<const T*>(nullptr), (x.taps - high) * grid.channels);
        }
        continue;
      }
      for (int64_t tap_x = 0; tap_x < x.taps; ++tap_x) {
        const int64_t pixel = source_x + tap_x * x.tap_step;
        const bool inside = pixel >= 0 && pixel < x.source;
        write(row, column + tap_x * grid.channels, inside ? from + pixel * grid.source_channels : nullptr,
              grid.channels);
      }
    }
    if (++at_x == x.positions) {
      at_x = 0;
      if (++at_y == y.positions) {
        at_y = 0;
        ++image;
      }
    }
  }
}

/// Elements from one gathered row to the next, including space for the overshoot of copy_steps.
inline int64_t im2col_stride(const Im2colGrid& grid) { return (grid.row_length() + 7) / 8 * 8 + kOvershoot; }

/// Gathers rows [begin, end) into a matrix of im2col_stride(grid) columns.
template <class T>
void gather_rows(const Im2colGrid& grid, const T* source, int64_t begin, int64_t end, T* out) {
  const Im2colAxis &y = grid.y, &x = grid.x;
  const int64_t stride = im2col_stride(grid), line = x.taps * grid.channels, step = x.step * grid.channels;
  if (x.tap_step != 1 || grid.channels != grid.source_channels) {
    for_im2col_runs(grid, source, begin, end, [=](int64_t row, int64_t column, const T* values, int64_t count) {
      T* to = out + row * stride + column;
      values == nullptr ? static_cast<void>(std::fill_n(to, count, T(0))) : copy_run(values, count, to);
    });
    return;
  }
  // Copies the taps of one filter row for all positions of a grid row. A later copy overwrites the overshoot of an
  // earlier one.
  const T* const source_end = source + grid.batch * y.source * x.source * grid.channels;
  for (int64_t row = begin; row < end;) {
    const int64_t first_x = row % x.positions, at_y = row / x.positions % y.positions;
    const int64_t image = row / (x.positions * y.positions);
    const int64_t count = std::min(end - row, x.positions - first_x);
    // Positions whose taps are all inside the source: [low, high).
    const int64_t low = std::clamp<int64_t>(ceil_div(-x.first, x.step) - first_x, 0, count);
    const int64_t fitting = x.source - x.taps - x.first;
    const int64_t high = std::clamp<int64_t>(fitting < 0 ? 0 : fitting / x.step + 1 - first_x, low, count);
    for (int64_t tap_y = 0; tap_y < y.taps; ++tap_y) {
      T* to = out + (row - begin) * stride + tap_y * line;
      const int64_t source_y = at_y * y.step + y.first + tap_y * y.tap_step;
      if (source_y < 0 || source_y >= y.source) {
        for (int64_t i = 0; i < count; ++i) std::fill_n(to + i * stride, line, T(0));
        continue;
      }
      const T* pixels = source + (image * y.source + source_y) * x.source * grid.channels;
      auto border = [&](int64_t i) {
        const int64_t source_x = (first_x + i) * x.step + x.first;
        const int64_t from = std::clamp<int64_t>(-source_x, 0, x.taps);
        const int64_t past = std::clamp<int64_t>(x.source - source_x, from, x.taps);
        if (past == from) return static_cast<void>(std::fill_n(to + i * stride, line, T(0)));
        std::fill_n(to + i * stride, from * grid.channels, T(0));
        copy_run(pixels + (source_x + from) * grid.channels, (past - from) * grid.channels,
                 to + i * stride + from * grid.channels);
        std::fill_n(to + i * stride + past * grid.channels, (x.taps - past) * grid.channels, T(0));
      };
      for (int64_t i = 0; i < low; ++i) border(i);
      const T* from = pixels + (high > low ? ((first_x + low) * x.step + x.first) * grid.channels : 0);
      const bool room = high > low && from + (high - low - 1) * step + line + kOvershoot <= source_end;
      if (room && line < 64) {
        for (int64_t i = low; i < high; ++i, from += step) copy_steps(from, line, to + i * stride);
      } else {
        for (int64_t i = low; i < high; ++i, from += step) copy_run(from, line, to + i * stride);
      }
      for (int64_t i = high; i < count; ++i) border(i);
    }
    row += count;
  }
}

/// Writes the results of positions [begin, end), rows of `columns`, to their pixels.
template <class T>
void scatter_rows(const Im2colGrid& grid, const T* results, int64_t columns, int64_t begin, int64_t end, T* out,
                  int64_t out_channels, Size2d out_size) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t x = grid.x.out_first + row % grid.x.positions * grid.x.out_stride;
    const int64_t y = grid.y.out_first + row / grid.x.positions % grid.y.positions * grid.y.out_stride;
    const int64_t image = row / (grid.x.positions * grid.y.positions);
    copy_run(results + (row - begin) * columns, columns,
             out + ((image * out_size.height + y) * out_size.width + x) * out_channels);
  }
}

}}  // namespace tandem::v0

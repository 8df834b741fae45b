// Tiles of Winograd's algorithm, their transforms, transformed filters, and products; used by conv_winograd_cpu.cc
// only. Private to ops/.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tandem/base/math.h>
#include <tandem/ops/conv/conv_passes.h>
#include <tandem/ops/conv/conv_winograd.h>

namespace tandem { inline namespace v0 { namespace cpu::winograd {

constexpr int64_t kMaxTasks = 16;
constexpr int64_t kAllPoints = kPoints * kPoints;
/// Padding in floats between the blocks of two points: without it, the 36 blocks would be powers of two apart and map
/// to a few sets of the cache.
constexpr int64_t kPad = 16;

inline Vec load(const float* p, int64_t count) {
  if (count >= kLanes) return *reinterpret_cast<const Vec*>(p);
  Vec value = {};
  for (int64_t i = 0; i < count; ++i) value[i] = p[i];
  return value;
}

inline void store(float* p, Vec value, int64_t count) {
  if (count >= kLanes) {
    *reinterpret_cast<Vec*>(p) = value;
    return;
  }
  for (int64_t i = 0; i < count; ++i) p[i] = value[i];
}

/// The channels of a group in a channels-last tensor.
struct Map {
  int64_t height, width, channels;
  int64_t pixel;  ///< elements from one pixel to the next

  static Map input(const ConvGeometry& g) { return {g.size.height, g.size.width, g.group_channels(), g.channels}; }
  static Map output(const ConvGeometry& g) {
    return {g.out.height, g.out.width, g.group_out_channels(), g.out_channels};
  }
};

/// The position of a tile.
struct Place {
  int64_t image, y, x;
};

/// The tiles that cover a result.
struct Tiles {
  int64_t size;  ///< results per tile along one side
  int64_t rows, columns, count;

  Tiles(int64_t batch, Size2d result, int64_t tile_size)
      : size(tile_size),
        rows(ceil_div(result.height, tile_size)),
        columns(ceil_div(result.width, tile_size)),
        count(batch * rows * columns) {}

  Place place(int64_t tile) const {
    return {tile / (rows * columns), tile / columns % rows * size, tile % columns * size};
  }
};

/// Pixels [y, y + N) x [x, x + N) of a map, zeros outside the map, for 8 channels from `channel` on: out[i][j].
template <int N>
inline __attribute__((always_inline)) void load_square(const float* image, const Map& map, int64_t y, int64_t x,
                                                       bool inside, int64_t channel, int64_t count, Vec (*out)[N]) {
  const int64_t line = map.width * map.pixel;
  const int64_t begin = y * line + x * map.pixel + channel;
  if (inside) {
    for (int64_t i = 0; i < N; ++i) {
      for (int64_t j = 0; j < N; ++j) {
        out[i][j] = *reinterpret_cast<const Vec*>(image + (begin + i * line + j * map.pixel));
      }
    }
    return;
  }
  for (int64_t i = 0; i < N; ++i) {
    const bool row = y + i >= 0 && y + i < map.height;
    for (int64_t j = 0; j < N; ++j) {
      const bool pixel = row && x + j >= 0 && x + j < map.width;
      out[i][j] = pixel ? load(image + (begin + i * line + j * map.pixel), count) : Vec{};
    }
  }
}

using Transform = void (*)(const Vec* in, Vec* out);  // of a column or a row

/// Applies `transform`, from N values to P values, to the columns and then to the rows of a square.
template <int N, int P>
inline __attribute__((always_inline)) void transform_square(const Vec (*in)[N], Vec (*out)[P], Transform transform) {
  Vec half[P][N];
  for (int j = 0; j < N; ++j) {
    Vec column[N], result[P];
    for (int i = 0; i < N; ++i) column[i] = in[i][j];
    transform(column, result);
    for (int i = 0; i < P; ++i) half[i][j] = result[i];
  }
  for (int i = 0; i < P; ++i) transform(half[i], out[i]);
}

/// Transforms the N x N pixels of a tile for all channels, rounded up to full vectors. The values of point p begin at
/// out + p * point_stride.
template <int N>
void transform_tile(const float* map_data, const Map& map, const Place& place, float* out, int64_t point_stride,
                    Transform transform) {
  const float* image = map_data + place.image * map.height * map.width * map.pixel;
  const bool covered = place.y >= 0 && place.x >= 0 && place.y + N <= map.height && place.x + N <= map.width;
  for (int64_t channel = 0; channel < map.channels; channel += kLanes) {
    const int64_t count = std::min(kLanes, map.channels - channel);
    Vec square[N][N], points[kPoints][kPoints];
    load_square<N>(image, map, place.y, place.x, covered && count == kLanes, channel, count, square);
    transform_square<N, kPoints>(square, points, transform);
    for (int64_t p = 0; p < kAllPoints; ++p) {
      *reinterpret_cast<Vec*>(out + p * point_stride + channel) = points[p / kPoints][p % kPoints];
    }
  }
}

/// Filters in panels of the columns of a product. Forward, columns are filters and rows are channels; with `backward`
/// (the gradient of the input), columns are channels and rows are filters.
template <int R>
struct FilterPanels {
  const float* weight;
  int64_t depth, columns;  ///< rows and columns of the product's right side
  int64_t width;           ///< of a panel, a multiple of 16
  bool backward;
  bool turned;  ///< taps in reverse order

  int64_t panels() const { return ceil_div(columns, width); }

  /// Transforms rows [begin, end) of a panel. The rows of point p, of length `width`, begin at out + p * point_stride.
  void transform(int64_t panel, int64_t begin, int64_t end, float* out, int64_t point_stride) const {
    constexpr int64_t kAllTaps = R * R, kColumns = 16, kChunk = 16;
    alignas(64) float taps[kChunk * kAllTaps * kColumns];
    for (int64_t part = 0; part < width; part += kColumns) {
      const int64_t column = panel * width + part, count = std::clamp<int64_t>(columns - column, 0, kColumns);
      for (int64_t row = begin; row < end; row += kChunk) {
        const int64_t rows = std::min(kChunk, end - row);
        if (backward) {
          for (int64_t i = 0; i < rows; ++i) {
            kGemmAvx2.pack_right(weight + ((row + i) * columns + column) * kAllTaps, kAllTaps, count, 1, kAllTaps,
                                 taps + i * kAllTaps * kColumns);
          }
        } else {
          kGemmAvx2.pack_right(weight + (column * depth + row) * kAllTaps, rows * kAllTaps, count, 1, depth * kAllTaps,
                               taps);
        }
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t lane = 0; lane < kColumns; lane += kLanes) {
            Vec square[R][R], points[kPoints][kPoints];
            for (int64_t t = 0; t < kAllTaps; ++t) {
              const int64_t from = turned ? kAllTaps - 1 - t : t;
              square[t / R][t % R] = *reinterpret_cast<const Vec*>(taps + (i * kAllTaps + from) * kColumns + lane);
            }
            transform_square<R, kPoints>(square, points, Winograd<R>::filter);
            float* to = out + (row - begin + i) * width + part + lane;
            for (int64_t p = 0; p < kAllPoints; ++p) {
              *reinterpret_cast<Vec*>(to + p * point_stride) = points[p / kPoints][p % kPoints];
            }
          }
        }
      }
    }
  }
};

/// left @ right for some rows at one point, by GEMM micro-kernels.
inline void multiply(const GemmKernels& kernels, int64_t rows, int64_t columns, int64_t depth, const float* left,
                     int64_t left_stride, const float* right, int64_t right_stride, bool add, float* out,
                     int64_t out_stride) {
  GemmTile<float> tile{};
  tile.k = depth;
  tile.left_stride = left_stride;
  tile.right_stride = right_stride;
  tile.alpha = 1;
  tile.beta = add ? 1.0f : 0.0f;
  tile.out_leading = out_stride;
  for (int64_t j = 0; j < columns; j += kernels.columns) {
    tile.columns = std::min(kernels.columns, columns - j);
    tile.right = right + j;
    for (int64_t i = 0; i < rows; i += kernels.rows) {
      tile.rows = std::min(kernels.rows, rows - i);
      tile.left = left + i * left_stride;
      tile.out = out + i * out_stride + j;
      kernels.tile(tile);
    }
  }
}

}}}  // namespace tandem::v0::cpu::winograd

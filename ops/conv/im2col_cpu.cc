// Convolutions by im2col and matrix products.
//
// Forward, and gradient of the input: rows of a grid (im2col.h) are gathered in pieces that stay in the cache, or read
// in place, and each piece is multiplied by the filters, which are packed once per call. Gradient of the weight: the
// transposed gradient of the output times the rows, summed over pieces of rows in slices; the sums of slices are added
// in order. Pieces and slices depend only on sizes, so results do not depend on the number of threads.
#include <algorithm>
#include <type_traits>
#include <utility>

#include <Eigen/Core>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/conv/conv_passes.h>
#include <tandem/ops/conv/im2col.h>
#include <tandem/ops/matmul/gemm_blocks.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Maximum number of tasks per call, each with its own scratch memory.
constexpr int64_t kMaxTasks = 16;

/// Micro-kernels whose packed panels have 16 columns.
template <class T>
const TileKernels<T>& tiles_of_16() {
  if constexpr (std::is_same_v<T, double>) {
    return kPlainTiles<double>;
  } else {
    return kGemmAvx2;
  }
}

/// The filters of a group as the right side of the product: row (tap_y, tap_x, channel), column.
template <class T>
struct FilterMatrix {
  const T* data;  ///< element of tap (0, 0), channel 0, column 0
  int64_t column_stride, channel_stride;
  int64_t kernel_width;
  const Im2colGrid& grid;
  int64_t columns;

  const T* element(int64_t row, int64_t column) const {
    const int64_t channel = row % grid.channels, tap = row / grid.channels;
    const int64_t y = grid.y.first_tap + tap / grid.x.taps * grid.y.tap_stride;
    const int64_t x = grid.x.first_tap + tap % grid.x.taps * grid.x.tap_stride;
    return data + column * column_stride + channel * channel_stride + y * kernel_width + x;
  }
};

/// Products of rows x depth by depth x columns, where the right side is packed in advance.
template <class T>
class PackedGemm;

template <>
class PackedGemm<double> {
 public:
  PackedGemm(const GemmKernels&, int64_t depth, int64_t columns) : depth_(depth), columns_(columns) {}

  int64_t packed_elements() const { return depth_ * columns_; }

  void pack(const FilterMatrix<double>& filters, double* packed) const {
    parallel_for(depth_, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, columns_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t l = begin; l < end; ++l) {
                     for (int64_t j = 0; j < columns_; ++j) packed[l * columns_ + j] = *filters.element(l, j);
                   }
                 });
  }

  void multiply(int64_t rows, const double* left, int64_t left_stride, const double* packed, const double* bias,
                bool relu, double* out, int64_t out_leading) const {
    using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using Stride = Eigen::OuterStride<>;
    Eigen::Map<Matrix, 0, Stride> result(out, rows, columns_, Stride(out_leading));
    result.setZero();
    if (depth_ > 0) {
      result.noalias() += Eigen::Map<const Matrix, 0, Stride>(left, rows, depth_, Stride(left_stride)) *
                          Eigen::Map<const Matrix>(packed, depth_, columns_);
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        const double value = out[i * out_leading + j] + (bias != nullptr ? bias[j] : 0.0);
        out[i * out_leading + j] = relu && value < 0 ? 0.0 : value;
      }
    }
  }

 private:
  int64_t depth_, columns_;
};

/// The tiles of rows x columns results. `tile` has what they share and the first panel of right, from which the others
/// follow in steps of `panel` elements; set_left(tile, i) sets the left side of the rows from i on.
template <class F>
void multiply_panels(const GemmKernels& kernels, int64_t rows, int64_t columns, int64_t panel, const float* bias,
                     GemmTile<float> tile, F set_left) {
  float* const out = tile.out;
  for (int64_t j = 0; j < columns; j += kernels.columns, tile.right += panel) {
    tile.columns = std::min(kernels.columns, columns - j);
    tile.bias = bias != nullptr ? bias + j : nullptr;
    for (int64_t i = 0; i < rows; i += kernels.rows) {
      tile.rows = std::min(kernels.rows, rows - i);
      tile.out = out + i * tile.out_leading + j;
      set_left(tile, i);
      kernels.tile(tile);
    }
  }
}

template <>
class PackedGemm<float> {
 public:
  PackedGemm(const GemmKernels& kernels, int64_t depth, int64_t columns)
      : kernels_(kernels), depth_(depth), columns_(columns) {
    constexpr int64_t kMaxDepth = 1024;
    block_ = std::max<int64_t>(1, ceil_div(depth, std::max<int64_t>(1, ceil_div(depth, kMaxDepth))));
  }

  int64_t packed_elements() const { return depth_ * round_up(columns_, kernels_.columns); }

  void pack(const FilterMatrix<float>& filters, float* packed) const {
    const int64_t panels = ceil_div(columns_, kernels_.columns), width = kernels_.columns;
    parallel_for(panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t count = std::min(width, columns_ - panel * width);
        if (std::min(filters.channel_stride, filters.column_stride) == 1) {
          for (int64_t l = 0; l < depth_; l += block_) {
            kernels_.pack_right(filters.element(l, panel * width), std::min(block_, depth_ - l), count,
                                filters.channel_stride, filters.column_stride, at(packed, l, panel));
          }
          continue;
        }
        for (int64_t l = 0; l < depth_; ++l) {
          const float* from = filters.element(l, panel * width);
          float* to = at(packed, l, panel);
          for (int64_t j = 0; j < count; ++j) to[j] = from[j * filters.column_stride];
          std::fill(to + count, to + width, 0.0f);
        }
      }
    });
  }

  void multiply(int64_t rows, const float* left, int64_t left_stride, const float* packed, const float* bias, bool relu,
                float* out, int64_t out_leading) const {
    for (int64_t begin = 0; begin == 0 || begin < depth_; begin += block_) {
      const bool last = begin + block_ >= depth_;
      GemmTile<float> tile{};
      tile.k = std::min(block_, depth_ - begin);
      tile.left_stride = left_stride;
      tile.right = at(packed, begin, 0);
      tile.right_stride = kernels_.columns;
      tile.alpha = 1;
      tile.beta = begin == 0 ? 0.0f : 1.0f;
      tile.relu = relu && last;
      tile.out = out;
      tile.out_leading = out_leading;
      multiply_panels(kernels_, rows, columns_, tile.k * kernels_.columns, last ? bias : nullptr, tile,
                      [=](GemmTile<float>& t, int64_t i) { t.left = left + i * left_stride + begin; });
    }
  }

 private:
  /// Row l of a panel: blocks of depth are stored one after the other, each with its panels.
  template <class Pointer>
  Pointer at(Pointer packed, int64_t l, int64_t panel) const {
    const int64_t block = l / block_ * block_;
    const int64_t block_depth = std::min(block_, depth_ - block);
    return packed + block * round_up(columns_, kernels_.columns) +
           (panel * block_depth + (l - block)) * kernels_.columns;
  }

  const GemmKernels& kernels_;
  int64_t depth_, columns_;
  int64_t block_;  ///< depth of a block
};

/// GEMM of a convolution that reads the source in place. Each tap is a segment of gemm_tile.h; its rows are pixels of
/// the source, or zeros where the tap is outside of the source. The filters of all taps are packed once; each grid uses
/// some of them.
struct TapGemm {
  const GemmKernels& kernels;
  int64_t taps, channels, columns;

  TapGemm(ConvPass pass, const ConvGeometry& g, const GemmKernels& gemm_kernels)
      : kernels(gemm_kernels), taps(g.taps()), channels(g.group_out_channels()), columns(g.group_channels()) {
    if (pass == ConvPass::kForward) std::swap(channels, columns);
  }

  /// Whether it computes the convolution. With few channels, gathered rows have longer runs.
  template <class T>
  static bool can(ConvPass pass, const ConvGeometry& g) {
    constexpr int64_t kMinChannels = 16, kMaxChannels = 1024;
    const int64_t channels = pass == ConvPass::kForward ? g.group_channels() : g.group_out_channels();
    return std::is_same_v<T, float> && channels >= kMinChannels && channels <= kMaxChannels &&
           !Im2colGrid::forward(g).is_source();
  }

  int64_t panels() const { return ceil_div(columns, kernels.columns); }
  int64_t tap_elements() const { return panels() * channels * kernels.columns; }
  /// Includes the zeros that stand for pixels outside of the source.
  int64_t packed_elements() const { return taps * tap_elements() + round_up(channels, 16); }
  /// Elements for the pointers and offsets of `rows` positions of a grid.
  static int64_t table_elements(const Im2colGrid& grid, int64_t rows) {
    return round_up((rows + 1) * grid.y.taps * grid.x.taps * int64_t{sizeof(void*) / sizeof(float)}, 16);
  }

  /// Packs the filters: element (tap, channel, column) is weight[column * column_stride + channel * channel_stride +
  /// tap].
  void pack(const float* weight, int64_t column_stride, int64_t channel_stride, float* packed) const {
    const int64_t width = kernels.columns;
    std::fill_n(packed + taps * tap_elements(), channels, 0.0f);
    parallel_for(panels(), 1, [&](int64_t first, int64_t past) {
      constexpr int64_t kTaps = 64, kColumns = 16;
      float block[kTaps * kColumns];
      for (int64_t column = first * width; column < std::min(columns, past * width); column += kColumns) {
        const float* from = weight + column * column_stride;
        float* to = packed + column / width * channels * width + column % width;
        const int64_t count = std::min(kColumns, columns - column);
        for (int64_t c = 0; c < channels; ++c, from += channel_stride, to += width) {
          for (int64_t tap = 0; tap < taps; tap += kTaps) {
            const int64_t some = std::min(kTaps, taps - tap);
            tiles_of_16<float>().pack_right(from + tap, some, count, 1, column_stride, block);
            for (int64_t t = 0; t < some; ++t)
              std::copy_n(block + t * kColumns, kColumns, to + (tap + t) * tap_elements());
          }
        }
      }
    });
  }

  /// Fills the table with the rows of the segments of positions [begin, end), and the offsets of the segments.
  void point(const Im2colGrid& grid, int64_t kernel_width, const float* source, const float* zeros, int64_t begin,
             int64_t end, const float** rows, long* offsets) const {
    const Im2colAxis &y = grid.y, &x = grid.x;
    const int64_t all = y.taps * x.taps;
    for (int64_t tap = 0; tap < all; ++tap) {
      offsets[tap] =
          ((y.first_tap + tap / x.taps * y.tap_stride) * kernel_width + x.first_tap + tap % x.taps * x.tap_stride) *
          tap_elements();
    }
    int64_t at_x = begin % x.positions, at_y = begin / x.positions % y.positions;
    int64_t image = begin / (x.positions * y.positions);
    for (int64_t i = 0; i < end - begin; ++i) {
      const float** to = rows + i / kernels.rows * kernels.rows * all + i % kernels.rows;
      for (int64_t tap_y = 0; tap_y < y.taps; ++tap_y) {
        const int64_t pixel_y = at_y * y.step + y.first + tap_y * y.tap_step;
        for (int64_t tap_x = 0; tap_x < x.taps; ++tap_x, to += kernels.rows) {
          const int64_t pixel_x = at_x * x.step + x.first + tap_x * x.tap_step;
          const bool inside = pixel_y >= 0 && pixel_y < y.source && pixel_x >= 0 && pixel_x < x.source;
          const int64_t pixel = (image * y.source + pixel_y) * x.source + pixel_x;
          *to = inside ? source + pixel * grid.source_channels : zeros;
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

  /// The results of positions [begin, end). `table` is scratch memory of table_elements().
  void multiply(const Im2colGrid& grid, int64_t kernel_width, const float* source, int64_t begin, int64_t end,
                float* table, const float* packed, const float* bias, bool relu, float* out,
                int64_t out_leading) const {
    const int64_t segments = grid.y.taps * grid.x.taps;
    long* const offsets = reinterpret_cast<long*>(table);
    const float** const left_rows = reinterpret_cast<const float**>(offsets + segments);
    point(grid, kernel_width, source, packed + taps * tap_elements(), begin, end, left_rows, offsets);
    constexpr int64_t kMaxDepth = 1024;
    const int64_t block = kMaxDepth / channels;
    for (int64_t first = 0; first == 0 || first < segments; first += block) {
      const bool last = first + block >= segments;
      GemmTile<float> tile{};
      tile.k = channels;
      tile.segments = std::min(block, segments - first);
      tile.segment_offsets = offsets + first;
      tile.right = packed;
      tile.right_stride = kernels.columns;
      tile.alpha = 1;
      tile.beta = first == 0 ? 0.0f : 1.0f;
      tile.relu = relu && last;
      tile.out = out;
      tile.out_leading = out_leading;
      const float* const* const rows = left_rows + first * kernels.rows;
      multiply_panels(kernels, end - begin, columns, channels * kernels.columns, last ? bias : nullptr, tile,
                      [=](GemmTile<float>& t, int64_t i) { t.left_rows = rows + i * segments; });
    }
  }
};

/// One im2col grid times the filters of a group.
template <class T>
struct Im2colGemm {
  const Im2colGrid& grid;
  const TapGemm* taps;  ///< null: the left side are gathered rows, or the source if it has the same rows
  PackedGemm<T> product;
  int64_t columns;
  int64_t piece_rows;
  int64_t pieces, tasks;
  bool gathers;
  bool scatters;  ///< results are not consecutive

  Im2colGemm(const Im2colGrid& patches, const TapGemm* tap_gemm, const GemmKernels& kernels, int64_t columns_)
      : grid(patches), taps(tap_gemm), product(kernels, patches.row_length(), columns_), columns(columns_) {
    // About 2^16 elements of a piece stay in the cache together with the panels. At least 48 rows, so that the filters
    // are not read too often.
    constexpr int64_t kPieceElements = 1 << 16;
    piece_rows = std::clamp<int64_t>(kPieceElements / std::max<int64_t>(1, grid.row_length()) / 48, 1, 4) * 48;
    pieces = columns == 0 ? 0 : ceil_div(grid.rows(), piece_rows);
    tasks = std::min(kMaxTasks, pieces);
    gathers = taps == nullptr && !grid.is_source();
    scatters = grid.y.out_stride != 1 || grid.x.out_stride != 1;
  }

  int64_t left_elements() const {
    return taps != nullptr ? TapGemm::table_elements(grid, piece_rows)
           : gathers       ? round_up(piece_rows * im2col_stride(grid), 16)
                           : 0;
  }
  int64_t task_elements() const { return left_elements() + (scatters ? round_up(piece_rows * columns, 16) : 0); }
  int64_t packed_elements() const {
    return taps != nullptr ? taps->packed_elements() : round_up(product.packed_elements(), 16);
  }
  int64_t workspace_elements() const { return packed_elements() + tasks * task_elements(); }

  /// out: position (0, 0) of a result of out_height x out_width pixels with out_channels channels. The workspace begins
  /// with the filters that `taps` has packed.
  void run(const FilterMatrix<T>& filters, const T* source, const T* bias, bool relu, T* workspace, T* out,
           int64_t out_channels, Size2d out_size) const {
    if (pieces == 0) return;
    if (taps == nullptr) product.pack(filters, workspace);
    parallel_for(tasks, 1, [&](int64_t first, int64_t past) {
      for (int64_t task = first; task < past; ++task) {
        T* const own = workspace + packed_elements() + task * task_elements();
        T* const results = own + left_elements();
        for (int64_t piece = task * pieces / tasks; piece < (task + 1) * pieces / tasks; ++piece) {
          const int64_t begin = piece * piece_rows, end = std::min(grid.rows(), begin + piece_rows);
          T* const to = scatters ? results : out + begin * out_channels;
          const int64_t leading = scatters ? columns : out_channels;
          if constexpr (std::is_same_v<T, float>) {
            if (taps != nullptr) {
              taps->multiply(grid, filters.kernel_width, source, begin, end, own, workspace, bias, relu, to, leading);
            }
          }
          if (taps == nullptr) {
            if (gathers) gather_rows(grid, source, begin, end, own);
            const T* const left = gathers ? own : source + begin * grid.source_channels;
            // A stride of 0 would mean a packed left side.
            const int64_t stride = gathers ? im2col_stride(grid) : std::max<int64_t>(1, grid.source_channels);
            product.multiply(end - begin, left, stride, workspace, bias, relu, to, leading);
          }
          if (scatters) scatter_rows(grid, results, columns, begin, end, out, out_channels, out_size);
        }
      }
    });
  }
};

/// Calls f(grid) for the grids of forward or of the gradient of the input.
template <class F>
void for_grids(ConvPass pass, const ConvGeometry& g, F f) {
  if (pass == ConvPass::kForward) return f(Im2colGrid::forward(g));
  for_backward_grids(g, f);
}

/// The gradient of the weight of one group.
template <class T>
struct WeightGradientGemm {
  const ConvGeometry& geometry;
  const Im2colGrid grid;
  const GemmKernels& kernels;
  int64_t filters, depth;  ///< rows and columns of the gradient while it is summed
  int64_t panel_width, panels;
  int64_t columns_per_task, column_tasks, piece_rows, slices;

  WeightGradientGemm(const ConvGeometry& g, const GemmKernels& gemm_kernels)
      : geometry(g),
        grid(Im2colGrid::forward(g)),
        kernels(gemm_kernels),
        filters(g.group_out_channels()),
        depth(grid.row_length()),
        panel_width(gemm_kernels.columns),
        panels(std::max<int64_t>(1, ceil_div(depth, panel_width))) {
    // Tasks are panels of columns, divided further into slices of rows if there are too few panels; each slice needs an
    // addition.
    columns_per_task = panel_width * ceil_div(panels, kMaxTasks);
    column_tasks = std::max<int64_t>(1, ceil_div(depth, columns_per_task));
    // About 2^17 elements of the matrix at a time stay in the cache.
    constexpr int64_t kPieceElements = 1 << 17;
    piece_rows = std::clamp<int64_t>(kPieceElements / right_stride() / 64, 2, 8) * 64;
    slices = std::clamp<int64_t>(ceil_div(grid.rows(), piece_rows), 1, ceil_div(kMaxTasks, column_tasks));
  }

  /// Whether the matrix is the source, whose rows end with full vectors.
  bool reads_source() const { return grid.is_source() && depth % 16 == 0; }
  int64_t sum_elements() const { return round_up(filters * depth, 16); }
  /// With many columns, it is faster to copy the gradients into packed panels.
  bool packs() const { return columns_per_task > 4 * panel_width; }
  int64_t left_elements() const { return packs() ? round_up(piece_rows * round_up(filters, kernels.rows), 16) : 0; }
  int64_t right_stride() const { return column_tasks == 1 ? im2col_stride(grid) : columns_per_task + kOvershoot; }
  /// Micro-kernels read full vectors, also after the last row.
  int64_t right_elements() const { return round_up(piece_rows * right_stride(), 16) + panel_width; }
  int64_t task_elements() const { return left_elements() + right_elements(); }
  int64_t workspace_elements() const { return slices * sum_elements() + slices * column_tasks * task_elements(); }

  void run(const T* source, const T* grad, T beta, T* workspace, T* weight_grad) const {
    if (filters == 0 || depth == 0) return;
    const int64_t pieces = ceil_div(grid.rows(), piece_rows);
    parallel_for(slices * column_tasks, 1, [&](int64_t first, int64_t past) {
      for (int64_t task = first; task < past; ++task) {
        const int64_t slice = task % slices, column = task / slices * columns_per_task;
        T* left = workspace + slices * sum_elements() + task * task_elements();
        T* sums = workspace + slice * sum_elements();
        const int64_t begin = slice * pieces / slices, end = (slice + 1) * pieces / slices;
        const int64_t columns = std::min(columns_per_task, depth - column);
        if (!reads_source()) fill_padding(columns, left + left_elements());
        if (begin == end) {
          for (int64_t o = 0; o < filters; ++o) std::fill_n(sums + o * depth + column, columns, T(0));
        }
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t row = piece * piece_rows, rows = std::min(piece_rows, grid.rows() - row);
          add_piece(source, grad, row, rows, column, columns, piece == begin, left, left + left_elements(),
                    sums + column);
        }
      }
    });
    parallel_for(filters, std::max<int64_t>(1, (1 << 14) / depth), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        T* const total = workspace + o * depth;
        for (int64_t s = 1; s < slices; ++s) {
          const T* const more = total + s * sum_elements();
          for (int64_t i = 0; i < depth; ++i) total[i] += more[i];
        }
        store_filter(total, beta, weight_grad + o * depth);
      }
    });
  }

  /// Micro-kernels compute with the padding too: uninitialized elements could raise floating-point exceptions.
  void fill_padding(int64_t columns, T* right) const {
    for (int64_t row = 0; row < piece_rows; ++row) {
      std::fill(right + row * right_stride() + columns, right + (row + 1) * right_stride(), T(0));
    }
    std::fill(right + piece_rows * right_stride(), right + right_elements(), T(0));
  }

  /// Stores the gradient of a filter: sums are [tap][channel], weights [channel][tap].
  void store_filter(const T* sums, T beta, T* out) const {
    const auto store_run = [beta](const T* from, int64_t count, T* to) {
      if (beta == 0) return copy_run(from, count, to);
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    };
    const int64_t taps = geometry.taps(), channels = grid.channels;
    if (taps == 1) return store_run(sums, channels, out);
    constexpr int64_t kTaps = 16, kChannels = 32;  // of a block that is transposed
    T block[kChannels * kTaps];
    for (int64_t tap = 0; tap < taps; tap += kTaps) {
      const int64_t some_taps = std::min(kTaps, taps - tap);
      for (int64_t c = 0; c < channels; c += kChannels) {
        const int64_t some_channels = std::min(kChannels, channels - c);
        tiles_of_16<T>().pack_right(sums + tap * channels + c, some_channels, some_taps, 1, channels, block);
        for (int64_t i = 0; i < some_channels; ++i) {
          store_run(block + i * kTaps, some_taps, out + (c + i) * taps + tap);
        }
      }
    }
  }

  /// sums[o][j] (+)= sum over rows of grad[row][o] * im2col[row][column + j]; rows of sums have `depth` elements.
  void add_piece(const T* source, const T* grad, int64_t row, int64_t rows, int64_t column, int64_t columns, bool first,
                 T* left, T* right, T* sums) const {
    grad += row * geometry.out_channels;
    const T* matrix = right;
    int64_t stride = right_stride();
    if (reads_source()) {
      matrix = source + row * grid.source_channels + column;
      stride = grid.source_channels;
    } else if (columns == depth) {
      gather_rows(grid, source, row, row + rows, right);
    } else {
      gather_columns(source, row, rows, column, columns, right);
    }
    if constexpr (std::is_same_v<T, double>) {
      using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
      using Stride = Eigen::OuterStride<>;
      Eigen::Map<Matrix, 0, Stride> out(sums, filters, columns, Stride(depth));
      if (first) out.setZero();
      out.noalias() +=
          Eigen::Map<const Matrix, 0, Stride>(grad, rows, filters, Stride(geometry.out_channels)).transpose() *
          Eigen::Map<const Matrix, 0, Stride>(matrix, rows, columns, Stride(stride));
    } else {
      const bool pack = packs();
      for (int64_t o = 0; pack && o < filters; o += kernels.rows) {
        kernels.pack_left(grad + o, rows, std::min(kernels.rows, filters - o), geometry.out_channels, left + o * rows);
      }
      GemmTile<float> tile{};
      tile.k = rows;
      tile.left_k_stride = pack ? 0 : geometry.out_channels;
      tile.right_stride = stride;
      tile.alpha = 1;
      tile.beta = first ? 0.0f : 1.0f;
      tile.out_leading = depth;
      for (int64_t j = 0; j < columns; j += panel_width) {
        tile.columns = std::min(panel_width, columns - j);
        tile.right = matrix + j;
        for (int64_t o = 0; o < filters; o += kernels.rows) {
          tile.rows = std::min(kernels.rows, filters - o);
          tile.left = pack ? left + o * rows : grad + o;
          tile.out = sums + o * depth + j;
          kernels.tile(tile);
        }
      }
    }
  }

  /// Gathers columns [column, column + columns) of some rows.
  void gather_columns(const T* source, int64_t row, int64_t rows, int64_t column, int64_t columns, T* right) const {
    for_im2col_runs(grid, source, row, row + rows, [=, this](int64_t i, int64_t run, const T* values, int64_t count) {
      int64_t j = run - column;
      if (j < 0) {
        count += j;
        if (values != nullptr) values -= j;
        j = 0;
      }
      count = std::min(count, columns - j);
      if (count <= 0) return;
      T* to = right + i * right_stride() + j;
      values == nullptr ? static_cast<void>(std::fill_n(to, count, T(0))) : copy_run(values, count, to);
    });
  }
};

}  // namespace

template <class T>
int64_t im2col_conv_workspace_bytes(ConvPass pass, const ConvGeometry& g, const GemmKernels& kernels) {
  int64_t elements = 0;
  if (pass == ConvPass::kBackwardWeight) {
    elements = WeightGradientGemm<T>(g, kernels).workspace_elements();
  } else {
    const TapGemm taps(pass, g, kernels);
    for_grids(pass, g, [&](const Im2colGrid& grid) {
      const Im2colGemm<T> product(grid, taps.can<T>(pass, g) ? &taps : nullptr, kernels, taps.columns);
      elements = std::max(elements, product.workspace_elements());
    });
  }
  return elements * static_cast<int64_t>(sizeof(T));
}

template <class T>
void im2col_conv(ConvPass pass, const ConvGeometry& g, const GemmKernels& kernels, const ConvData<T>& data) {
  T* workspace = static_cast<T*>(data.workspace);
  const TapGemm taps(pass, g, kernels);
  const bool forward = pass == ConvPass::kForward, uses_taps = TapGemm::can<T>(pass, g);
  const int64_t of_filter = g.group_channels() * g.taps();  // elements
  const int64_t column_stride = forward ? of_filter : g.taps(), channel_stride = forward ? g.taps() : of_filter;
  for (int64_t group = 0; group < g.groups; ++group) {
    const ConvData<T> part = group_data(pass, g, data, group);
    if (pass == ConvPass::kBackwardWeight) {
      WeightGradientGemm<T>(g, kernels).run(part.input, part.grad, static_cast<T>(data.beta), workspace, part.out);
      continue;
    }
    if constexpr (std::is_same_v<T, float>) {
      if (uses_taps) taps.pack(part.weight, column_stride, channel_stride, workspace);
    }
    for_grids(pass, g, [&](const Im2colGrid& grid) {
      Im2colGemm<T>(grid, uses_taps ? &taps : nullptr, kernels, taps.columns)
          .run({part.weight, column_stride, channel_stride, g.kernel.width, grid, taps.columns},
               forward ? part.input : part.grad, part.bias, data.relu, workspace, part.out,
               forward ? g.out_channels : g.channels, forward ? g.out : g.size);
    });
  }
}

template int64_t im2col_conv_workspace_bytes<float>(ConvPass, const ConvGeometry&, const GemmKernels&);
template int64_t im2col_conv_workspace_bytes<double>(ConvPass, const ConvGeometry&, const GemmKernels&);
template void im2col_conv<float>(ConvPass, const ConvGeometry&, const GemmKernels&, const ConvData<float>&);
template void im2col_conv<double>(ConvPass, const ConvGeometry&, const GemmKernels&, const ConvData<double>&);

}}}  // namespace tandem::v0::cpu

// Convolutions with narrow groups: D = 1, 2, 4 or 8 channels and as many filters; depthwise ones have D = 1.
//
// The kernels of depthwise_row.h compute one row of results; a tile of sums stays in registers: of several results, or
// of several taps. Forward and the gradient of the input sum the taps of a grid (im2col.h); the gradient of the weight
// is summed in slices of the results, which are added in order.
#include <algorithm>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/conv/conv_passes.h>
#include <tandem/ops/conv/depthwise_row.h>
#include <tandem/ops/conv/im2col.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Positions of a row per task, so that long rows have several.
constexpr int64_t kSegment = 128;
constexpr int64_t kMaxSlices = 16;

template <class T>
const DepthwiseKernels<T>& depthwise_kernels() {
  if constexpr (std::is_same_v<T, double>) {
    return kDepthwiseDouble;
  } else {
    return has_avx512() ? kDepthwiseAvx512 : kDepthwiseAvx2;
  }
}

/// A grid, divided into parts of rows.
template <class T>
struct Segments {
  const Im2colGrid& grid;
  int64_t channels, width;  ///< channels of the tensors, and of a group
  int64_t kernel_width;
  Size2d out_size;  ///< of the image to which the grid's results belong

  int64_t per_row() const { return ceil_div(grid.x.positions, kSegment); }
  int64_t count() const { return grid.batch * grid.y.positions * per_row(); }

  /// Part i of the rows; `results` is an image of out_size.
  DepthwiseRow<T> at(int64_t i, const T* source, T* filters, T* results) const {
    const Im2colAxis &y = grid.y, &x = grid.x;
    const int64_t row = i / per_row(), image = row / y.positions, at_y = row % y.positions;
    const int64_t begin = i % per_row() * kSegment, end = std::min(begin + kSegment, x.positions);
    // Positions whose taps are all inside the source.
    const int64_t last = x.source - 1 - x.first - (x.taps - 1) * x.tap_step;
    const int64_t low = std::clamp(ceil_div(-x.first, x.step), begin, end);
    const int64_t high = last < 0 ? low : std::clamp(last / x.step + 1, low, end);
    // Taps of the column that are inside the source.
    const int64_t first_y = at_y * y.step + y.first;
    const int64_t tap = first_y >= 0 ? 0 : std::min(y.taps, ceil_div(-first_y, y.tap_step));
    const int64_t past = first_y >= y.source ? 0 : std::min(y.taps, (y.source - 1 - first_y) / y.tap_step + 1);
    const int64_t factors = width * channels;  // of a tap
    return {.channels = channels,
            .width = width,
            .x_begin = begin,
            .x_end = end,
            .inside_begin = low,
            .inside_end = high,
            .taps = x.taps,
            .pixels = x.source,
            .first = x.first,
            .step = x.step,
            .tap_step = x.tap_step,
            .rows = std::max<int64_t>(0, past - tap),
            .source = source + (image * y.source + first_y + tap * y.tap_step) * x.source * channels,
            .source_row = y.tap_step * x.source * channels,
            .filters = filters + ((y.first_tap + tap * y.tap_stride) * kernel_width + x.first_tap) * factors,
            .filter_row = y.tap_stride * kernel_width * factors,
            .filter_tap = x.tap_stride * factors,
            .results = results +
                       ((image * out_size.height + y.out_first + at_y * y.out_stride) * out_size.width + x.out_first) *
                           channels,
            .result_step = x.out_stride * channels,
            .bias = nullptr,
            .relu = false};
  }
};

/// The filters of a pass in the order of depthwise_row.h.
template <class T>
void transpose_filters(ConvPass pass, const ConvGeometry& g, const T* weight, T* filters) {
  const int64_t width = g.group_channels();
  for (int64_t tap = 0; tap < g.taps(); ++tap) {
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t c = 0; c < g.channels; ++c) {
        const int64_t at = pass == ConvPass::kForward ? c * width + i : (c / width * width + i) * width + c % width;
        filters[(tap * width + i) * g.channels + c] = weight[at * g.taps() + tap];
      }
    }
  }
}

/// Slices of the gradient of the weight.
template <class T>
int64_t num_slices(const Segments<T>& segments) {
  return std::clamp<int64_t>(segments.count(), 1, kMaxSlices);
}

template <class T>
void backward_weight(const ConvGeometry& g, const Segments<T>& segments, const ConvData<T>& data) {
  T* const sums = static_cast<T*>(data.workspace);
  const int64_t elements = g.weight_elements(), slices = num_slices(segments), count = segments.count();
  const DepthwiseKernels<T>& kernels = depthwise_kernels<T>();
  parallel_for(slices, 1, [&](int64_t first, int64_t past) {
    for (int64_t slice = first; slice < past; ++slice) {
      T* const own = sums + slice * elements;
      std::fill_n(own, elements, T(0));
      for (int64_t i = slice * count / slices; i < (slice + 1) * count / slices; ++i) {
        kernels.add_gradients(segments.at(i, data.input, own, const_cast<T*>(data.grad)));  // which is only read
      }
    }
  });
  for (int64_t at = 0; at < elements; ++at) {  // in the order of the weight
    const int64_t tap = at % g.taps(), i = at / g.taps() % segments.width, c = at / g.taps() / segments.width;
    const T* const from = sums + (tap * segments.width + i) * g.channels + c;
    T total = from[0];
    for (int64_t slice = 1; slice < slices; ++slice) total += from[slice * elements];
    data.out[at] = data.beta == 0 ? total : data.out[at] + total;
  }
}

}  // namespace

bool depthwise_can(const ConvGeometry& g) {
  if (g.channels != g.out_channels || g.channels == 0) return false;
  constexpr int64_t kLanes = 16;
  const int64_t width = g.group_channels();
  return width == 1 || ((width == 2 || width == 4 || width == 8) && g.channels % kLanes == 0);
}

template <class T>
int64_t depthwise_workspace_bytes(ConvPass pass, const ConvGeometry& g) {
  const Im2colGrid grid = Im2colGrid::forward(g);
  const Segments<T> segments{grid, g.channels, g.group_channels(), g.kernel.width, g.out};
  const int64_t copies = pass == ConvPass::kBackwardWeight ? num_slices(segments) : 1;
  return copies * g.weight_elements() * static_cast<int64_t>(sizeof(T));
}

template <class T>
void depthwise_conv(ConvPass pass, const ConvGeometry& g, const ConvData<T>& data) {
  const auto segments_of = [&](const Im2colGrid& grid, Size2d out_size) {
    return Segments<T>{grid, g.channels, g.group_channels(), g.kernel.width, out_size};
  };
  const Im2colGrid forward = Im2colGrid::forward(g);
  if (pass == ConvPass::kBackwardWeight) return backward_weight(g, segments_of(forward, g.out), data);
  T* const filters = static_cast<T*>(data.workspace);
  transpose_filters(pass, g, data.weight, filters);
  const auto sum = [&](const Segments<T>& segments, const T* source) {
    parallel_for(segments.count(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        DepthwiseRow<T> row = segments.at(i, source, filters, data.out);
        row.bias = data.bias;
        row.relu = data.relu;
        depthwise_kernels<T>().sum(row);
      }
    });
  };
  if (pass == ConvPass::kForward) return sum(segments_of(forward, g.out), data.input);
  for_backward_grids(g, [&](const Im2colGrid& grid) { sum(segments_of(grid, g.size), data.grad); });
}

template int64_t depthwise_workspace_bytes<float>(ConvPass, const ConvGeometry&);
template int64_t depthwise_workspace_bytes<double>(ConvPass, const ConvGeometry&);
template void depthwise_conv<float>(ConvPass, const ConvGeometry&, const ConvData<float>&);
template void depthwise_conv<double>(ConvPass, const ConvGeometry&, const ConvData<double>&);

}}}  // namespace tandem::v0::cpu

// Winograd's algorithm for 3 x 3 and 5 x 5 filters with stride and dilation 1 (conv_winograd.h).
//
// The result is divided into *tiles* of 4 x 4 pixels (5 x 5 filters: 2 x 2), which are computed from 6 x 6 *points*. At
// every point, the transformed inputs, a matrix of tiles x channels, are multiplied by the transformed filters,
// channels x filters; the products are transformed back. The gradient of the input uses the same steps with reversed
// filters. The gradient of the weight multiplies, at every point, the transformed gradients of the result, filters x
// tiles, by the transformed inputs.
//
// Groups are computed one after the other. Transforms are vectorized over adjacent channels. Tiles, and filters in
// *panels*, are processed in blocks, so that transformed data is used while it is in the cache.
#include <algorithm>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/conv/conv_passes.h>
#include <tandem/ops/conv/conv_winograd_tiles.h>

namespace tandem { inline namespace v0 { namespace cpu {

using namespace winograd;

namespace {

/// The forward pass, or the gradient of the input.
///
/// With more tiles than columns, all filters are transformed first, and tasks are blocks of tiles. Otherwise the inputs
/// are transformed first, and tasks are panels of filters, whose transforms stay in the cache.
template <int R>
struct WinogradConv {
  static constexpr int64_t kResults = Winograd<R>::kResults;
  static constexpr int64_t kPanel = 32;
  static constexpr int64_t kDepthBlock = 128;

  const GemmKernels& kernels;
  int64_t batch;
  Map source, result;
  int64_t offset_y, offset_x;  ///< from a tile's first result to its first input
  Tiles tiles;
  int64_t depth;  ///< channels of the source, rounded up to full vectors
  int64_t panels;
  bool filters_first;
  int64_t block;  ///< tiles per matrix product
  int64_t tasks;

  WinogradConv(const ConvGeometry& g, bool backward, const GemmKernels& gemm_kernels)
      : kernels(gemm_kernels),
        batch(g.batch),
        source(backward ? Map::output(g) : Map::input(g)),
        result(backward ? Map::input(g) : Map::output(g)),
        offset_y(backward ? g.padding.height - (R - 1) : -g.padding.height),
        offset_x(backward ? g.padding.width - (R - 1) : -g.padding.width),
        tiles(g.batch, {result.height, result.width}, kResults),
        depth(round_up(source.channels, kLanes)),
        panels(ceil_div(result.channels, kPanel)) {
    filters_first = tiles.count > result.channels;
    // The transformed inputs of a block take about 128 KiB.
    constexpr int64_t kBlockFloats = 1 << 15;
    block = filters_first ? std::clamp<int64_t>(kBlockFloats / (kAllPoints * depth) / 6, 2, 8) * 6 : tiles.count;
    tasks = std::min(kMaxTasks, filters_first ? ceil_div(tiles.count, block) : panels);
  }

  int64_t filter_point() const {
    return (filters_first ? source.channels : std::min(kDepthBlock, source.channels)) * kPanel + kPad;
  }
  int64_t input_point() const { return block * depth + kPad; }
  int64_t result_point() const { return block * kPanel + kPad; }
  int64_t shared_floats() const { return kAllPoints * (filters_first ? panels * filter_point() : input_point()); }
  int64_t task_floats() const {
    return kAllPoints * (result_point() + (filters_first ? input_point() : filter_point()));
  }
  int64_t workspace_floats() const { return shared_floats() + tasks * task_floats(); }

  void run(const float* input, const FilterPanels<R>& filters, const float* bias, bool relu, float* workspace,
           float* out) const {
    if (tiles.count == 0) return;
    float* shared = workspace;
    if (filters_first) {
      constexpr int64_t kRows = 16;
      const int64_t chunks = ceil_div(source.channels, kRows);
      parallel_for(panels * chunks, 4, [&](int64_t first, int64_t past) {
        for (int64_t i = first; i < past; ++i) {
          const int64_t panel = i / chunks, row = i % chunks * kRows;
          filters.transform(panel, row, std::min(source.channels, row + kRows),
                            shared + panel * kAllPoints * filter_point() + row * kPanel, filter_point());
        }
      });
    } else {
      parallel_for(tiles.count, 4, [&](int64_t first, int64_t past) { transform_inputs(input, first, past, shared); });
    }
    parallel_for(tasks, 1, [&](int64_t first, int64_t past) {
      for (int64_t task = first; task < past; ++task) {
        float* own = workspace + shared_floats() + task * task_floats();
        float* products = own + kAllPoints * (filters_first ? input_point() : filter_point());
        if (filters_first) {
          const int64_t blocks = ceil_div(tiles.count, block);
          for (int64_t b = task * blocks / tasks; b < (task + 1) * blocks / tasks; ++b) {
            const int64_t begin = b * block, end = std::min(tiles.count, begin + block);
            transform_inputs(input, begin, end, own);
            for (int64_t panel = 0; panel < panels; ++panel) {
              const float* u = shared + panel * kAllPoints * filter_point();
              for (int64_t p = 0; p < kAllPoints; ++p) {
                multiply(kernels, end - begin, kPanel, source.channels, own + p * input_point(), depth,
                         u + p * filter_point(), kPanel, false, products + p * result_point(), kPanel);
              }
              write_results(products, begin, end, panel, bias, relu, out);
            }
          }
          continue;
        }
        for (int64_t panel = task * panels / tasks; panel < (task + 1) * panels / tasks; ++panel) {
          for (int64_t c = 0; c == 0 || c < source.channels; c += kDepthBlock) {
            const int64_t count = std::min(kDepthBlock, source.channels - c);
            filters.transform(panel, c, c + count, own, filter_point());
            for (int64_t p = 0; p < kAllPoints; ++p) {
              multiply(kernels, tiles.count, kPanel, count, shared + p * input_point() + c, depth,
                       own + p * filter_point(), kPanel, c > 0, products + p * result_point(), kPanel);
            }
          }
          write_results(products, 0, tiles.count, panel, bias, relu, out);
        }
      }
    });
  }

  /// Transforms tiles [begin, end) into the rows from `first_row` on.
  void transform_inputs(const float* input, int64_t begin, int64_t end, float* out) const {
    for (int64_t tile = begin; tile < end; ++tile) {
      Place place = tiles.place(tile);
      place.y += offset_y;
      place.x += offset_x;
      const int64_t row = filters_first ? tile - begin : tile;
      transform_tile<kPoints>(input, source, place, out + row * depth, input_point(), transform_input);
    }
  }

  void write_results(const float* products, int64_t begin, int64_t end, int64_t panel, const float* bias, bool relu,
                     float* out) const {
    const int64_t first = panel * kPanel, last = std::min(result.channels, first + kPanel);
    for (int64_t tile = begin; tile < end; ++tile) {
      const Place place = tiles.place(tile);
      float* corner = out + ((place.image * result.height + place.y) * result.width + place.x) * result.pixel;
      const int64_t height = std::min(kResults, result.height - place.y);
      const int64_t width = std::min(kResults, result.width - place.x);
      for (int64_t channel = first; channel < last; channel += kLanes) {
        const int64_t count = std::min(kLanes, last - channel);
        const float* from = products + (tile - begin) * kPanel + (channel - first);
        Vec points[kPoints][kPoints], square[kResults][kResults];
        for (int64_t p = 0; p < kAllPoints; ++p) {
          points[p / kPoints][p % kPoints] = *reinterpret_cast<const Vec*>(from + p * result_point());
        }
        transform_square<kPoints, kResults>(points, square, Winograd<R>::results);
        const Vec added = bias != nullptr ? load(bias + channel, count) : Vec{};
        for (int64_t y = 0; y < height; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            Vec value = square[y][x] + added;
            if (relu) value = value < 0.0f ? Vec{} : value;
            store(corner + (y * result.width + x) * result.pixel + channel, value, count);
          }
        }
      }
    }
  }
};

/// The gradient of the input by the tiles of the forward pass, each of which adds to 6 x 6 inputs. With little padding
/// there are far fewer such tiles than tiles of the input. Tasks are images.
template <int R>
struct WinogradScatter {
  static constexpr int64_t kResults = Winograd<R>::kResults;
  static constexpr int64_t kPanel = 32;

  const GemmKernels& kernels;
  const ConvGeometry& g;
  Tiles tiles;
  int64_t depth;  ///< filters, rounded up to full vectors
  int64_t panels, block, tasks;

  WinogradScatter(const ConvGeometry& geometry, const GemmKernels& gemm_kernels)
      : kernels(gemm_kernels),
        g(geometry),
        tiles(g.batch, g.out, kResults),
        depth(round_up(g.group_out_channels(), kLanes)),
        panels(ceil_div(g.group_channels(), kPanel)) {
    constexpr int64_t kBlockFloats = 1 << 15;
    block = std::clamp<int64_t>(kBlockFloats / (kAllPoints * depth) / 6, 2, 8) * 6;
    tasks = std::min(kMaxTasks, g.batch);
  }

  static bool pays(const ConvGeometry& g) {
    constexpr int64_t kEnoughImages = 4;
    return g.batch >= kEnoughImages &&
           3 * Tiles(g.batch, g.out, kResults).count < 2 * Tiles(g.batch, g.size, kResults).count;
  }

  int64_t filter_point() const { return g.group_out_channels() * kPanel + kPad; }
  int64_t grad_point() const { return block * depth + kPad; }
  int64_t result_point() const { return block * kPanel + kPad; }
  int64_t task_floats() const { return kAllPoints * (grad_point() + result_point()); }
  int64_t workspace_floats() const { return kAllPoints * panels * filter_point() + tasks * task_floats(); }

  void run(const float* grad, const float* weight, const float* bias, float* workspace, float* out) const {
    const int64_t group_filters = g.group_out_channels(), channels = g.group_channels();
    const FilterPanels<R> filters{weight, group_filters, channels, kPanel, true, false};
    parallel_for(panels, 1, [&](int64_t first, int64_t past) {
      for (int64_t panel = first; panel < past; ++panel) {
        filters.transform(panel, 0, group_filters, workspace + panel * kAllPoints * filter_point(), filter_point());
      }
    });
    const int64_t image_tiles = tiles.rows * tiles.columns, image_floats = g.size.height * g.size.width * g.channels;
    const Map result = Map::output(g);
    parallel_for(tasks, 1, [&](int64_t first, int64_t past) {
      for (int64_t task = first; task < past; ++task) {
        float* grads = workspace + kAllPoints * panels * filter_point() + task * task_floats();
        float* products = grads + kAllPoints * grad_point();
        const int64_t image = task * g.batch / tasks, image_end = (task + 1) * g.batch / tasks;
        for (float* to = out + image * image_floats; to < out + image_end * image_floats; to += g.channels) {
          bias != nullptr ? std::copy_n(bias, channels, to) : std::fill_n(to, channels, 0.0f);
        }
        for (int64_t begin = image * image_tiles; begin < image_end * image_tiles; begin += block) {
          const int64_t count = std::min(block, image_end * image_tiles - begin);
          for (int64_t i = 0; i < count; ++i) {
            transform_tile<kResults>(grad, result, tiles.place(begin + i), grads + i * depth, grad_point(),
                                     Winograd<R>::gradients);
          }
          for (int64_t panel = 0; panel < panels; ++panel) {
            const float* u = workspace + panel * kAllPoints * filter_point();
            for (int64_t p = 0; p < kAllPoints; ++p) {
              multiply(kernels, count, kPanel, group_filters, grads + p * grad_point(), depth, u + p * filter_point(),
                       kPanel, false, products + p * result_point(), kPanel);
            }
            for (int64_t i = 0; i < count; ++i) {
              add_tile(products + i * kPanel, tiles.place(begin + i), panel * kPanel, out);
            }
          }
        }
      }
    });
  }

  void add_tile(const float* products, const Place& place, int64_t first, float* out) const {
    const int64_t top = place.y - g.padding.height, left = place.x - g.padding.width;
    const int64_t y_begin = std::max<int64_t>(0, -top), y_end = std::min(kPoints, g.size.height - top);
    const int64_t x_begin = std::max<int64_t>(0, -left), x_end = std::min(kPoints, g.size.width - left);
    float* image = out + place.image * g.size.height * g.size.width * g.channels;
    const int64_t last = std::min(g.group_channels(), first + kPanel);
    for (int64_t channel = first; channel < last; channel += kLanes) {
      const int64_t count = std::min(kLanes, last - channel);
      Vec points[kPoints][kPoints], square[kPoints][kPoints];
      for (int64_t p = 0; p < kAllPoints; ++p) {
        points[p / kPoints][p % kPoints] =
            *reinterpret_cast<const Vec*>(products + p * result_point() + (channel - first));
      }
      transform_square<kPoints, kPoints>(points, square, transform_input_gradient);
      for (int64_t y = y_begin; y < y_end; ++y) {
        for (int64_t x = x_begin; x < x_end; ++x) {
          float* to = image + ((top + y) * g.size.width + left + x) * g.channels + channel;
          store(to, load(to, count) + square[y][x], count);
        }
      }
    }
  }
};

/// The gradient of the weight.
///
/// Inputs and gradients of a *batch of tiles* are transformed. Then tasks (blocks of filters by blocks of channels) add
/// their products to their own sums. After the last batch the sums are transformed back.
template <int R>
struct WinogradWeights {
  static constexpr int64_t kResults = Winograd<R>::kResults;
  static constexpr int64_t kChannelBlock = 32;

  const GemmKernels& kernels;
  const ConvGeometry& g;
  Tiles tiles;
  int64_t group_channels, group_filters;
  int64_t depth, filters;  ///< channels and filters, rounded up to full vectors
  int64_t tile_batch;
  int64_t filter_block, filter_blocks, channel_blocks;
  bool one_batch;

  WinogradWeights(const ConvGeometry& geometry, const GemmKernels& gemm_kernels)
      : kernels(gemm_kernels),
        g(geometry),
        tiles(g.batch, g.out, kResults),
        group_channels(g.group_channels()),
        group_filters(g.group_out_channels()),
        depth(round_up(group_channels, kLanes)),
        filters(round_up(group_filters, kLanes)) {
    // The transformed data of a batch of tiles takes 4 MiB.
    constexpr int64_t kBatchFloats = 1 << 20;
    tile_batch = std::max<int64_t>(32, kBatchFloats / std::max<int64_t>(1, kAllPoints * (depth + filters)));
    tile_batch = ceil_div(tiles.count, std::max<int64_t>(1, ceil_div(tiles.count, tile_batch)));
    constexpr int64_t kMaxFilters = 48;
    const int64_t least = ceil_div(group_filters, kMaxFilters);
    filter_block = round_up(ceil_div(group_filters, std::max<int64_t>(1, least)), kernels.rows);
    filter_block = std::max(filter_block, kernels.rows);
    filter_blocks = ceil_div(group_filters, filter_block);
    channel_blocks = ceil_div(group_channels, kChannelBlock);
    one_batch = tile_batch >= tiles.count;
  }

  int64_t input_point() const { return tile_batch * depth + kPad; }
  int64_t grad_point() const { return tile_batch * filters + kPad; }
  int64_t sum_point() const { return filter_block * kChannelBlock + kPad; }
  int64_t blocks() const { return filter_blocks * channel_blocks; }
  int64_t tasks() const { return one_batch ? std::min(kMaxTasks, blocks()) : blocks(); }
  int64_t workspace_floats() const {
    // Rows of the right side are read up to the end of a panel, so the last rows need padding after them.
    return kAllPoints * (input_point() + grad_point() + tasks() * sum_point()) + kernels.columns;
  }

  void run(const float* input, const float* grad, bool add, float* workspace, float* out) const {
    if (tiles.count == 0) {
      if (!add) std::fill_n(out, g.weight_elements() / g.groups, 0.0f);
      return;
    }
    float* grads = workspace;
    float* sums = grads + kAllPoints * grad_point();
    float* inputs = sums + kAllPoints * tasks() * sum_point();
    const Map source = Map::input(g), result = Map::output(g);
    for (int64_t begin = 0; begin < tiles.count; begin += tile_batch) {
      const int64_t end = std::min(tiles.count, begin + tile_batch);
      parallel_for(end - begin, 4, [&](int64_t first, int64_t past) {
        for (int64_t i = first; i < past; ++i) {
          Place place = tiles.place(begin + i);
          transform_tile<kResults>(grad, result, place, grads + i * filters, grad_point(), Winograd<R>::gradients);
          place.y -= g.padding.height;
          place.x -= g.padding.width;
          transform_tile<kPoints>(input, source, place, inputs + i * depth, input_point(), transform_input);
        }
      });
      parallel_for(tasks(), 1, [&](int64_t first, int64_t past) {
        for (int64_t task = first; task < past; ++task) {
          float* own = sums + task * kAllPoints * sum_point();
          for (int64_t i = task * blocks() / tasks(); i < (task + 1) * blocks() / tasks(); ++i) {
            add_block(grads, inputs, i, end - begin, begin > 0, own);
            if (end == tiles.count) write_block(own, i, add, out);
          }
        }
      });
    }
  }

  void add_block(const float* grads, const float* inputs, int64_t index, int64_t count, bool add, float* sums) const {
    const int64_t filter = index / channel_blocks * filter_block, channel = index % channel_blocks * kChannelBlock;
    GemmTile<float> tile{};
    tile.k = count;
    tile.left_k_stride = filters;
    tile.right_stride = depth;
    tile.alpha = 1;
    tile.beta = add ? 1.0f : 0.0f;
    tile.out_leading = kChannelBlock;
    for (int64_t p = 0; p < kAllPoints; ++p) {
      for (int64_t j = 0; j < kChannelBlock && channel + j < group_channels; j += kernels.columns) {
        tile.columns = std::min({kernels.columns, kChannelBlock - j, group_channels - channel - j});
        tile.right = inputs + p * input_point() + channel + j;
        for (int64_t i = 0; i < filter_block && filter + i < group_filters; i += kernels.rows) {
          tile.rows = std::min({kernels.rows, filter_block - i, group_filters - filter - i});
          tile.left = grads + p * grad_point() + filter + i;
          tile.out = sums + p * sum_point() + i * kChannelBlock + j;
          kernels.tile(tile);
        }
      }
    }
  }

  void write_block(const float* sums, int64_t index, bool add, float* out) const {
    constexpr int64_t kAllTaps = R * R;
    const int64_t filter = index / channel_blocks * filter_block, channel = index % channel_blocks * kChannelBlock;
    for (int64_t i = 0; i < std::min(filter_block, group_filters - filter); ++i) {
      for (int64_t j = 0; j < std::min(kChannelBlock, group_channels - channel); j += kLanes) {
        Vec points[kPoints][kPoints], taps[R][R];
        for (int64_t p = 0; p < kAllPoints; ++p) {
          points[p / kPoints][p % kPoints] =
              *reinterpret_cast<const Vec*>(sums + p * sum_point() + i * kChannelBlock + j);
        }
        transform_square<kPoints, R>(points, taps, Winograd<R>::filter_gradients);
        float* to = out + ((filter + i) * group_channels + channel + j) * kAllTaps;
        const float* values = reinterpret_cast<const float*>(taps);
        for (int64_t c = 0; c < std::min(kLanes, group_channels - channel - j); ++c) {
          for (int64_t t = 0; t < kAllTaps; ++t) {
            const float value = values[t * kLanes + c];
            to[c * kAllTaps + t] = add ? to[c * kAllTaps + t] + value : value;
          }
        }
      }
    }
  }
};

template <int R>
int64_t workspace_floats(ConvPass pass, const ConvGeometry& g, const GemmKernels& kernels) {
  if (pass == ConvPass::kBackwardWeight) return WinogradWeights<R>(g, kernels).workspace_floats();
  if (pass == ConvPass::kBackwardInput && WinogradScatter<R>::pays(g)) {
    return WinogradScatter<R>(g, kernels).workspace_floats();
  }
  return WinogradConv<R>(g, pass == ConvPass::kBackwardInput, kernels).workspace_floats();
}

template <int R>
void run_group(ConvPass pass, const ConvGeometry& g, const GemmKernels& kernels, const ConvData<float>& data) {
  float* workspace = static_cast<float*>(data.workspace);
  if (pass == ConvPass::kBackwardWeight) {
    WinogradWeights<R>(g, kernels).run(data.input, data.grad, data.beta != 0, workspace, data.out);
    return;
  }
  const bool backward = pass == ConvPass::kBackwardInput;
  if (backward && WinogradScatter<R>::pays(g)) {
    WinogradScatter<R>(g, kernels).run(data.grad, data.weight, data.bias, workspace, data.out);
    return;
  }
  const WinogradConv<R> product(g, backward, kernels);
  product.run(
      backward ? data.grad : data.input,
      {data.weight, product.source.channels, product.result.channels, WinogradConv<R>::kPanel, backward, backward},
      data.bias, data.relu, workspace, data.out);
}

}  // namespace

bool winograd_can(const ConvGeometry& g) {
  return g.channels > 0 && g.out_channels > 0 && g.stride == Size2d(1) && g.dilation == Size2d(1) &&
         (g.kernel == Size2d(3) || g.kernel == Size2d(5));
}

int64_t winograd_workspace_bytes(ConvPass pass, const ConvGeometry& g, const GemmKernels& kernels) {
  const int64_t floats =
      g.kernel.height == 3 ? workspace_floats<3>(pass, g, kernels) : workspace_floats<5>(pass, g, kernels);
  return floats * static_cast<int64_t>(sizeof(float));
}

void winograd_conv(ConvPass pass, const ConvGeometry& g, const GemmKernels& kernels, const ConvData<float>& data) {
  for (int64_t group = 0; group < g.groups; ++group) {
    const ConvData<float> part = group_data(pass, g, data, group);
    g.kernel.height == 3 ? run_group<3>(pass, g, kernels, part) : run_group<5>(pass, g, kernels, part);
  }
}

}}}  // namespace tandem::v0::cpu

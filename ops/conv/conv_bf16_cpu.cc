// Convolutions of bfloat16, without groups, by products of AVX512_BF16.
//
// Rows of a grid (im2col.h) are gathered in chunks, or read in place, and multiplied by the filters; for the gradient
// of the weight they are multiplied by the transposed gradient of the output, and chunks are summed in float32. Chunks
// depend only on sizes, so results do not depend on the number of threads.
#include <algorithm>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/conv/conv_passes.h>
#include <tandem/ops/conv/im2col.h>
#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

using Data = ConvData<BFloat16>;

/// Calls f(grid) for the grids of a pass.
template <class F>
void for_grids(ConvPass pass, const ConvGeometry& g, F f) {
  pass == ConvPass::kBackwardInput ? for_backward_grids(g, f) : f(Im2colGrid::forward(g));
}

/// The product of one grid.
struct GridProduct {
  ConvPass pass;
  const ConvGeometry& g;
  const Im2colGrid& grid;
  int64_t depth;    ///< elements of a row
  int64_t columns;  ///< of the results
  int64_t chunk;    ///< rows
  bool gathers, scatters, orders_filters;
  int64_t bytes = 0;  ///< of the workspace, and where its parts begin
  int64_t filters, bias, rows, results, sums, gemm_memory;

  GridProduct(ConvPass pass_, const ConvGeometry& geometry, const Im2colGrid& grid_)
      : pass(pass_),
        g(geometry),
        grid(grid_),
        depth(grid.row_length()),
        columns(pass == ConvPass::kBackwardInput ? g.channels : g.out_channels),
        gathers(!grid.is_source()),
        scatters(grid.y.out_stride != 1 || grid.x.out_stride != 1),
        orders_filters(g.taps() != 1) {
    constexpr int64_t kElements = 1 << 19, kMinRows = 1024;
    chunk = std::min(grid.rows(), std::max(kMinRows, kElements / std::max<int64_t>(1, depth)));
    const bool is_weight = pass == ConvPass::kBackwardWeight;
    filters = reserve(is_weight || !orders_filters ? 0 : depth * columns * size_of(kBFloat16));
    bias = reserve(columns * size_of(kFloat32));
    rows = reserve(gathers ? (chunk * row_stride()) * size_of(kBFloat16) : 0);
    results = reserve(scatters ? chunk * columns * size_of(kBFloat16) : 0);
    sums = reserve(is_weight ? columns * depth * size_of(kFloat32) : 0);
    gemm_memory = bytes;
    bytes += std::max(multiply(chunk, nullptr, nullptr, 0, {}, nullptr, nullptr),
                      multiply(grid.rows() % std::max<int64_t>(1, chunk), nullptr, nullptr, 0, {}, nullptr, nullptr));
  }

  int64_t reserve(int64_t size) {
    const int64_t at = bytes;
    bytes += round_up(size, 64);
    return at;
  }
  int64_t row_stride() const { return gathers ? im2col_stride(grid) : grid.source_channels; }

  /// The product of `count` rows; without `out` only returns the bytes of its workspace.
  int64_t multiply(int64_t count, const BFloat16* matrix, const BFloat16* other, double beta, GemmEpilogue epilogue,
                   void* memory, void* out) const {
    const bool is_weight = pass == ConvPass::kBackwardWeight, forward = pass == ConvPass::kForward;
    const int64_t m = is_weight ? columns : count, n = is_weight ? depth : columns, k = is_weight ? count : depth;
    const MatrixOperand at_rows{matrix, row_stride(), false};
    const MatrixOperand a = is_weight ? MatrixOperand{other, columns, true} : at_rows;
    const MatrixOperand b = is_weight ? at_rows : MatrixOperand{other, forward ? depth : columns, forward};
    GemmAlgorithm algorithm = gemm_algorithm(m, n, k, a.transposed, b.transposed, kBFloat16);
    if (algorithm == GemmAlgorithm::kDirect) algorithm = GemmAlgorithm::kAvx512Bf16;
    if (out != nullptr) gemm(CpuContext(Device()), kBFloat16, algorithm, m, n, k, 1, a, b, beta, epilogue, memory, out);
    return gemm_workspace_bytes(kBFloat16, algorithm, m, n, k, a, b);
  }

  /// Calls f(begin, count, rows) for the chunks.
  template <class F>
  void for_chunks(const BFloat16* source, std::byte* workspace, F f) const {
    for (int64_t begin = 0; begin < grid.rows(); begin += chunk) {
      const int64_t count = std::min(chunk, grid.rows() - begin), stride = row_stride();
      if (!gathers) {
        f(begin, count, source + begin * stride);
        continue;
      }
      BFloat16* const to = reinterpret_cast<BFloat16*>(workspace + rows);
      parallel_for(count, std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, depth)),
                   [&](int64_t first, int64_t past) {
                     gather_rows(grid, source, begin + first, begin + past, to + first * stride);
                   });
      f(begin, count, to);
    }
  }

  /// The tap of the filters that is tap t of the grid.
  int64_t tap(int64_t t) const {
    const int64_t y = grid.y.first_tap + t / grid.x.taps * grid.y.tap_stride;
    return y * g.kernel.width + grid.x.first_tap + t % grid.x.taps * grid.x.tap_stride;
  }

  /// The filters in the order of the rows: [filter][tap][channel] or, for the gradient of the input, [tap][filter]
  /// [channel].
  const BFloat16* ordered_filters(const BFloat16* weight, std::byte* workspace) const {
    if (!orders_filters) return weight;
    BFloat16* const to = reinterpret_cast<BFloat16*>(workspace + filters);
    const bool forward = pass == ConvPass::kForward;
    const int64_t taps = grid.y.taps * grid.x.taps;
    parallel_for(g.out_channels, 4, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t t = 0; t < taps; ++t) {
          const BFloat16* const from = weight + o * g.channels * g.taps() + tap(t);
          BFloat16* const row = to + (forward ? o * taps + t : t * g.out_channels + o) * g.channels;
          for (int64_t c = 0; c < g.channels; ++c) row[c] = from[c * g.taps()];
        }
      }
    });
    return to;
  }

  /// Forward, or the gradient of the input.
  void run(const BFloat16* source, const Data& data, std::byte* workspace) const {
    GemmEpilogue epilogue{.relu = data.relu};
    if (data.bias != nullptr) {
      float* const wide = reinterpret_cast<float*>(workspace + bias);
      std::copy_n(data.bias, columns, wide);
      epilogue.bias = wide;
    }
    const BFloat16* const right = ordered_filters(data.weight, workspace);
    const Size2d out_size = pass == ConvPass::kForward ? g.out : g.size;
    for_chunks(source, workspace, [&](int64_t begin, int64_t count, const BFloat16* left) {
      BFloat16* const to = scatters ? reinterpret_cast<BFloat16*>(workspace + results) : data.out + begin * columns;
      if (depth > 0) {
        multiply(count, left, right, 0, epilogue, workspace + gemm_memory, to);
      } else {
        for (int64_t i = 0; i < count; ++i) {
          data.bias != nullptr ? std::copy_n(data.bias, columns, to + i * columns)
                               : std::fill_n(to + i * columns, columns, BFloat16());
        }
      }
      if (!scatters) return;
      parallel_for(count, 64, [&](int64_t from, int64_t end) {
        scatter_rows(grid, to + from * columns, columns, begin + from, begin + end, data.out, columns, out_size);
      });
    });
  }

  void run_weight(const Data& data, std::byte* workspace) const {
    float* const total = reinterpret_cast<float*>(workspace + sums);
    for_chunks(data.input, workspace, [&](int64_t begin, int64_t count, const BFloat16* right) {
      multiply(count, right, data.grad + begin * columns, begin == 0 ? 0 : 1, {.float32_result = true},
               workspace + gemm_memory, total);
    });
    parallel_for(columns, 4, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t t = 0; t < g.taps(); ++t) {
          const float* const from = total + o * depth + t * g.channels;
          BFloat16* const to = data.out + o * depth + t;
          for (int64_t c = 0; c < g.channels; ++c) {
            const float old = data.beta == 0 ? 0.0f : static_cast<float>(to[c * g.taps()]);
            to[c * g.taps()] = BFloat16(old + from[c]);
          }
        }
      }
    });
  }
};

}  // namespace

bool bf16_conv_can(const ConvGeometry& g) {
  // The limit of products that are rounded once.
  const int64_t depth = std::max(g.channels, g.out_channels) * g.taps();
  return g.groups == 1 && std::min({g.channels, g.out_channels, g.out_pixels()}) > 0 &&
         has_half_gemm(kBFloat16, 1 << 20, 1, depth, /*rounds=*/true);
}

int64_t bf16_conv_workspace_bytes(ConvPass pass, const ConvGeometry& g) {
  int64_t bytes = 0;
  for_grids(pass, g, [&](const Im2colGrid& grid) { bytes = std::max(bytes, GridProduct(pass, g, grid).bytes); });
  return bytes;
}

void bf16_conv(ConvPass pass, const ConvGeometry& g, const ConvData<BFloat16>& data) {
  std::byte* const workspace = static_cast<std::byte*>(data.workspace);
  for_grids(pass, g, [&](const Im2colGrid& grid) {
    const GridProduct product(pass, g, grid);
    if (pass == ConvPass::kBackwardWeight) return product.run_weight(data, workspace);
    product.run(pass == ConvPass::kForward ? data.input : data.grad, data, workspace);
  });
}

}}}  // namespace tandem::v0::cpu

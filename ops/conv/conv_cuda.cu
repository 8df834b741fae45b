// GPU convolutions: by cuDNN if it has a suitable algorithm, else im2col and matrix products.
//
// im2col: row i of a matrix holds the channels of all source pixels that the taps of result i read, tap by tap. Rows
// times filters are the results. The gradient of the input is the same product with the output gradient as source:
// pixels with the same remainder modulo the stride read the same taps, so a stride of 2 gives four products (*steps*),
// which do not multiply by the zeros of the stride. Every number is therefore summed by one product and rounded once.
// The matrix is built in *pieces* of rows, which bounds the workspace.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <tandem/ops/conv/conv_depthwise_cuda.h>
#include <tandem/ops/conv/conv_kernels.h>
#include <tandem/ops/conv/cudnn_conv.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/matmul/cublaslt_matmul.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;  // enough rows to fill a GPU, few enough to stay in its caches

/// An im2col matrix: its rows are the results of a grid, image by image.
struct Im2col {
  int64_t batch;
  Size2d grid;
  Size2d taps;
  Size2d first;     // source pixel of tap 0 of result 0
  Size2d step;      // source pixels from one result to the next
  Size2d tap_step;  // source pixels from one tap to the next
  Size2d size;      // of the source
  int64_t channels;
  int64_t groups;

  constexpr int64_t rows() const { return batch * grid.height * grid.width; }
  constexpr int64_t group_channels() const { return channels / groups; }
  /// Columns of the matrix of one group.
  constexpr int64_t columns() const { return taps.height * taps.width * group_channels(); }
  /// Whether the source itself is the matrix.
  constexpr bool is_source() const {
    return taps == Size2d(1) && first == Size2d(0) && step == Size2d(1) && grid == size;
  }
};

/// Some taps of the filters as the right side of the product: [groups, taps, from, to], with channels `from` of the
/// source and `to` of the results.
struct Filters {
  int64_t groups, from, to;
  Size2d taps;
  Size2d first;  // tap of the filter that is tap 0 of the matrix
  Size2d step;
  int64_t kernel_width;
  int64_t group_stride, from_stride, to_stride;  // strides in the weight

  constexpr int64_t numel() const { return groups * taps.height * taps.width * from * to; }
};

/// The pixels of the output (channels-last) that a step writes.
struct Target {
  Size2d first;
  Size2d step;
  Size2d size;
  int64_t channels;
};

struct Step {
  Im2col patches;
  Filters filters;
  Target target;

  /// Whether the product can write the output directly.
  bool is_direct() const {
    return patches.groups == 1 && target.first == Size2d(0) && target.step == Size2d(1) && target.size == patches.grid;
  }
};

/// out[group][row][tap][channel] for `num_rows` rows from `first_row` on.
template <class T>
__global__ void im2col_kernel(Im2col p, int64_t first_row, int64_t num_rows, const T* source, T* out) {
  const int64_t depth = p.group_channels(), columns = p.columns(), n = p.groups * num_rows * columns;
  for (int64_t i = thread_index(); i < n; i += num_threads()) {
    const int64_t c = i % depth, tap = i % columns / depth;
    const int64_t row = first_row + i / columns % num_rows, group = i / columns / num_rows;
    const int64_t grid_x = row % p.grid.width, grid_y = row / p.grid.width % p.grid.height;
    const int64_t image = row / p.grid.width / p.grid.height;
    const int64_t x = p.first.width + grid_x * p.step.width + tap % p.taps.width * p.tap_step.width;
    const int64_t y = p.first.height + grid_y * p.step.height + tap / p.taps.width * p.tap_step.height;
    const bool is_inside = x >= 0 && x < p.size.width && y >= 0 && y < p.size.height;
    out[i] =
        is_inside ? source[((image * p.size.height + y) * p.size.width + x) * p.channels + group * depth + c] : T(0.0f);
  }
}

template <class T>
__global__ void pick_filters_kernel(Filters f, const T* weight, T* out) {
  for (int64_t i = thread_index(); i < f.numel(); i += num_threads()) {
    const int64_t to = i % f.to, from = i / f.to % f.from, tap = i / f.to / f.from;
    const int64_t tap_x = tap % f.taps.width, tap_y = tap / f.taps.width % f.taps.height;
    const int64_t group = tap / f.taps.width / f.taps.height;
    out[i] = weight[group * f.group_stride + from * f.from_stride + to * f.to_stride +
                    (f.first.height + tap_y * f.step.height) * f.kernel_width + f.first.width + tap_x * f.step.width];
  }
}

/// products[group][row][channel] = bias, to which the product is added.
template <class T>
__global__ void fill_bias_kernel(int64_t groups, int64_t num_rows, int64_t channels, const T* bias, T* products) {
  for (int64_t i = thread_index(); i < groups * num_rows * channels; i += num_threads()) {
    products[i] = bias[i / channels / num_rows * channels + i % channels];
  }
}

/// Copies products [group][row][channel] of the rows from `first_row` on to their pixels.
template <class T>
__global__ void scatter_kernel(Target t, Size2d grid, int64_t groups, int64_t first_row, int64_t num_rows,
                               const T* products, T* out) {
  const int64_t depth = t.channels / groups;
  for (int64_t i = thread_index(); i < num_rows * t.channels; i += num_threads()) {
    const int64_t channel = i % t.channels, own_row = i / t.channels, row = first_row + own_row;
    const int64_t x = t.first.width + row % grid.width * t.step.width;
    const int64_t y = t.first.height + row / grid.width % grid.height * t.step.height;
    const int64_t image = row / grid.width / grid.height;
    out[((image * t.size.height + y) * t.size.width + x) * t.channels + channel] =
        products[(channel / depth * num_rows + own_row) * depth + channel % depth];
  }
}

/// Adds one piece's gradient of the weight, [filter][tap][channel], to `sums`. The first piece overwrites `sums`; the
/// last piece writes the sum to the gradient in the weight's order instead.
template <class T>
__global__ void add_filters_kernel(int64_t filters, int64_t taps, int64_t depth, const T* part, bool is_first,
                                   bool is_last, double beta, Accumulator<T>* sums, T* out) {
  using C = Accumulator<T>;
  for (int64_t i = thread_index(); i < filters * taps * depth; i += num_threads()) {
    C sum = static_cast<C>(part[i]);
    if (!is_first) sum += sums[i];
    if (!is_last) {
      sums[i] = sum;
      continue;
    }
    T& target = out[(i / depth / taps * depth + i % depth) * taps + i / depth % taps];
    if (beta != 0) sum += static_cast<C>(beta) * static_cast<C>(target);
    target = static_cast<T>(sum);
  }
}

Im2col im2col_of(const ConvGeometry& g) {
  return {.batch = g.batch,
          .grid = g.out,
          .taps = g.kernel,
          .first = {-g.padding.height, -g.padding.width},
          .step = g.stride,
          .tap_step = g.dilation,
          .size = g.size,
          .channels = g.channels,
          .groups = g.groups};
}

Filters filters_of(const ConvGeometry& g, ConvPass pass, Size2d taps, Size2d first, Size2d step) {
  const int64_t filter = g.group_channels() * g.taps();
  const bool is_forward = pass == ConvPass::kForward;
  return {.groups = g.groups,
          .from = is_forward ? g.group_channels() : g.group_out_channels(),
          .to = is_forward ? g.group_out_channels() : g.group_channels(),
          .taps = taps,
          .first = first,
          .step = step,
          .kernel_width = g.kernel.width,
          .group_stride = g.group_out_channels() * filter,
          .from_stride = is_forward ? g.taps() : filter,
          .to_stride = is_forward ? filter : g.taps()};
}

/// One axis of a gradient step, for the input pixels first, first + stride, ...: the taps that read them.
struct GradientSide {
  int64_t pixels;
  int64_t taps;
  int64_t first_tap;
  int64_t tap_step;      // in taps of the filter
  int64_t first_result;  // result that reads the first pixel by the first tap
  int64_t result_step;   // results from one tap to the next

  GradientSide(int64_t first, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    pixels = (size - first + stride - 1) / stride;
    tap_step = stride / std::gcd(stride, dilation);
    first_tap = 0;
    while (first_tap < std::min(kernel, tap_step) && (first + padding - first_tap * dilation) % stride != 0)
      ++first_tap;
    taps = first_tap < std::min(kernel, tap_step) ? (kernel - 1 - first_tap) / tap_step + 1 : 0;
    first_result = taps == 0 ? 0 : (first + padding - first_tap * dilation) / stride;
    result_step = -(tap_step * dilation / stride);
  }
};

/// Calls f(step) for the steps of the forward pass or of the gradient of the input.
template <class F>
void for_each_step(ConvPass pass, const ConvGeometry& g, const F& f) {
  if (pass == ConvPass::kForward) {
    f(Step{im2col_of(g),
           filters_of(g, pass, g.kernel, 0, 1),
           {.first = 0, .step = 1, .size = g.out, .channels = g.out_channels}});
    return;
  }
  for (int64_t first_y = 0; first_y < std::min(g.stride.height, g.size.height); ++first_y) {
    const GradientSide y(first_y, g.size.height, g.kernel.height, g.stride.height, g.padding.height, g.dilation.height);
    for (int64_t first_x = 0; first_x < std::min(g.stride.width, g.size.width); ++first_x) {
      const GradientSide x(first_x, g.size.width, g.kernel.width, g.stride.width, g.padding.width, g.dilation.width);
      const Im2col patches{.batch = g.batch,
                           .grid = {y.pixels, x.pixels},
                           .taps = {y.taps, x.taps},
                           .first = {y.first_result, x.first_result},
                           .step = 1,
                           .tap_step = {y.result_step, x.result_step},
                           .size = g.out,
                           .channels = g.out_channels,
                           .groups = g.groups};
      f(Step{patches,
             filters_of(g, pass, patches.taps, {y.first_tap, x.first_tap}, {y.tap_step, x.tap_step}),
             {.first = {first_y, first_x}, .step = g.stride, .size = g.size, .channels = g.channels}});
    }
  }
}

/// Rows of a piece, if each row takes `elements_per_row` elements of workspace.
int64_t piece_rows(int64_t rows, int64_t elements_per_row, int64_t element_bytes) {
  return std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(1, elements_per_row * element_bytes), 1,
                             std::max<int64_t>(1, rows));
}

/// Layout of a workspace, in bytes.
struct Layout {
  int64_t used = 0;
  int64_t take(int64_t bytes) {
    const int64_t at = used;
    used += (bytes + 255) / 256 * 256;
    return at;
  }
};

struct StepLayout : Layout {
  int64_t rows, gemm_scratch, filters, patches, products;

  StepLayout(const Step& step, DType dtype) {
    const int64_t bytes = size_of(dtype);
    const int64_t columns = step.patches.is_source() ? 0 : step.patches.groups * step.patches.columns();
    const int64_t results = step.is_direct() ? 0 : step.target.channels;
    rows = piece_rows(step.patches.rows(), columns + results, bytes);
    gemm_scratch = take(cublaslt_workspace_bytes(dtype));
    filters = take(step.filters.numel() * bytes);
    patches = take(rows * columns * bytes);
    products = take(rows * results * bytes);
  }
};

struct WeightLayout : Layout {
  int64_t rows, gemm_scratch, patches, part, sums;

  WeightLayout(const ConvGeometry& g, DType dtype) {
    const int64_t bytes = size_of(dtype);
    const Im2col p = im2col_of(g);
    const int64_t columns = p.is_source() ? 0 : p.groups * p.columns();
    rows = piece_rows(p.rows(), columns, bytes);
    gemm_scratch = take(cublaslt_workspace_bytes(dtype));
    patches = take(rows * columns * bytes);
    part = take(g.weight_elements() * bytes);
    sums = take(g.weight_elements() * std::max<int64_t>(4, bytes));
  }
};

/// The workspace of cuDNN: reordered filters, and its own scratch memory.
struct CudnnLayout : Layout {
  int64_t filters, cudnn, cudnn_bytes;

  /// `g` is that of cudnn_part.
  CudnnLayout(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& g)
      : cudnn_bytes(cudnn_workspace_bytes(context, dtype, pass, g)) {
    filters = take(g.weight_elements() * size_of(dtype));
    cudnn = take(cudnn_bytes);
  }
  bool is_possible() const { return cudnn_bytes > 0; }
};

/// What cuDNN computes of a pass: all, or the gradient of a float32 input without its bias, so that cuDNN can choose
/// among all of its engines.
ConvGeometry cudnn_part(DType dtype, ConvPass pass, ConvGeometry g) {
  if (pass == ConvPass::kBackwardInput && dtype == kFloat32) g.has_bias = false;
  return g;
}

/// Copies the filters to the order [filter][tap][channel], for cuDNN.
template <class T>
void reorder_filters(const KernelContext& context, const ConvGeometry& g, const T* weight, T* out) {
  const Filters filters{.groups = g.out_channels,
                        .from = g.group_channels(),
                        .to = 1,
                        .taps = g.kernel,
                        .first = 0,
                        .step = 1,
                        .kernel_width = g.kernel.width,
                        .group_stride = g.group_channels() * g.taps(),
                        .from_stride = g.taps(),
                        .to_stride = 0};
  launch_kernel(context, pick_filters_kernel<T>, blocks_for(filters.numel()), kBlock, 0, filters, weight, out);
}

/// The im2col matrix of the rows from `first` on, as an operand of gemm; one matrix per group.
template <class T>
MatrixOperand run_im2col(const KernelContext& context, const Im2col& p, int64_t first, int64_t rows, const T* source,
                         T* memory, std::vector<int64_t>& offsets) {
  for (int64_t group = 0; group < p.groups; ++group) {
    offsets[static_cast<size_t>(group)] = group * (p.is_source() ? p.group_channels() : rows * p.columns());
  }
  if (p.is_source()) return {source + first * p.channels, p.channels};
  const int64_t n = p.groups * rows * p.columns();
  if (n > 0) launch_kernel(context, im2col_kernel<T>, blocks_for(n), kBlock, 0, p, first, rows, source, memory);
  return {memory, std::max<int64_t>(1, p.columns())};
}

template <class T>
void run_step(const KernelContext& context, DType dtype, const Step& step, const T* source, const T* weight,
              const T* bias, bool relu, std::byte* workspace, T* out) {
  const Im2col& p = step.patches;
  const Filters& f = step.filters;
  const StepLayout layout(step, dtype);
  T* const filters = reinterpret_cast<T*>(workspace + layout.filters);
  T* const products = reinterpret_cast<T*>(workspace + layout.products);
  if (f.numel() > 0) {
    launch_kernel(context, pick_filters_kernel<T>, blocks_for(f.numel()), kBlock, 0, f, weight, filters);
  }
  std::vector<int64_t> patch_offsets(static_cast<size_t>(p.groups)), filter_offsets(static_cast<size_t>(p.groups));
  for (int64_t group = 0; group < p.groups; ++group) {
    filter_offsets[static_cast<size_t>(group)] = group * p.columns() * f.to;
  }
  for (int64_t first = 0; first < p.rows(); first += layout.rows) {
    const int64_t rows = std::min(layout.rows, p.rows() - first);
    const MatrixOperand patches =
        run_im2col(context, p, first, rows, source, reinterpret_cast<T*>(workspace + layout.patches), patch_offsets);
    // The bias differs between groups. gemm adds it as the old value of the output, so each result is rounded once.
    const bool adds = !step.is_direct() && bias != nullptr;
    if (adds) {
      launch_kernel(context, fill_bias_kernel<T>, blocks_for(rows * step.target.channels), kBlock, 0, p.groups, rows,
                    f.to, bias, products);
    }
    gemm(context, dtype, p.groups, rows, f.to, p.columns(), 1, patches, patch_offsets.data(), {filters, f.to},
         filter_offsets.data(), adds ? 1 : 0, {adds ? nullptr : bias, relu}, workspace + layout.gemm_scratch,
         step.is_direct() ? out + first * f.to : products);
    if (!step.is_direct()) {
      launch_kernel(context, scatter_kernel<T>, blocks_for(rows * step.target.channels), kBlock, 0, step.target, p.grid,
                    p.groups, first, rows, static_cast<const T*>(products), out);
    }
  }
}

template <class T>
void run_weight(const KernelContext& context, DType dtype, const ConvGeometry& g, const T* input, const T* grad,
                double beta, std::byte* workspace, T* out) {
  const Im2col p = im2col_of(g);
  const WeightLayout layout(g, dtype);
  std::vector<int64_t> patch_offsets(static_cast<size_t>(p.groups)), grad_offsets(static_cast<size_t>(p.groups));
  for (int64_t group = 0; group < p.groups; ++group) {
    grad_offsets[static_cast<size_t>(group)] = group * g.group_out_channels();
  }
  T* const part = reinterpret_cast<T*>(workspace + layout.part);
  int64_t first = 0;
  do {  // runs once even without rows, because the gradient must be written
    const int64_t rows = std::min(layout.rows, p.rows() - first);
    const MatrixOperand patches =
        run_im2col(context, p, first, rows, input, reinterpret_cast<T*>(workspace + layout.patches), patch_offsets);
    gemm(context, dtype, p.groups, g.group_out_channels(), p.columns(), rows, 1,
         {grad + first * g.out_channels, g.out_channels, true}, grad_offsets.data(), patches, patch_offsets.data(), 0,
         {}, workspace + layout.gemm_scratch, part);
    launch_kernel(context, add_filters_kernel<T>, blocks_for(g.weight_elements()), kBlock, 0, g.out_channels, g.taps(),
                  g.group_channels(), static_cast<const T*>(part), first == 0, first + layout.rows >= p.rows(), beta,
                  reinterpret_cast<Accumulator<T>*>(workspace + layout.sums), out);
    first += layout.rows;
  } while (first < p.rows());
}

}  // namespace

int64_t conv_workspace_bytes(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry) {
  if (depthwise_can(geometry)) return depthwise_workspace_bytes(pass, geometry);
  const CudnnLayout layout(context, dtype, pass, cudnn_part(dtype, pass, geometry));
  int64_t most = layout.is_possible() ? layout.used : 0;
  if (pass == ConvPass::kBackwardWeight) return std::max(most, WeightLayout(geometry, dtype).used);
  for_each_step(pass, geometry, [&](const Step& step) { most = std::max(most, StepLayout(step, dtype).used); });
  return most;
}

void conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                  const void* weight, const void* bias, bool relu, void* workspace, void* out) {
  if (geometry.out_pixels() * geometry.out_channels == 0) return;
  if (depthwise_can(geometry)) return depthwise_forward(context, dtype, geometry, input, weight, bias, relu, out);
  visit_floating_dtype(dtype, [&]<class T>() {
    auto* const memory = static_cast<std::byte*>(workspace);
    if (const CudnnLayout layout(context, dtype, ConvPass::kForward, geometry); layout.is_possible()) {
      T* const filters = reinterpret_cast<T*>(memory + layout.filters);
      reorder_filters(context, geometry, static_cast<const T*>(weight), filters);
      if (cudnn_conv(context, dtype, ConvPass::kForward, geometry, input, filters, bias, out, memory + layout.cudnn)) {
        // Not in cuDNN's graph, which does not guarantee that NaN stays NaN.
        if (relu) {
          const int64_t n = geometry.out_pixels() * geometry.out_channels;
          unary(context, functions::Relu{}, dtype, {n, {n}, {{1}, {1}}}, out, out);
        }
        return;
      }
    }
    for_each_step(ConvPass::kForward, geometry, [&](const Step& step) {
      run_step<T>(context, dtype, step, static_cast<const T*>(input), static_cast<const T*>(weight),
                  static_cast<const T*>(bias), relu, memory, static_cast<T*>(out));
    });
  });
}

void conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                         const void* weight, const void* bias, void* workspace, void* input_grad) {
  const int64_t pixels = geometry.batch * geometry.size.height * geometry.size.width, channels = geometry.channels;
  if (pixels * channels == 0) return;
  if (depthwise_can(geometry)) {
    return depthwise_backward_input(context, dtype, geometry, grad, weight, bias, input_grad);
  }
  visit_floating_dtype(dtype, [&]<class T>() {
    auto* const memory = static_cast<std::byte*>(workspace);
    const ConvGeometry part = cudnn_part(dtype, ConvPass::kBackwardInput, geometry);
    if (const CudnnLayout layout(context, dtype, ConvPass::kBackwardInput, part); layout.is_possible()) {
      T* const filters = reinterpret_cast<T*>(memory + layout.filters);
      reorder_filters(context, geometry, static_cast<const T*>(weight), filters);
      if (cudnn_conv(context, dtype, ConvPass::kBackwardInput, part, input_grad, filters,
                     part.has_bias ? bias : nullptr, grad, memory + layout.cudnn)) {
        if (part.has_bias != geometry.has_bias) {
          binary(context, functions::Add{}, dtype,
                 {pixels * channels, {pixels, channels}, {{channels, 1}, {channels, 1}, {0, 1}}}, input_grad, bias,
                 input_grad);
        }
        return;
      }
    }
    for_each_step(ConvPass::kBackwardInput, geometry, [&](const Step& step) {
      run_step<T>(context, dtype, step, static_cast<const T*>(grad), static_cast<const T*>(weight),
                  static_cast<const T*>(bias), false, memory, static_cast<T*>(input_grad));
    });
  });
}

void conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                          const void* grad, double beta, void* workspace, void* weight_grad) {
  if (geometry.weight_elements() == 0) return;
  if (depthwise_can(geometry)) {
    return depthwise_backward_weight(context, dtype, geometry, input, grad, beta, workspace, weight_grad);
  }
  visit_floating_dtype(dtype, [&]<class T>() {
    auto* const memory = static_cast<std::byte*>(workspace);
    if (const CudnnLayout layout(context, dtype, ConvPass::kBackwardWeight, geometry); layout.is_possible()) {
      T* const part = reinterpret_cast<T*>(memory + layout.filters);
      if (cudnn_conv(context, dtype, ConvPass::kBackwardWeight, geometry, input, part, nullptr, grad,
                     memory + layout.cudnn)) {
        launch_kernel(context, add_filters_kernel<T>, blocks_for(geometry.weight_elements()), kBlock, 0,
                      geometry.out_channels, geometry.taps(), geometry.group_channels(), static_cast<const T*>(part),
                      true, true, beta, static_cast<Accumulator<T>*>(nullptr), static_cast<T*>(weight_grad));
        return;
      }
    }
    run_weight<T>(context, dtype, geometry, static_cast<const T*>(input), static_cast<const T*>(grad), beta, memory,
                  static_cast<T*>(weight_grad));
  });
}

}}}  // namespace tandem::v0::cuda

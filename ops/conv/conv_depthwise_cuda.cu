// Convolutions with one input channel per group, for which the product of im2col would be one column wide. One thread
// computes one result; adjacent threads have adjacent channels.
#include <algorithm>

#include <tandem/ops/conv/conv_depthwise_cuda.h>
#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

/// A pixel of a batch of images.
struct Pixel {
  int64_t image, y, x;

  __device__ Pixel(int64_t index, Size2d size)
      : image(index / size.width / size.height), y(index / size.width % size.height), x(index % size.width) {}
};

__device__ inline bool is_inside(int64_t y, int64_t x, Size2d size) {
  return y >= 0 && y < size.height && x >= 0 && x < size.width;
}

template <class T>
__global__ void depthwise_forward_kernel(ConvGeometry g, const T* input, const T* weight, const T* bias, bool relu,
                                         T* out) {
  using C = Accumulator<T>;
  const int64_t filters = g.group_out_channels();
  for (int64_t i = thread_index(); i < g.out_pixels() * g.out_channels; i += num_threads()) {
    const int64_t o = i % g.out_channels;
    const Pixel at(i / g.out_channels, g.out);
    const T* const image = input + at.image * g.size.height * g.size.width * g.channels + o / filters;
    const T* filter = weight + o * g.taps();
    C sum = bias == nullptr ? C{0} : static_cast<C>(bias[o]);
    for (int64_t tap_y = 0; tap_y < g.kernel.height; ++tap_y) {
      const int64_t y = at.y * g.stride.height + tap_y * g.dilation.height - g.padding.height;
      for (int64_t tap_x = 0; tap_x < g.kernel.width; ++tap_x, ++filter) {
        const int64_t x = at.x * g.stride.width + tap_x * g.dilation.width - g.padding.width;
        if (is_inside(y, x, g.size))
          sum += static_cast<C>(image[(y * g.size.width + x) * g.channels]) * static_cast<C>(*filter);
      }
    }
    out[i] = static_cast<T>(relu && sum < C{0} ? C{0} : sum);
  }
}

template <class T>
__global__ void depthwise_backward_input_kernel(ConvGeometry g, const T* grad, const T* weight, const T* bias, T* out) {
  using C = Accumulator<T>;
  const int64_t filters = g.group_out_channels();
  for (int64_t i = thread_index(); i < g.batch * g.size.height * g.size.width * g.channels; i += num_threads()) {
    const int64_t first_filter = i % g.channels * filters;
    const Pixel at(i / g.channels, g.size);
    const T* const image = grad + at.image * g.out.height * g.out.width * g.out_channels + first_filter;
    C sum = bias == nullptr ? C{0} : static_cast<C>(bias[i % g.channels]);
    for (int64_t tap_y = 0; tap_y < g.kernel.height; ++tap_y) {
      const int64_t scaled_y = at.y + g.padding.height - tap_y * g.dilation.height;
      if (scaled_y < 0 || scaled_y % g.stride.height != 0) continue;
      for (int64_t tap_x = 0; tap_x < g.kernel.width; ++tap_x) {
        const int64_t scaled_x = at.x + g.padding.width - tap_x * g.dilation.width;
        if (scaled_x < 0 || scaled_x % g.stride.width != 0) continue;
        const int64_t y = scaled_y / g.stride.height, x = scaled_x / g.stride.width;
        if (!is_inside(y, x, g.out)) continue;
        const T* const from = image + (y * g.out.width + x) * g.out_channels;
        const T* const filter = weight + first_filter * g.taps() + tap_y * g.kernel.width + tap_x;
        for (int64_t o = 0; o < filters; ++o) sum += static_cast<C>(from[o]) * static_cast<C>(filter[o * g.taps()]);
      }
    }
    out[i] = static_cast<T>(sum);
  }
}

constexpr int kColumns = 32;  // channels per block
constexpr int kRows = 16;     // pixels that a block reads at a time

/// Partition of the sum over pixels; depends only on sizes.
struct Slices {
  int64_t pixels;  // per slice
  int64_t count;

  explicit Slices(const ConvGeometry& g) {
    constexpr int64_t kMinPixels = 1024, kMaxSlices = 256;
    pixels = std::max(kMinPixels, (g.out_pixels() + kMaxSlices - 1) / kMaxSlices);
    count = std::max<int64_t>(1, (g.out_pixels() + pixels - 1) / pixels);
  }
};

/// parts[slice][filter][tap] = the sum over the pixels of a slice. float64 costs nothing, because the kernel is limited
/// by memory.
template <class T>
__global__ void depthwise_weight_parts_kernel(ConvGeometry g, Slices slices, const T* input, const T* grad,
                                              double* parts) {
  using C = Accumulator<T>;
  __shared__ double sums[kRows][kColumns];
  const int64_t filters = g.group_out_channels(), across = (g.out_channels + kColumns - 1) / kColumns;
  for (int64_t task = blockIdx.x; task < slices.count * g.taps() * across; task += gridDim.x) {
    const int64_t o = task % across * kColumns + threadIdx.x, tap = task / across % g.taps(),
                  slice = task / across / g.taps();
    const int64_t end = ::min((slice + 1) * slices.pixels, g.out_pixels());
    const int64_t from_y = tap / g.kernel.width * g.dilation.height - g.padding.height;
    const int64_t from_x = tap % g.kernel.width * g.dilation.width - g.padding.width;
    double sum = 0;
    for (int64_t pixel = slice * slices.pixels + threadIdx.y; pixel < end && o < g.out_channels; pixel += kRows) {
      const Pixel at(pixel, g.out);
      const int64_t y = at.y * g.stride.height + from_y, x = at.x * g.stride.width + from_x;
      if (!is_inside(y, x, g.size)) continue;
      const int64_t source = (at.image * g.size.height + y) * g.size.width + x;
      sum += static_cast<double>(static_cast<C>(grad[pixel * g.out_channels + o])) *
             static_cast<double>(static_cast<C>(input[source * g.channels + o / filters]));
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && o < g.out_channels) {
      for (int row = 1; row < kRows; ++row) sum += sums[row][threadIdx.x];
      parts[(slice * g.out_channels + o) * g.taps() + tap] = sum;
    }
    __syncthreads();
  }
}

template <class T>
__global__ void depthwise_weight_kernel(int64_t elements, int64_t slices, const double* parts, double beta, T* out) {
  using C = Accumulator<T>;
  for (int64_t i = thread_index(); i < elements; i += num_threads()) {
    double sum = beta == 0 ? 0.0 : beta * static_cast<double>(static_cast<C>(out[i]));
    for (int64_t slice = 0; slice < slices; ++slice) sum += parts[slice * elements + i];
    out[i] = static_cast<T>(sum);
  }
}

}  // namespace

bool depthwise_can(const ConvGeometry& geometry) {
  return geometry.groups == geometry.channels && geometry.channels * geometry.out_channels > 0;
}

int64_t depthwise_workspace_bytes(ConvPass pass, const ConvGeometry& geometry) {
  if (pass != ConvPass::kBackwardWeight) return 0;
  return Slices(geometry).count * geometry.weight_elements() * static_cast<int64_t>(sizeof(double));
}

void depthwise_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                       const void* weight, const void* bias, bool relu, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, depthwise_forward_kernel<T>, blocks_for(geometry.out_pixels() * geometry.out_channels),
                  kBlock, 0, geometry, static_cast<const T*>(input), static_cast<const T*>(weight),
                  static_cast<const T*>(bias), relu, static_cast<T*>(out));
  });
}

void depthwise_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                              const void* weight, const void* bias, void* input_grad) {
  const int64_t n = geometry.batch * geometry.size.height * geometry.size.width * geometry.channels;
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, depthwise_backward_input_kernel<T>, blocks_for(n), kBlock, 0, geometry,
                  static_cast<const T*>(grad), static_cast<const T*>(weight), static_cast<const T*>(bias),
                  static_cast<T*>(input_grad));
  });
}

void depthwise_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                               const void* input, const void* grad, double beta, void* workspace, void* weight_grad) {
  const Slices slices(geometry);
  const int64_t n = geometry.weight_elements();
  const int64_t tasks = slices.count * geometry.taps() * ((geometry.out_channels + kColumns - 1) / kColumns);
  double* const parts = static_cast<double*>(workspace);
  visit_floating_dtype(dtype, [&]<class T>() {
    launch_kernel(context, depthwise_weight_parts_kernel<T>, blocks_for(tasks, 1), dim3(kColumns, kRows), 0, geometry,
                  slices, static_cast<const T*>(input), static_cast<const T*>(grad), parts);
    launch_kernel(context, depthwise_weight_kernel<T>, blocks_for(n), kBlock, 0, n, slices.count,
                  static_cast<const double*>(parts), beta, static_cast<T*>(weight_grad));
  });
}

}}}  // namespace tandem::v0::cuda

// CPU kernels of convolutions: choice of the algorithm, and the direct algorithm.
#include <algorithm>
#include <type_traits>

#include <tandem/base/env.h>
#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/ops/conv/conv_passes.h>
#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 {

namespace {

bool has_avx512() { return is_available(GemmAlgorithm::kAvx512); }

bool is_winograd(ConvAlgorithm algorithm) {
  return algorithm == ConvAlgorithm::kWinogradAvx2 || algorithm == ConvAlgorithm::kWinogradAvx512;
}

bool is_avx512(ConvAlgorithm algorithm) {
  return algorithm == ConvAlgorithm::kTilesAvx512 || algorithm == ConvAlgorithm::kWinogradAvx512;
}

const GemmKernels& kernels_of(ConvAlgorithm algorithm) { return is_avx512(algorithm) ? kGemmAvx512 : kGemmAvx2; }

/// Whether Winograd saves multiplications enough to outweigh its transforms: each tile costs 36 per channel and filter,
/// also on maps smaller than its 4 x 4 results of 3 x 3 filters, or 2 x 2 results of 5 x 5 filters.
bool fills_winograd_tiles(const ConvGeometry& g) {
  constexpr double kMinSaving = 1.6;
  const int64_t side = 7 - g.kernel.height;
  const int64_t tiles = g.batch * ceil_div(g.out.height, side) * ceil_div(g.out.width, side);
  return static_cast<double>(g.taps() * g.out_pixels()) >= kMinSaving * static_cast<double>(36 * tiles);
}

}  // namespace

const char* to_string(ConvAlgorithm algorithm) {
  constexpr const char* kNames[] = {"direct",        "depthwise",       "tiles avx2",       "tiles avx512",
                                    "winograd avx2", "winograd avx512", "tiles avx512_bf16"};
  return kNames[static_cast<int>(algorithm)];
}

bool is_available(ConvAlgorithm algorithm, const ConvGeometry& geometry) {
  if (algorithm == ConvAlgorithm::kTilesAvx512Bf16) return cpu::bf16_conv_can(geometry);
  return (!is_avx512(algorithm) || has_avx512()) && (!is_winograd(algorithm) || cpu::winograd_can(geometry)) &&
         (algorithm != ConvAlgorithm::kDepthwise || cpu::depthwise_can(geometry));
}

ConvAlgorithm conv_algorithm(ConvPass pass, const ConvGeometry& g) {
  constexpr int64_t kSmall = 24 * 24 * 24;
  if (g.work() <= kSmall) return ConvAlgorithm::kDirect;
  if (cpu::depthwise_can(g)) return ConvAlgorithm::kDepthwise;
  // With few channels on either side, the transforms cost more than the saved multiplications. 2^18 pairs of channel
  // and filter take 36 MiB when transformed, which is the limit.
  constexpr int64_t kMinWinogradChannels = 16, kMaxWinogradPairs = 1 << 18;
  if (cpu::winograd_can(g) && std::min(g.group_channels(), g.group_out_channels()) >= kMinWinogradChannels &&
      g.group_channels() * g.group_out_channels() <= kMaxWinogradPairs &&
      (pass == ConvPass::kBackwardWeight || fills_winograd_tiles(g))) {
    return has_avx512() ? ConvAlgorithm::kWinogradAvx512 : ConvAlgorithm::kWinogradAvx2;
  }
  // A packed panel is 64 columns wide for AVX-512 and 16 for AVX2: a narrow right side would be mostly padding.
  constexpr int64_t kNarrow = 16;
  const int64_t columns = pass == ConvPass::kForward         ? g.group_out_channels()
                          : pass == ConvPass::kBackwardInput ? g.group_channels()
                                                             : g.group_channels() * g.taps();
  return has_avx512() && columns > kNarrow ? ConvAlgorithm::kTilesAvx512 : ConvAlgorithm::kTilesAvx2;
}

namespace cpu {

namespace {

/// Calls f(tap, source pixel) for the taps of result `at` along one side whose source pixel is inside the input.
template <class F>
void for_taps(int64_t at, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, F f) {
  for (int64_t tap = 0; tap < kernel; ++tap) {
    const int64_t pixel = at * stride + tap * dilation - padding;
    if (pixel >= 0 && pixel < size) f(tap, pixel);
  }
}

/// Calls f(tap, result) for the results along one side that read input `pixel`, with the tap that reads it.
template <class F>
void for_results(int64_t pixel, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, F f) {
  for (int64_t tap = 0; tap < kernel; ++tap) {
    const int64_t scaled = pixel + padding - tap * dilation;
    if (scaled >= 0 && scaled % stride == 0 && scaled / stride < out) f(tap, scaled / stride);
  }
}

template <class T>
void direct_forward(const ConvGeometry& g, const ConvData<T>& data) {
  const int64_t depth = g.group_channels(), filters = g.group_out_channels(), taps = g.taps();
  parallel_for(g.batch * g.out.height, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / g.out.height, y = row % g.out.height;
      for (int64_t x = 0; x < g.out.width; ++x) {
        T* out = data.out + (row * g.out.width + x) * g.out_channels;
        for (int64_t o = 0; o < g.out_channels; ++o) {
          double sum = data.bias != nullptr ? static_cast<double>(data.bias[o]) : 0.0;
          for_taps(y, g.size.height, g.kernel.height, g.stride.height, g.padding.height, g.dilation.height,
                   [&](int64_t tap_y, int64_t pixel_y) {
                     for_taps(x, g.size.width, g.kernel.width, g.stride.width, g.padding.width, g.dilation.width,
                              [&](int64_t tap_x, int64_t pixel_x) {
                                const T* pixel =
                                    data.input +
                                    ((image * g.size.height + pixel_y) * g.size.width + pixel_x) * g.channels +
                                    o / filters * depth;
                                const T* filter = data.weight + o * depth * taps + tap_y * g.kernel.width + tap_x;
                                for (int64_t c = 0; c < depth; ++c) {
                                  sum += static_cast<double>(pixel[c]) * static_cast<double>(filter[c * taps]);
                                }
                              });
                   });
          out[o] = static_cast<T>(data.relu && sum < 0 ? 0 : sum);
        }
      }
    }
  });
}

template <class T>
void direct_backward_input(const ConvGeometry& g, const ConvData<T>& data) {
  const int64_t depth = g.group_channels(), filters = g.group_out_channels(), taps = g.taps();
  parallel_for(g.batch * g.size.height, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / g.size.height, y = row % g.size.height;
      for (int64_t x = 0; x < g.size.width; ++x) {
        T* out = data.out + (row * g.size.width + x) * g.channels;
        for (int64_t c = 0; c < g.channels; ++c) {
          const int64_t first_filter = c / depth * filters;
          double sum = data.bias != nullptr ? static_cast<double>(data.bias[c]) : 0.0;
          for_results(y, g.out.height, g.kernel.height, g.stride.height, g.padding.height, g.dilation.height,
                      [&](int64_t tap_y, int64_t out_y) {
                        for_results(
                            x, g.out.width, g.kernel.width, g.stride.width, g.padding.width, g.dilation.width,
                            [&](int64_t tap_x, int64_t out_x) {
                              const T* grad = data.grad +
                                              ((image * g.out.height + out_y) * g.out.width + out_x) * g.out_channels +
                                              first_filter;
                              const T* filter = data.weight + (first_filter * depth + c % depth) * taps +
                                                tap_y * g.kernel.width + tap_x;
                              for (int64_t o = 0; o < filters; ++o) {
                                sum += static_cast<double>(grad[o]) * static_cast<double>(filter[o * depth * taps]);
                              }
                            });
                      });
          out[c] = static_cast<T>(sum);
        }
      }
    }
  });
}

template <class T>
void direct_backward_weight(const ConvGeometry& g, const ConvData<T>& data) {
  const int64_t depth = g.group_channels(), filters = g.group_out_channels(), taps = g.taps();
  parallel_for(g.weight_elements(), std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, g.out_pixels())),
               [&](int64_t begin, int64_t end) {
                 for (int64_t at = begin; at < end; ++at) {
                   const int64_t tap_y = at % taps / g.kernel.width, tap_x = at % g.kernel.width;
                   const int64_t o = at / (depth * taps), c = o / filters * depth + at / taps % depth;
                   double sum = 0;
                   for (int64_t row = 0; row < g.batch * g.out.height; ++row) {
                     const int64_t image = row / g.out.height, y = row % g.out.height;
                     const int64_t pixel_y = y * g.stride.height + tap_y * g.dilation.height - g.padding.height;
                     if (pixel_y < 0 || pixel_y >= g.size.height) continue;
                     const T* grad = data.grad + row * g.out.width * g.out_channels + o;
                     const T* pixels = data.input + (image * g.size.height + pixel_y) * g.size.width * g.channels + c;
                     for (int64_t x = 0; x < g.out.width; ++x) {
                       const int64_t pixel_x = x * g.stride.width + tap_x * g.dilation.width - g.padding.width;
                       if (pixel_x < 0 || pixel_x >= g.size.width) continue;
                       sum += static_cast<double>(grad[x * g.out_channels]) *
                              static_cast<double>(pixels[pixel_x * g.channels]);
                     }
                   }
                   const double old = data.beta == 0 ? 0.0 : static_cast<double>(data.out[at]);
                   data.out[at] = static_cast<T>(old + sum);
                 }
               });
}

/// `algorithm`, or the one that float64 has instead.
template <class T>
ConvAlgorithm algorithm_for(ConvAlgorithm algorithm, const ConvGeometry& geometry) {
  if (std::is_same_v<T, float> || algorithm == ConvAlgorithm::kDirect) return algorithm;
  return algorithm == ConvAlgorithm::kDepthwise && geometry.group_channels() == 1 ? algorithm
                                                                                  : ConvAlgorithm::kTilesAvx2;
}

void solve(ConvAlgorithm algorithm, ConvPass pass, const ConvGeometry& geometry, const ConvData<BFloat16>& data) {
  const TraceSpan span(to_string(algorithm), "algorithm");
  bf16_conv(pass, geometry, data);
}

template <class T>
void solve(ConvAlgorithm chosen, ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data) {
  const ConvAlgorithm algorithm = algorithm_for<T>(chosen, geometry);
  const bool is_eigen = std::is_same_v<T, double> && algorithm == ConvAlgorithm::kTilesAvx2;
  const TraceSpan span(is_eigen ? "tiles eigen" : to_string(algorithm), "algorithm");
  if (algorithm == ConvAlgorithm::kDirect) return direct_conv(pass, geometry, data);
  if (algorithm == ConvAlgorithm::kDepthwise) return depthwise_conv(pass, geometry, data);
  if constexpr (std::is_same_v<T, float>) {
    if (is_winograd(algorithm)) return winograd_conv(pass, geometry, kernels_of(algorithm), data);
  }
  im2col_conv(pass, geometry, kernels_of(algorithm), data);
}

template <class F>
void visit_conv_dtype(DType dtype, F f) {
  dtype == kFloat64 ? f(double()) : dtype == kBFloat16 ? f(BFloat16()) : f(float());
}

}  // namespace

template <class T>
void direct_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data) {
  switch (pass) {
    case ConvPass::kForward: return direct_forward(geometry, data);
    case ConvPass::kBackwardInput: return direct_backward_input(geometry, data);
    case ConvPass::kBackwardWeight: return direct_backward_weight(geometry, data);
  }
}

int64_t conv_workspace_bytes(DType dtype, ConvAlgorithm chosen, ConvPass pass, const ConvGeometry& geometry) {
  int64_t bytes = 0;
  visit_conv_dtype(dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      bytes = bf16_conv_workspace_bytes(pass, geometry);
    } else {
      const ConvAlgorithm algorithm = algorithm_for<T>(chosen, geometry);
      const GemmKernels& kernels = kernels_of(algorithm);
      if (algorithm == ConvAlgorithm::kDirect) return;
      bytes = algorithm == ConvAlgorithm::kDepthwise ? depthwise_workspace_bytes<T>(pass, geometry)
              : is_winograd(algorithm)               ? winograd_workspace_bytes(pass, geometry, kernels)
                                                     : im2col_conv_workspace_bytes<T>(pass, geometry, kernels);
    }
  });
  return bytes;
}

void conv_forward(const CpuContext&, DType dtype, ConvAlgorithm algorithm, const ConvGeometry& geometry,
                  const void* input, const void* weight, const void* bias, bool relu, void* workspace, void* out) {
  visit_conv_dtype(dtype, [&]<class T>(T) {
    solve(algorithm, ConvPass::kForward, geometry,
          ConvData<T>{.input = static_cast<const T*>(input),
                      .weight = static_cast<const T*>(weight),
                      .bias = static_cast<const T*>(bias),
                      .relu = relu,
                      .workspace = workspace,
                      .out = static_cast<T*>(out)});
  });
}

void conv_backward_input(const CpuContext&, DType dtype, ConvAlgorithm algorithm, const ConvGeometry& geometry,
                         const void* grad, const void* weight, const void* bias, void* workspace, void* input_grad) {
  visit_conv_dtype(dtype, [&]<class T>(T) {
    solve(algorithm, ConvPass::kBackwardInput, geometry,
          ConvData<T>{.weight = static_cast<const T*>(weight),
                      .grad = static_cast<const T*>(grad),
                      .bias = static_cast<const T*>(bias),
                      .workspace = workspace,
                      .out = static_cast<T*>(input_grad)});
  });
}

void conv_backward_weight(const CpuContext&, DType dtype, ConvAlgorithm algorithm, const ConvGeometry& geometry,
                          const void* input, const void* grad, double beta, void* workspace, void* weight_grad) {
  visit_conv_dtype(dtype, [&]<class T>(T) {
    solve(algorithm, ConvPass::kBackwardWeight, geometry,
          ConvData<T>{.input = static_cast<const T*>(input),
                      .grad = static_cast<const T*>(grad),
                      .beta = beta,
                      .workspace = workspace,
                      .out = static_cast<T*>(weight_grad)});
  });
}

namespace {

/// The algorithm for float32, unless the environment selects the reference algorithm.
ConvAlgorithm choose_algorithm(ConvPass pass, const ConvGeometry& geometry) {
  constexpr const char* kVariable = "TANDEM_CONV_ALGORITHM";
  const auto wanted = env_string(kVariable);
  if (!wanted) return conv_algorithm(pass, geometry);
  TANDEM_CHECK(ValueError, *wanted == "direct", kVariable, " is '", *wanted, "', expected 'direct' or no value");
  return ConvAlgorithm::kDirect;
}

ConvAlgorithm choose_algorithm(DType dtype, ConvPass pass, const ConvGeometry& geometry) {
  return dtype == kBFloat16 ? ConvAlgorithm::kTilesAvx512Bf16 : choose_algorithm(pass, geometry);
}

}  // namespace

int64_t conv_workspace_bytes(const KernelContext&, DType dtype, ConvPass pass, const ConvGeometry& geometry) {
  return conv_workspace_bytes(dtype, choose_algorithm(dtype, pass, geometry), pass, geometry);
}

void conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                  const void* weight, const void* bias, bool relu, void* workspace, void* out) {
  conv_forward(context, dtype, choose_algorithm(dtype, ConvPass::kForward, geometry), geometry, input, weight, bias,
               relu, workspace, out);
}

void conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* grad,
                         const void* weight, const void* bias, void* workspace, void* input_grad) {
  conv_backward_input(context, dtype, choose_algorithm(dtype, ConvPass::kBackwardInput, geometry), geometry, grad,
                      weight, bias, workspace, input_grad);
}

void conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                          const void* grad, double beta, void* workspace, void* weight_grad) {
  conv_backward_weight(context, dtype, choose_algorithm(dtype, ConvPass::kBackwardWeight, geometry), geometry, input,
                       grad, beta, workspace, weight_grad);
}

}  // namespace cpu

bool has_half_conv(DType dtype, ConvPass pass, const ConvGeometry& geometry) {
  if (dtype != kBFloat16) return false;
  const ConvAlgorithm algorithm = cpu::choose_algorithm(pass, geometry);
  return (algorithm == ConvAlgorithm::kTilesAvx2 || algorithm == ConvAlgorithm::kTilesAvx512) &&
         is_available(ConvAlgorithm::kTilesAvx512Bf16, geometry);
}

}}  // namespace tandem::v0

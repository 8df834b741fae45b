// Depthwise convolutions (one filter per channel): loops over adjacent channels.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/conv/conv_passes.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

/// Channels whose sums are kept in registers.
constexpr int64_t kBlock = 32;

/// sums[c] += a[c] * b[c] for the channels of a block. Most blocks are full; their constant length lets the compiler
/// vectorize the loop.
template <class T>
inline void multiply_add(const T* a, const T* b, int64_t count, T* sums) {
  if (count == kBlock) {
    for (int64_t c = 0; c < kBlock; ++c) sums[c] += a[c] * b[c];
  } else {
    for (int64_t c = 0; c < count; ++c) sums[c] += a[c] * b[c];
  }
}

/// Calls f(channel, count) for the blocks of channels.
template <class F>
void for_blocks(int64_t channels, F f) {
  for (int64_t c = 0; c < channels; c += kBlock) f(c, std::min(kBlock, channels - c));
}

/// Taps [begin, end) of result `at` whose pixels are inside the input along one side.
struct TapRange {
  int64_t begin, end;
};

TapRange taps_inside(int64_t at, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t first = at * stride - padding;
  const int64_t begin = first >= 0 ? 0 : std::min(kernel, (-first + dilation - 1) / dilation);
  const int64_t end = first >= size ? 0 : std::min(kernel, (size - 1 - first) / dilation + 1);
  return {begin, std::max(begin, end)};
}

/// The filters as rows of taps: rows[tap][channel].
template <class T>
void transpose_filters(const ConvGeometry& g, const T* weight, T* rows) {
  for (int64_t tap = 0; tap < g.taps(); ++tap) {
    for (int64_t c = 0; c < g.channels; ++c) rows[tap * g.channels + c] = weight[c * g.taps() + tap];
  }
}

template <class T>
void forward(const ConvGeometry& g, const ConvData<T>& data) {
  T* filters = static_cast<T*>(data.workspace);
  transpose_filters(g, data.weight, filters);
  parallel_for(g.batch * g.out.height, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const TapRange ys = taps_inside(row % g.out.height, g.size.height, g.kernel.height, g.stride.height,
                                      g.padding.height, g.dilation.height);
      const int64_t first_y = row % g.out.height * g.stride.height - g.padding.height;
      const T* image = data.input + row / g.out.height * g.size.height * g.size.width * g.channels;
      for (int64_t x = 0; x < g.out.width; ++x) {
        const TapRange xs =
            taps_inside(x, g.size.width, g.kernel.width, g.stride.width, g.padding.width, g.dilation.width);
        const int64_t first_x = x * g.stride.width - g.padding.width;
        for_blocks(g.channels, [&](int64_t channel, int64_t count) {
          T sums[kBlock] = {};
          for (int64_t i = ys.begin; i < ys.end; ++i) {
            for (int64_t j = xs.begin; j < xs.end; ++j) {
              const int64_t pixel = (first_y + i * g.dilation.height) * g.size.width + first_x + j * g.dilation.width;
              multiply_add(image + pixel * g.channels + channel,
                           filters + (i * g.kernel.width + j) * g.channels + channel, count, sums);
            }
          }
          T* out = data.out + (row * g.out.width + x) * g.channels + channel;
          for (int64_t c = 0; c < count; ++c) {
            const T value = sums[c] + (data.bias != nullptr ? data.bias[channel + c] : T(0));
            out[c] = data.relu && value < 0 ? T(0) : value;
          }
        });
      }
    }
  });
}

template <class T>
void backward_input(const ConvGeometry& g, const ConvData<T>& data) {
  T* filters = static_cast<T*>(data.workspace);
  transpose_filters(g, data.weight, filters);
  parallel_for(g.batch * g.size.height, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t y = row % g.size.height + g.padding.height;
      const T* image = data.grad + row / g.size.height * g.out.height * g.out.width * g.channels;
      for (int64_t column = 0; column < g.size.width; ++column) {
        const int64_t x = column + g.padding.width;
        for_blocks(g.channels, [&](int64_t channel, int64_t count) {
          T sums[kBlock] = {};
          for (int64_t i = 0; i < g.kernel.height; ++i) {
            const int64_t scaled_y = y - i * g.dilation.height;
            if (scaled_y < 0 || scaled_y % g.stride.height != 0 || scaled_y / g.stride.height >= g.out.height) continue;
            const T* line = image + scaled_y / g.stride.height * g.out.width * g.channels;
            for (int64_t j = 0; j < g.kernel.width; ++j) {
              const int64_t scaled_x = x - j * g.dilation.width;
              if (scaled_x < 0 || scaled_x % g.stride.width != 0 || scaled_x / g.stride.width >= g.out.width) continue;
              multiply_add(line + scaled_x / g.stride.width * g.channels + channel,
                           filters + (i * g.kernel.width + j) * g.channels + channel, count, sums);
            }
          }
          T* out = data.out + (row * g.size.width + column) * g.channels + channel;
          for (int64_t c = 0; c < count; ++c) out[c] = sums[c];
        });
      }
    }
  });
}

/// Tasks are blocks of channels. Each sums over all pixels, one row of the result at a time.
template <class T>
void backward_weight(const ConvGeometry& g, const ConvData<T>& data) {
  T* totals = static_cast<T*>(data.workspace);
  std::fill_n(totals, g.weight_elements(), T(0));
  parallel_for(g.channels, kBlock, [&](int64_t channel, int64_t channel_end) {
    const int64_t count = channel_end - channel;
    for (int64_t row = 0; row < g.batch * g.out.height; ++row) {
      const int64_t first_y = row % g.out.height * g.stride.height - g.padding.height;
      const T* image = data.input + row / g.out.height * g.size.height * g.size.width * g.channels + channel;
      const T* grad = data.grad + row * g.out.width * g.channels + channel;
      for (int64_t i = 0; i < g.kernel.height; ++i) {
        const int64_t y = first_y + i * g.dilation.height;
        if (y < 0 || y >= g.size.height) continue;
        for (int64_t j = 0; j < g.kernel.width; ++j) {
          T sums[kBlock] = {};
          for (int64_t x = 0; x < g.out.width; ++x) {
            const int64_t pixel = x * g.stride.width - g.padding.width + j * g.dilation.width;
            if (pixel < 0 || pixel >= g.size.width) continue;
            multiply_add(image + (y * g.size.width + pixel) * g.channels, grad + x * g.channels, count, sums);
          }
          T* total = totals + (i * g.kernel.width + j) * g.channels + channel;
          for (int64_t c = 0; c < count; ++c) total[c] += sums[c];
        }
      }
    }
  });
  for (int64_t c = 0; c < g.channels; ++c) {
    for (int64_t tap = 0; tap < g.taps(); ++tap) {
      T* out = data.out + c * g.taps() + tap;
      *out = data.beta == 0 ? totals[tap * g.channels + c] : *out + totals[tap * g.channels + c];
    }
  }
}

}  // namespace

bool depthwise_can(const ConvGeometry& g) {
  return g.groups > 0 && g.channels == g.groups && g.out_channels == g.groups;
}

int64_t depthwise_workspace_elements(const ConvGeometry& g) { return g.weight_elements(); }

template <class T>
void depthwise_conv(ConvPass pass, const ConvGeometry& geometry, const ConvData<T>& data) {
  switch (pass) {
    case ConvPass::kForward: return forward(geometry, data);
    case ConvPass::kBackwardInput: return backward_input(geometry, data);
    case ConvPass::kBackwardWeight: return backward_weight(geometry, data);
  }
}

template void depthwise_conv<float>(ConvPass, const ConvGeometry&, const ConvData<float>&);
template void depthwise_conv<double>(ConvPass, const ConvGeometry&, const ConvData<double>&);

}}}  // namespace tandem::v0::cpu

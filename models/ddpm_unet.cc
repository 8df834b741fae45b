#include <tandem/models/ddpm_unet.h>

#include <cmath>
#include <string>

#include <tandem/base/math.h>
#include <tandem/nn/init.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/resize.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {

constexpr nn::Conv2dOptions kSame = {.padding = 1};  // of 3x3 convolutions that keep the size

/// Zeros, so that a residual branch adds nothing at the beginning.
template <class Layer>
void start_with_zeros(Layer& layer) {
  nn::init::zeros_(layer.weight);
  nn::init::zeros_(layer.bias);
}

/// sin(t f_i) for all i, then cos(t f_i), with frequencies f_i = 10000^(-i / (size / 2)): times [N] -> [N, size].
Tensor time_waves(const Tensor& times, int64_t size) {
  const int64_t half = size / 2;
  const TensorOptions options = {kFloat32, times.device()};
  const Tensor frequencies = exp(arange(0, half, 1, options) * (-std::log(10000.0) / static_cast<double>(half)));
  const Tensor angles = times.to(kFloat32).unsqueeze(1) * frequencies;
  return cat({sin(angles), cos(angles)}, 1);
}

const DdpmUNetOptions& checked(const DdpmUNetOptions& o) {
  bool are_positive = o.channels >= 1 && o.width >= 1 && o.groups >= 1 && o.patch >= 1 && !o.multipliers.empty();
  for (const int64_t multiplier : o.multipliers) are_positive = are_positive && multiplier >= 1;
  TANDEM_CHECK(ValueError, are_positive && o.width % 2 == 0 && o.width % o.groups == 0, "DdpmUNet: channels ",
               o.channels, ", width ", o.width, ", multipliers ", Shape(o.multipliers.begin(), o.multipliers.end()),
               ", groups ", o.groups, ", patch ", o.patch,
               "; expected sizes of at least 1, and a width that is even and a multiple of groups");
  return o;
}

}  // namespace

DdpmBlock::DdpmBlock(int64_t in_channels, int64_t out_channels, int64_t embedding, int64_t groups)
    : norm1(add<nn::GroupNorm>("norm1", groups, in_channels)),
      conv1(add<nn::Conv2d>("conv1", in_channels, out_channels, 3, kSame)),
      time(add<nn::Linear>("time", embedding, out_channels)),
      norm2(add<nn::GroupNorm>("norm2", groups, out_channels)),
      conv2(add<nn::Conv2d>("conv2", out_channels, out_channels, 3, kSame)) {
  if (in_channels != out_channels) shortcut = &add<nn::Conv2d>("shortcut", in_channels, out_channels, 1);
  start_with_zeros(conv2);
}

Tensor DdpmBlock::forward(const Tensor& x, const Tensor& embedding) {
  const Tensor bias = time(silu(embedding)).unsqueeze(2).unsqueeze(3);
  const Tensor h = conv2(silu(norm2(conv1(silu(norm1(x))) + bias)));
  return (shortcut != nullptr ? (*shortcut)(x) : x) + h;
}

DdpmAttention::DdpmAttention(int64_t channels, int64_t groups)
    : norm(add<nn::GroupNorm>("norm", groups, channels)),
      qkv(add<nn::Linear>("qkv", channels, 3 * channels)),
      proj(add<nn::Linear>("proj", channels, channels)) {
  start_with_zeros(proj);
}

Tensor DdpmAttention::forward(const Tensor& x) {
  const Tensor positions = norm(x).flatten(2).transpose(1, 2);  // [N, H W, C]
  const Tensor h = proj(qkv_attention(qkv(positions), 1));
  return x + h.transpose(1, 2).reshape(x.shape());
}

DdpmUNet::DdpmUNet(const DdpmUNetOptions& o)
    : options(checked(o)),
      time1(add<nn::Linear>("time1", o.width, saturating_mul(4, o.width))),
      time2(add<nn::Linear>("time2", 4 * o.width, saturating_mul(4, o.width))),
      in(add<nn::Conv2d>("in", saturating_mul(o.channels, saturating_mul(o.patch, o.patch)), o.width, 3, kSame)) {
  const int64_t embedding = 4 * o.width;
  const auto name = [](const char* prefix, int64_t level) { return prefix + std::to_string(level); };
  const auto add_block = [&](std::string block, int64_t in_channels, int64_t out_channels) {
    return &add<DdpmBlock>(std::move(block), in_channels, out_channels, embedding, o.groups);
  };
  const auto levels = static_cast<int64_t>(o.multipliers.size());
  const auto width_of = [&](int64_t level) {
    return saturating_mul(o.width, o.multipliers[static_cast<size_t>(level)]);
  };
  int64_t channels = o.width;
  for (int64_t level = 0; level < levels; ++level) {
    if (level > 0) {
      halve.push_back(&add<nn::Conv2d>(name("halve", level), channels, channels, 3, {.stride = 2, .padding = 1}));
    }
    down.push_back(add_block(name("down", level), channels, width_of(level)));
    channels = width_of(level);
  }
  middle1 = add_block("middle1", channels, channels);
  attention = &add<DdpmAttention>("attention", channels, o.groups);
  middle2 = add_block("middle2", channels, channels);
  for (int64_t level = 0; level < levels; ++level) {
    up.push_back(add_block(name("up", level), 2 * width_of(level), width_of(level)));
    if (level + 1 == levels) continue;
    twice.push_back(&add<nn::Conv2d>(name("twice", level), width_of(level + 1), width_of(level), 3, kSame));
  }
  norm = &add<nn::GroupNorm>("norm", o.groups, width_of(0));
  out = &add<nn::Conv2d>("out", width_of(0), saturating_mul(o.channels, saturating_mul(o.patch, o.patch)), 3, kSame);
  start_with_zeros(*out);
}

Tensor DdpmUNet::operator()(const Tensor& images, const Tensor& times) {
  const nn::ModuleScope scope(*this);
  const Tensor embedding = time2(silu(time1(time_waves(times, options.width))));
  Tensor x = in(options.patch > 1 ? pixel_unshuffle(images, options.patch) : images);
  std::vector<Tensor> results;
  for (size_t level = 0; level < down.size(); ++level) {
    if (level > 0) x = (*halve[level - 1])(x);
    x = (*down[level])(x, embedding);
    results.push_back(x);
  }
  x = (*middle2)((*attention)((*middle1)(x, embedding)), embedding);
  for (size_t level = down.size(); level-- > 0;) {
    if (level + 1 < down.size()) {
      const Tensor& same_level = results[level];
      x = (*twice[level])(interpolate(x, {.size = {same_level.size(2), same_level.size(3)}}));
    }
    x = (*up[level])(cat({x, results[level]}, 1), embedding);
  }
  x = (*out)(silu((*norm)(x)));
  return options.patch > 1 ? pixel_shuffle(x, options.patch) : x;
}

}}}  // namespace tandem::v0::models

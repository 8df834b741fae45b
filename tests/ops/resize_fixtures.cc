#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

PadMode pad_mode(const std::string& text) {
  if (text == "reflect") return PadMode::kReflect;
  if (text == "replicate") return PadMode::kReplicate;
  return text == "circular" ? PadMode::kCircular : PadMode::kConstant;
}

InterpolateMode interpolate_mode(const std::string& text) {
  if (text == "nearest-exact") return InterpolateMode::kNearestExact;
  if (text == "linear") return InterpolateMode::kLinear;
  if (text == "bilinear") return InterpolateMode::kBilinear;
  if (text == "bicubic") return InterpolateMode::kBicubic;
  return text == "area" ? InterpolateMode::kArea : InterpolateMode::kNearest;
}

Tensor interpolated(const Arguments& a, const char* mode, bool align_corners) {
  InterpolateOptions options = {.size = a.shape("size"),
                                .mode = interpolate_mode(a.text("mode", mode)),
                                .align_corners = a.flag("align_corners", align_corners),
                                .recompute_scale_factor = a.flag("recompute_scale_factor")};
  if (a.has("scale_factor")) options.scale_factor = {a.real("scale_factor", 1)};
  return interpolate(a.tensor("input"), options);
}

}  // namespace

TANDEM_FIXTURES(resize) {
  for (const char* key : {"nn.functional.pad.constant", "nn.functional.pad.reflect", "nn.functional.pad.replicate",
                          "nn.functional.pad.replicate_negative", "nn.functional.pad.circular", "constant_pad_nd"}) {
    fixtures.op(key, [](const Arguments& a) {
      return pad(a.tensor("input"), a.shape("pad"), pad_mode(a.text("mode", "constant")), a.number("value", 0));
    });
  }
  for (const std::string mode : {"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "area"}) {
    // Rounding errors of coordinates and, in both libraries, of sums of numbers up to 9 that may cancel out.
    fixtures.op("nn.functional.interpolate." + mode, mode == "bicubic" ? 64 : 16,
                [](const Arguments& a) { return interpolated(a, "nearest", false); });
  }
  fixtures.op("nn.functional.upsample_nearest", [](const Arguments& a) { return interpolated(a, "nearest", false); });
  fixtures.op("nn.functional.upsample_bilinear", [](const Arguments& a) { return interpolated(a, "bilinear", true); });
  fixtures.op("nn.functional.pixel_shuffle",
              [](const Arguments& a) { return pixel_shuffle(a.tensor("input"), a.integer("upscale_factor")); });
  fixtures.op("nn.functional.unfold", [](const Arguments& a) {
    return unfold(a.tensor("input"), a.size2d("kernel_size"),
                  {a.size2d("dilation", 1), a.size2d("padding", 0), a.size2d("stride", 1)});
  });
  fixtures.op("nn.functional.pixel_unshuffle",
              [](const Arguments& a) { return pixel_unshuffle(a.tensor("input"), a.integer("downscale_factor")); });
  fixtures.op("nn.functional.channel_shuffle",
              [](const Arguments& a) { return channel_shuffle(a.tensor("input"), a.integer("groups")); });
}

}  // namespace tandem::testing

#include <tandem/ops/common/common.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(Pad, EveryDTypeIsAccepted) {
  for (const DType dtype : {kBool, kUInt8, kInt64, kFloat16}) {
    const Tensor x = ones({2, 3}, {dtype, test_device()});
    EXPECT_EQ(pad(x, {1, 0}, PadMode::kConstant, 1).to_vector<int>(), std::vector<int>(8, 1));
    EXPECT_EQ(pad(x, {1, 0}, PadMode::kReplicate).dtype(), dtype);
  }
}

TEST(Pad, ResultAndGradientKeepMemoryOrder) {
  const Tensor x = make_tensor(random_dense({2, 3, 4, 5}, 1), kFloat32, Layout::kContiguous, test_device());
  for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect}) {
    for (const Shape& padding : {Shape{1, 2, 0, 1}, Shape{0, 0, 0, 0}}) {
      const Tensor leaf = ops::channels_last(x).detach().requires_grad_();
      const Tensor inside = neg(leaf);
      const Tensor y = pad(inside, padding, mode);
      EXPECT_TRUE(ops::is_channels_last(y)) << padding;
      EXPECT_EQ(y.to_vector<float>(), pad(neg(x), padding, mode).to_vector<float>()) << padding;
      const Tensor gradient = grad({y}, {inside}, {ops::channels_last(ones_like(y))})[0];
      EXPECT_EQ(gradient.strides()[1], 1) << padding;
      EXPECT_TRUE(pad(x, padding, mode).is_contiguous()) << padding;
    }
  }
}

TEST(Pad, ResultWithoutPaddingIsACopy) {
  const Tensor x = ones({2, 3, 4}, {kFloat32, test_device()});
  for (const PadMode mode : {PadMode::kConstant, PadMode::kCircular}) {
    EXPECT_NE(pad(x, {0, 0}, mode).storage(), x.storage());
    EXPECT_NE(pad(x, {-1, 0}, mode).storage(), x.storage());
  }
}

TEST(Pad, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3, 4});
  const std::string operand = "\n  input  cpu  float32 [2, 3, 4]";
  EXPECT_ERROR(ShapeError, pad(x, {1}), "pad: padding [1] must have two numbers for each padded dimension" + operand);
  EXPECT_ERROR(ShapeError, pad(x, Shape(8, 1)),
               "pad: padding [1, 1, 1, 1, 1, 1, 1, 1] must have two numbers for each padded dimension" + operand);
  EXPECT_ERROR(ShapeError, pad(x, {-3, -2}),
               "pad: padding [-3, -2] removes more elements than dimension 2 of size 4 has" + operand);
  EXPECT_ERROR(ShapeError, pad(x, {0, 0, 5, -4}),
               "pad: padding [0, 0, 5, -4] removes more elements than dimension 1 of size 3 has" + operand);
  EXPECT_ERROR(ShapeError, pad(x, {INT64_MAX, 0}), "pad: padding [9223372036854775807, 0] is too large" + operand);
  EXPECT_ERROR(ShapeError, pad(x, {4, 0}, PadMode::kReflect),
               "pad: padding [4, 0] exceeds 3, the limit of mode kReflect for dimension 2 of size 4" + operand);
  EXPECT_ERROR(ShapeError, pad(x, {0, 5}, PadMode::kCircular),
               "pad: padding [0, 5] exceeds 4, the limit of mode kCircular for dimension 2 of size 4" + operand);
  EXPECT_ERROR(ShapeError, pad(zeros({2, 0}), {1, 0}, PadMode::kReplicate),
               "pad: padding [1, 0] exceeds 0, the limit of mode kReplicate for dimension 1 of size 0\n"
               "  input  cpu  float32 [2, 0]");
  EXPECT_ERROR(ShapeError, pad(zeros({2}), {1, 0}, PadMode::kReplicate),
               "pad: mode kReplicate pads the last 1, 2 or 3 dimensions, and padding [1, 0] requires 2 or 3 dimensions "
               "of input\n  input  cpu  float32 [2]");
  EXPECT_ERROR(ValueError, pad(x, {1, 0}, PadMode::kReflect, 2), "pad: value is 2, but only mode kConstant uses it");
  EXPECT_ERROR(ValueError, pad(zeros({2}, {kUInt8}), {1, 0}, PadMode::kConstant, 300),
               "pad: value 300 does not fit in uint8 (0 to 255); choose another dtype");
}

TEST(Interpolate, ResultAndGradientKeepMemoryOrder) {
  const Tensor x = make_tensor(random_dense({2, 3, 4, 5}, 1), kFloat32, Layout::kContiguous, test_device());
  for (const bool channels_last : {false, true}) {
    const Tensor leaf = (channels_last ? ops::channels_last(x) : x).detach().requires_grad_();
    const Tensor inside = neg(leaf);
    const Tensor y = interpolate(inside, {.scale_factor = {2}, .mode = InterpolateMode::kBilinear});
    EXPECT_EQ(ops::is_channels_last(y), channels_last);
    const Tensor gradient = grad({y}, {inside}, {ones_like(y)})[0];
    EXPECT_EQ(ops::is_channels_last(gradient), channels_last);
  }
}

TEST(Interpolate, NearestElementsMatchTheCpu) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    for (const InterpolateMode mode : {InterpolateMode::kNearest, InterpolateMode::kNearestExact}) {
      for (const double factor : {1.7, 0.3}) {
        const InterpolateOptions options = {.scale_factor = {factor}, .mode = mode};
        const Tensor x = make_tensor(random_dense({2, 3, 37, 101}, 1), dtype);
        EXPECT_EQ(interpolate(x.to(test_device()), options).to_vector<double>(),
                  interpolate(x, options).to_vector<double>());
      }
    }
  }
}

TEST(Interpolate, LargeFactorsOfBothAxesAreSummed) {
  // The gradients of a row have more sources than the CPU kernel's buffer has columns and rows.
  Tensor x = zeros({1, 1, 1, 1}, {kFloat64, test_device()}).requires_grad_();
  const Tensor y = interpolate(x, {.size = {3, 9000}, .mode = InterpolateMode::kBilinear});
  y.backward(ones_like(y));
  EXPECT_NEAR(x.grad().item<double>(), 27000, 1e-8);
  Tensor column = zeros({1, 1, 1, 300}, {kFloat64, test_device()}).requires_grad_();
  const Tensor z = interpolate(column, {.scale_factor = {100, 40}});
  z.backward(ones_like(z));
  EXPECT_EQ(column.grad().to_vector<double>(), std::vector<double>(300, 4000));
}

TEST(Interpolate, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({1, 2, 3, 4}), line = zeros({1, 2, 3});
  const std::string operand = "\n  input  cpu  float32 [1, 2, 3, 4]";
  const auto shape_error = [](const Tensor& input, const InterpolateOptions& options) {
    return error_text<ShapeError>([&] { interpolate(input, options); });
  };
  const auto value_error = [&](const InterpolateOptions& options) {
    return error_text<ValueError>([&] { interpolate(x, options); });
  };
  EXPECT_EQ(shape_error(x, {.size = {2}, .mode = InterpolateMode::kLinear}),
            "interpolate: input must be [N, C, L] in mode kLinear" + operand);
  EXPECT_EQ(shape_error(line, {.size = {2}, .mode = InterpolateMode::kBicubic}),
            "interpolate: input must be [N, C, H, W] in mode kBicubic\n  input  cpu  float32 [1, 2, 3]");
  EXPECT_EQ(shape_error(zeros({2, 3}), {.size = {2}}),
            "interpolate: input must be [N, C, L] or [N, C, H, W] in mode kNearest\n  input  cpu  float32 [2, 3]");
  EXPECT_EQ(shape_error(zeros({1, 2, 0}), {.size = {2}}),
            "interpolate: the image has a side that is not in [1, 2147483647]\n  input  cpu  float32 [1, 2, 0]");
  EXPECT_ERROR(DTypeError, interpolate(zeros({1, 2, 3}, {kInt64}), {.size = {2}}),
               "interpolate: input must be floating\n  input  cpu  int64 [1, 2, 3]");
  EXPECT_EQ(value_error({}), "interpolate: exactly one of size and scale_factor must be given" + operand);
  EXPECT_EQ(value_error({.size = {2}, .scale_factor = {2}}),
            "interpolate: exactly one of size and scale_factor must be given" + operand);
  EXPECT_EQ(value_error({.scale_factor = {2, 3, 4}}),
            "interpolate: scale_factor has 3 numbers, expected one, or one for each of 2 axes" + operand);
  EXPECT_EQ(value_error({.scale_factor = {2, 0.2}}),
            "interpolate: the result's size 0 of axis 1 is not in [1, 2147483647]" + operand);
  EXPECT_EQ(value_error({.size = {2}, .align_corners = true}),
            "interpolate: mode kNearest does not have align_corners" + operand);
}

TEST(Shuffles, MemoryOrderIsKept) {
  const Tensor x = make_tensor(random_dense({2, 8, 4, 6}, 1), kFloat32, Layout::kContiguous, test_device());
  const Tensor image = ops::channels_last(x);
  for (const Tensor& y : {pixel_shuffle(image, 2), pixel_unshuffle(image, 2), channel_shuffle(image, 4)}) {
    EXPECT_TRUE(ops::is_channels_last(y));
    EXPECT_FALSE(y.is_contiguous());
  }
}

TEST(Shuffles, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({1, 6, 3, 4});
  const std::string operand = "\n  input  cpu  float32 [1, 6, 3, 4]";
  EXPECT_ERROR(ShapeError, pixel_shuffle(x, 2), "pixel_shuffle: dimension 1 of size 6 is not divisible by 4" + operand);
  EXPECT_ERROR(ShapeError, pixel_unshuffle(x, 2),
               "pixel_unshuffle: dimension 2 of size 3 is not divisible by 2" + operand);
  EXPECT_ERROR(ShapeError, channel_shuffle(x, 4),
               "channel_shuffle: dimension 1 of size 6 is not divisible by 4" + operand);
  EXPECT_ERROR(ValueError, pixel_shuffle(x, 0),
               "pixel_shuffle: upscale_factor is 0, must be in [1, 2147483647]" + operand);
  EXPECT_ERROR(ShapeError, channel_shuffle(zeros({2, 3}), 1),
               "channel_shuffle: input must have at least three dimensions\n  input  cpu  float32 [2, 3]");
}

}}  // namespace tandem::testing

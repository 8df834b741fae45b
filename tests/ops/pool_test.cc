#include <tandem/ops/common/common.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TensorOptions options_here(DType dtype = kFloat32) { return {dtype, test_device()}; }

const double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

/// The gradient of a single window over `values` [1, 1, 2, n] for the cotangent 1; with channels_last, of two channels.
std::vector<double> gradient_of_window(const std::vector<double>& values, bool channels_last) {
  const int64_t n = static_cast<int64_t>(values.size()) / 2;
  Tensor x = from_vector<double>(values, {1, 1, 2, n}, options_here(kFloat64));
  if (channels_last) {
    x = ops::channels_last(x.expand({1, 2, 2, n}).clone());
    EXPECT_FALSE(x.is_contiguous());
  }
  x = x.detach().requires_grad_();
  const Tensor y = max_pool2d(x, {2, n});
  y.backward(ones(y.shape(), options_here(kFloat64)));
  std::vector<double> grad = x.grad().to_vector<double>();
  grad.resize(values.size());
  return grad;
}

/// max_pool2d on a device: result, gradient for a random cotangent, and second gradient.
std::vector<std::vector<double>> all_of_max_pool(const Dense& values, DType dtype, Device device, bool channels_last,
                                                 Size2d kernel, const MaxPool2dOptions& options) {
  const auto make = [&](const Dense& of) { return make_tensor(of, dtype, Layout::kContiguous, device); };
  Tensor x = make(values);
  if (channels_last) x = ops::channels_last(x).detach();
  x.requires_grad_();
  const Tensor y = max_pool2d(x, kernel, options);
  Tensor cotangent = make(random_dense(y.shape(), 2)).requires_grad_();
  const Tensor first = grad(std::vector{y}, std::vector{x}, std::vector{cotangent}, {.create_graph = true})[0];
  const Tensor second =
      grad(std::vector{first}, std::vector{cotangent}, std::vector{make(random_dense(x.shape(), 3))})[0];
  return {y.to_vector<double>(), first.to_vector<double>(), second.to_vector<double>()};
}

/// The values on the device under test.
Tensor here(const Dense& values, DType dtype = kFloat32) {
  return make_tensor(values, dtype, Layout::kContiguous, test_device());
}

TEST(MaxPool2d, LargeKernelsRouteGradientToMaximum) {
  // The place 254 of a kernel of 15 x 17 = 255 elements fits a byte; the places of 16 x 16 do not.
  for (const Size2d kernel : {Size2d{15, 17}, Size2d{16, 16}}) {
    for (const int64_t channels : {1, 8}) {
      for (const DType dtype : floating_dtypes()) {
        SCOPED_TRACE(str(kernel.height, " ", channels, " ", dtype));
        Tensor x = ops::channels_last(zeros({1, channels, kernel.height, kernel.width}, options_here(dtype))).detach();
        x.select(2, kernel.height - 1).select(2, kernel.width - 1).fill_(3);
        x.requires_grad_();
        max_pool2d(x, kernel).backward(full({1, channels, 1, 1}, 5, options_here(dtype)));
        const std::vector<double> grad = x.grad().to_vector<double>();
        EXPECT_EQ(grad.back(), 5);
        EXPECT_EQ(std::count(grad.begin(), grad.end(), 0), channels * (kernel.height * kernel.width - 1));
      }
    }
  }
}

// On GPUs the sums of such sizes need indices of 64 bits.
TEST(MaxPool2d, LargestStrideSelectsFirstPixel) {
  Tensor x = ops::channels_last(random_tensor({1, 8, 2, 3}, 1, kFloat32).to(test_device())).detach().requires_grad_();
  const Tensor y = max_pool2d(x, 1, {.stride = Size2d{INT32_MAX}});
  EXPECT_EQ(y.to_vector<float>(), x.detach().select(2, 0).select(2, 0).to_vector<float>());
  y.backward(full({1, 8, 1, 1}, 5, options_here(kFloat32)));
  EXPECT_EQ(x.grad().select(2, 0).select(2, 0).to_vector<double>(), std::vector<double>(8, 5));
  const std::vector<double> grad = x.grad().to_vector<double>();
  EXPECT_EQ(std::count(grad.begin(), grad.end(), 5), 8);
}

TEST(MaxPool2d, FirstOfEqualMaximaGetsGradient) {
  for (const bool channels_last : {false, true}) {
    EXPECT_EQ(gradient_of_window({1, 3, 3, 3}, channels_last), (std::vector<double>{0, 1, 0, 0}));
    EXPECT_EQ(gradient_of_window({1, 2, 2, 0, 2, 1}, channels_last), (std::vector<double>{0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(gradient_of_window({-kInf, -kInf, -kInf, -kInf}, channels_last), (std::vector<double>{1, 0, 0, 0}));
    EXPECT_EQ(gradient_of_window(std::vector<double>(6, -kInf), channels_last),
              (std::vector<double>{1, 0, 0, 0, 0, 0}));
  }
}

TEST(MaxPool2d, NaNIsTreatedAsLargest) {
  for (const bool channels_last : {false, true}) {
    EXPECT_EQ(gradient_of_window({1, kNan, 7, kNan}, channels_last), (std::vector<double>{0, 1, 0, 0}));
    EXPECT_EQ(gradient_of_window({kNan, 2, 7, 9, kNan, 3}, channels_last), (std::vector<double>{1, 0, 0, 0, 0, 0}));
  }
  const Tensor x = from_vector<float>({1, NAN, 2, 3}, {1, 1, 2, 2}, options_here());
  EXPECT_TRUE(std::isnan(max_pool2d(x, 2).item<float>()));
}

TEST(MaxPool2d, ManyChannelsMatchSingleChannelBits) {
  // Equal elements, NaN and infinities, in the channels of several vectors, and in one channel.
  Dense values = random_dense({2, 75, 5, 6}, 1, 0, 4);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values[i] = i % 11 == 0 ? kNan : i % 7 == 0 ? -kInf : std::floor(values[i]);
  }
  const auto bits = [](const Tensor& t) {
    std::vector<double> list = t.to_vector<double>();
    for (double& value : list) value = std::isnan(value) ? 77 : value;
    return list;
  };
  for (const DType dtype : {kFloat32, kFloat64}) {
    for (const MaxPool2dOptions& options : {MaxPool2dOptions{}, MaxPool2dOptions{.stride = 1, .padding = 1}}) {
      Tensor all = ops::channels_last(here(values, dtype)).detach().requires_grad_();
      const Tensor y = max_pool2d(all, 2, options);
      const Tensor cotangent = here(random_dense(y.shape(), 2), dtype);
      y.backward(cotangent);
      for (int64_t c = 0; c < 75; ++c) {
        Tensor one = all.detach().slice(1, c, c + 1).clone().requires_grad_();
        const Tensor expected = max_pool2d(one, 2, options);
        expected.backward(cotangent.slice(1, c, c + 1));
        EXPECT_EQ(bits(y.detach().slice(1, c, c + 1)), bits(expected)) << c;
        EXPECT_EQ(all.grad().slice(1, c, c + 1).to_vector<double>(), one.grad().to_vector<double>()) << c;
      }
    }
  }
}

TEST(MaxPool2d, WindowWithoutElementsGivesNegativeInfinity) {
  // Window elements at -1 and 3 of an image of size 3: all are outside.
  const MaxPool2dOptions options = {.padding = {0, 1}, .dilation = {1, 4}};
  for (const int64_t channels : {1, 2}) {
    Tensor x = ops::channels_last(ones({1, channels, 1, 3}, options_here())).requires_grad_();
    const Tensor y = max_pool2d(x, {1, 2}, options);
    EXPECT_EQ(y.to_vector<double>(), std::vector<double>(static_cast<size_t>(channels), -kInf));
    y.backward(full(y.shape(), 3, options_here()));
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(static_cast<size_t>(3 * channels), 0));
    const Tensor inputs[] = {x}, outputs[] = {max_pool2d(x, {1, 2}, options)};
    Tensor cotangent = ones(y.shape(), options_here()).requires_grad_();
    const Tensor first = grad(outputs, inputs, std::vector{cotangent}, {.create_graph = true})[0];
    const Tensor second =
        grad(std::vector{first}, std::vector{cotangent}, std::vector{ones(x.shape(), options_here())})[0];
    EXPECT_EQ(second.to_vector<double>(), std::vector<double>(static_cast<size_t>(channels), 0));
  }
}

TEST(MaxPool2d, ResultsAndGradientsMatchCpuBits) {
  const MaxPool2dOptions overlapping = {.stride = 2, .padding = 1}, apart = {.stride = 3, .dilation = 2};
  for (const Shape& shape : {Shape{1, 1, 3, 1023}, Shape{1, 2, 4, 1024}, Shape{2, 1, 5, 1025}, Shape{1, 257, 3, 5},
                             Shape{1, 1025, 5, 3}, Shape{1, 3, 110, 100}, Shape{2, 24, 7, 9}}) {
    for (const bool channels_last : {false, true}) {
      for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
        const Dense values = random_dense(shape, 1);
        for (const MaxPool2dOptions& options : {MaxPool2dOptions{}, overlapping, apart}) {
          const Size2d kernel = options.dilation.height == 2 ? Size2d{2, 2} : Size2d{3, 3};
          EXPECT_EQ(all_of_max_pool(values, dtype, test_device(), channels_last, kernel, options),
                    all_of_max_pool(values, dtype, Device(), channels_last, kernel, options))
              << str(shape) << channels_last;
        }
      }
    }
  }
}

TEST(Pooling, ResultAndGradientKeepMemoryOrder) {
  const auto run = [](int which, const Tensor& x) {
    return which == 0   ? max_pool2d(x, 2)
           : which == 1 ? avg_pool2d(x, 3, {.stride = 1})
                        : adaptive_avg_pool2d(x, {2, 3});
  };
  for (int which = 0; which < 3; ++which) {
    const Tensor x = here(random_dense({2, 3, 6, 6}, 1));
    for (const bool channels_last : {false, true}) {
      Tensor leaf = (channels_last ? ops::channels_last(x) : x).detach().requires_grad_();
      Tensor inside = neg(leaf);  // an inner tensor, whose gradient shows the memory order
      const Tensor y = run(which, inside);
      EXPECT_EQ(ops::is_channels_last(y), channels_last);
      EXPECT_EQ(y.is_contiguous(), !channels_last);
      const Tensor gradient =
          grad(std::vector{y}, std::vector{inside}, std::vector{here(random_dense(y.shape(), 2))})[0];
      EXPECT_EQ(ops::is_channels_last(gradient), channels_last);
      EXPECT_EQ(gradient.is_contiguous(), !channels_last);
    }
  }
}

TEST(Pooling, LongSidesWithoutElementsNeedNoMemory) {
  const int64_t kLong = (int64_t{1} << 31) - 1;
  EXPECT_EQ(avg_pool2d(empty({0, 1, kLong, 1}), {1, 1}).shape(), (Shape{0, 1, kLong, 1}));
  EXPECT_EQ(adaptive_avg_pool2d(empty({1, 0, kLong, 3}), {kLong, 1}).shape(), (Shape{1, 0, kLong, 1}));
}

TEST(Pooling, EmptyBatchOrChannelsAreAccepted) {
  for (const Shape& shape : {Shape{0, 3, 4, 4}, Shape{2, 0, 4, 4}}) {
    Tensor x = zeros(shape, options_here()).requires_grad_();
    for (const Tensor& y : {max_pool2d(x, 2), avg_pool2d(x, 2), adaptive_avg_pool2d(x, 2)}) {
      EXPECT_EQ(y.shape(), Shape({shape[0], shape[1], 2, 2}));
      y.backward(zeros(y.shape(), options_here()));
    }
  }
}

TEST(Pooling, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3, 4, 5});
  EXPECT_ERROR(ShapeError, max_pool2d(zeros({4, 5}), 2),
               "max_pool2d: input must be [N, C, H, W] or [C, H, W]\n  input  cpu  float32 [4, 5]");
  EXPECT_ERROR(ShapeError, adaptive_avg_pool2d(zeros({1, 3, 0, 5}), 2),
               "adaptive_avg_pool2d: the image is empty\n  input  cpu  float32 [1, 3, 0, 5]");
  EXPECT_ERROR(DTypeError, avg_pool2d(zeros({1, 1, 2, 2}, {kInt64}), 2),
               "avg_pool2d: input must be floating\n  input  cpu  int64 [1, 1, 2, 2]");
  EXPECT_ERROR(
      ShapeError, max_pool2d(x, {2, 3}, {.padding = {0, 1}, .dilation = {1, 4}}),
      "max_pool2d: the window's width 9 exceeds the padded image's width 7\n  input  cpu  float32 [2, 3, 4, 5]");
  EXPECT_ERROR(ShapeError, avg_pool2d(x, {5, 1}),
               "avg_pool2d: the window's height 5 exceeds the padded image's height 4\n"
               "  input  cpu  float32 [2, 3, 4, 5]");
  EXPECT_ERROR(ValueError, max_pool2d(x, {0, 2}), "max_pool2d: kernel_size is [0, 2], expected at least 1");
  EXPECT_ERROR(ValueError, avg_pool2d(x, 2, {.stride = Size2d{1, 0}}),
               "avg_pool2d: stride is [1, 0], expected at least 1");
  EXPECT_ERROR(ValueError, max_pool2d(x, 2, {.padding = {-1, 0}}),
               "max_pool2d: padding is [-1, 0], expected at least 0");
  EXPECT_ERROR(ValueError, max_pool2d(x, {2, 3}, {.padding = {1, 2}}),
               "max_pool2d: padding [1, 2] is more than half of kernel_size [2, 3]");
  EXPECT_ERROR(ValueError, max_pool2d(x, 2, {.dilation = {1, 0}}),
               "max_pool2d: dilation is [1, 0], expected at least 1");
  EXPECT_ERROR(ValueError, adaptive_avg_pool2d(x, {0, 1}),
               "adaptive_avg_pool2d: output_size is [0, 1], expected at least 1");
}

TEST(Pooling, ErrorsOfSignalsHaveOneNumber) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_ERROR(ShapeError, avg_pool1d(zeros({4}), 2),
               "avg_pool1d: input must be [N, C, L] or [C, L]\n  input  cpu  float32 [4]");
  EXPECT_ERROR(
      ShapeError, max_pool1d(x, 7, {.padding = 1}),
      "max_pool1d: the window's length 7 exceeds the padded image's length 6\n  input  cpu  float32 [2, 3, 4]");
  EXPECT_ERROR(ValueError, max_pool1d_with_indices(x, 0),
               "max_pool1d_with_indices: kernel_size is 0, expected at least 1");
  EXPECT_ERROR(ValueError, avg_pool1d(x, 2, {.padding = 2}),
               "avg_pool1d: padding 2 is more than half of kernel_size 2");
  EXPECT_ERROR(ValueError, adaptive_max_pool1d(x, 0), "adaptive_max_pool1d: output_size is 0, expected at least 1");
  EXPECT_ERROR(ValueError, avg_pool2d(x, 2, {.divisor_override = 0}),
               "avg_pool2d: divisor_override is 0, expected another number");
}

TEST(MaxPoolWithIndices, IndicesCountElementsOfTheImage) {
  const Tensor x = here(Dense{{1, 2, 3, 4}, {1, 5, 2, 0, 4, 3, 9, 1, 7, 8, 6, 9,  //
                                             0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0}});
  for (const bool channels_last : {false, true}) {
    const Tensor input = channels_last ? ops::channels_last(x) : x;
    const ValuesIndices result = max_pool2d_with_indices(input, 2, {.stride = 1});
    EXPECT_EQ(result.values.to_vector<int>(), (std::vector<int>{5, 9, 9, 8, 9, 9, 0, 1, 2, 3, 1, 2}));
    EXPECT_EQ(result.indices.to_vector<int>(), (std::vector<int>{1, 6, 6, 9, 6, 6, 0, 6, 7, 8, 6, 7}));
    EXPECT_EQ(result.indices.dtype(), kInt64);
    EXPECT_EQ(ops::is_channels_last(result.indices), channels_last);
  }
  // Padding and dilation, without N.
  const ValuesIndices wide = max_pool2d_with_indices(x.select(0, 0), 2, {.stride = 2, .padding = 1, .dilation = 2});
  EXPECT_EQ(wide.values.to_vector<int>(), (std::vector<int>{3, 3, 3, 3, 0, 2, 0, 2}));
  EXPECT_EQ(wide.indices.to_vector<int>(), (std::vector<int>{5, 5, 5, 5, 5, 7, 5, 7}));
  const ValuesIndices signal = max_pool1d_with_indices(x.select(0, 0).flatten(1), 4);
  EXPECT_EQ(signal.indices.to_vector<int>(), (std::vector<int>{1, 6, 11, 0, 7, 8}));
}

TEST(MaxPoolWithIndices, WindowWithoutElementsHasIndexMinusOne) {
  const ValuesIndices result =
      max_pool2d_with_indices(ones({1, 1, 1, 3}, options_here()), {1, 2}, {.padding = {0, 1}, .dilation = {1, 4}});
  EXPECT_EQ(result.values.to_vector<double>(), (std::vector<double>{-kInf}));
  EXPECT_EQ(result.indices.to_vector<int>(), (std::vector<int>{-1}));
}

TEST(AdaptiveMaxPool, FirstLargestElementOfOverlappingWindowsIsSelected) {
  const Tensor x = here(Dense{{1, 1, 2, 5}, {1, 7, 7, 2, kNan, 7, 0, 7, 3, 3}}, kFloat64).requires_grad_();
  const ValuesIndices result = adaptive_max_pool2d_with_indices(x, {1, 3});  // columns 0 1, 1 2 3 and 3 4
  EXPECT_EQ(result.indices.to_vector<int>(), (std::vector<int>{1, 1, 4}));
  EXPECT_TRUE(std::isnan(result.values.to_vector<double>()[2]));
  result.values.backward(here(Dense{{1, 1, 1, 3}, {2, 3, 5}}, kFloat64));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 5, 0, 0, 5, 0, 0, 0, 0, 0}));
}

TEST(MaxUnpool, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({1, 2, 3}), indices = zeros({1, 2, 3}, {kInt64});
  EXPECT_ERROR(DTypeError, max_unpool1d(x, x, 2),
               "max_unpool1d: indices must be int64\n"
               "  input    cpu  float32 [1, 2, 3]\n"
               "  indices  cpu  float32 [1, 2, 3]");
  EXPECT_ERROR(ShapeError, max_unpool1d(x, indices.slice(2, 0, 2), 2),
               "max_unpool1d: indices must have the shape of input\n"
               "  input    cpu  float32 [1, 2, 3]\n"
               "  indices  cpu  int64   [1, 2, 2]");
  EXPECT_ERROR(ValueError, max_unpool1d(x, indices, 2, {.output_size = 8}),
               "max_unpool1d: output_size of dimension 2 is 8, expected 5 to 7");
  EXPECT_ERROR(IndexError, max_unpool1d(x, indices + 6, 2),
               "max_unpool1d: index 6 at position [0, 0, 0] is outside [0, 6)");
}

TEST(Pooling, ResultsOfSignalsCanBeChangedInPlace) {
  const Tensor x = here(Dense{{1, 4}, {1, -3, -2, -5}}).requires_grad_();
  Tensor y = max_pool1d(x, 2);
  y.relu_();
  y.backward(ones(y.shape(), options_here()));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 0}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 0, 0, 0}));
}

// Sizes whose sums or products overflow int64_t are rejected.
TEST(Pooling, OverflowingSizesAreRejected) {
  const Tensor x = zeros({1, 1, 2, 3});
  const int64_t side = (int64_t{1} << 31) - 1, huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(max_pool2d(x, 2, {.stride = Size2d{side, side}, .ceil_mode = true}).shape(), Shape({1, 1, 1, 1}));
  EXPECT_ERROR(ValueError, max_pool2d(x, 2, {.stride = Size2d{1, huge}, .ceil_mode = true}),
               "max_pool2d: stride is [1, 9223372036854775807], expected at most 2147483647");
  EXPECT_ERROR(ValueError, avg_pool2d(x, 2, {.padding = {huge, 1}}),
               "avg_pool2d: padding is [9223372036854775807, 1], expected at most 2147483647");
  EXPECT_ERROR(ValueError, max_pool2d(x, 2, {.dilation = side + 1}),
               "max_pool2d: dilation is [2147483648, 2147483648], expected at most 2147483647");
  EXPECT_ERROR(ValueError, avg_pool2d(x, side + 1, {.padding = (side + 1) / 2}),
               "avg_pool2d: kernel_size is [2147483648, 2147483648], expected at most 2147483647");
  EXPECT_ERROR(ValueError, max_pool2d(x, {65536, 32768}, {.padding = {32768, 16384}}),
               "max_pool2d: kernel_size [65536, 32768] has more than 2147483647 elements");
  EXPECT_ERROR(ValueError, adaptive_avg_pool2d(x, {1, huge}),
               "adaptive_avg_pool2d: output_size is [1, 9223372036854775807], expected at most 2147483647");
  EXPECT_THROW(adaptive_avg_pool2d(expand(x, {2, 3, 2, 3}), side), ShapeError);
  EXPECT_ERROR(ShapeError, max_pool2d(expand(zeros({1, 1, 1, 1}), {1, 1, 1, side + 1}), 1),
               "max_pool2d: the image has a side above 2147483647\n  input  cpu  float32 [1, 1, 1, 2147483648]");
}

}}  // namespace tandem::testing

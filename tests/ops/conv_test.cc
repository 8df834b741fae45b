#include <ostream>

#include <tandem/base/trace.h>
#include <tandem/ops/conv/conv_kernels.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem {

// GoogleTest prints parameters of failed tests by this function.
void PrintTo(const ConvGeometry& g, std::ostream* out) {
  *out << "[" << g.batch << ", " << g.channels << ", " << g.size.height << ", " << g.size.width << "] -> "
       << g.out_channels << " filters " << g.kernel << " stride " << g.stride << " padding " << g.padding
       << " dilation " << g.dilation << " groups " << g.groups;
}

namespace testing { namespace {

ConvGeometry geometry(int64_t batch, int64_t channels, Size2d size, int64_t filters, Size2d kernel, Size2d stride = 1,
                      Size2d padding = 0, Size2d dilation = 1, int64_t groups = 1) {
  ConvGeometry g{batch, channels, size, filters, 0, kernel, stride, padding, dilation, groups};
  g.out = {(size.height + 2 * padding.height - dilation.height * (kernel.height - 1) - 1) / stride.height + 1,
           (size.width + 2 * padding.width - dilation.width * (kernel.width - 1) - 1) / stride.width + 1};
  return g;
}

constexpr ConvAlgorithm kAlgorithms[] = {ConvAlgorithm::kDirect,         ConvAlgorithm::kDepthwise,
                                         ConvAlgorithm::kTilesAvx2,      ConvAlgorithm::kTilesAvx512,
                                         ConvAlgorithm::kWinogradAvx2,   ConvAlgorithm::kWinogradAvx512,
                                         ConvAlgorithm::kTilesAvx512Bf16};

constexpr ConvPass kPasses[] = {ConvPass::kForward, ConvPass::kBackwardInput, ConvPass::kBackwardWeight};

/// The result of a pass on flat, channels-last (weights: row-major) operands.
Tensor run_pass(ConvPass pass, ConvAlgorithm algorithm, const ConvGeometry& g, const Tensor& input,
                const Tensor& weight, const Tensor& grad, const Tensor& bias, bool relu, double beta,
                const Tensor& start) {
  const KernelContext context{};
  const DType dtype = input.dtype();
  const int64_t bytes = cpu::conv_workspace_bytes(dtype, algorithm, pass, g);
  const Tensor scratch = full({bytes + 1}, 255, {kUInt8});  // NaN, in case a kernel reads it before writing
  switch (pass) {
    case ConvPass::kForward: {
      const Tensor out = full({g.out_pixels() * g.out_channels}, 77, {dtype});
      cpu::conv_forward(context, dtype, algorithm, g, input.data_ptr(), weight.data_ptr(),
                        bias.defined() ? bias.data_ptr() : nullptr, relu, scratch.data_ptr(), out.data_ptr());
      return out;
    }
    case ConvPass::kBackwardInput: {
      const Tensor out = full(input.shape(), 77, {dtype});
      cpu::conv_backward_input(context, dtype, algorithm, g, grad.data_ptr(), weight.data_ptr(),
                               bias.defined() ? bias.data_ptr() : nullptr, scratch.data_ptr(), out.data_ptr());
      return out;
    }
    default: {
      const Tensor out = beta == 0 ? full(weight.shape(), 77, {dtype}) : start.to(dtype).clone();
      cpu::conv_backward_weight(context, dtype, algorithm, g, input.data_ptr(), grad.data_ptr(), beta,
                                scratch.data_ptr(), out.data_ptr());
      return out;
    }
  }
}

class Conv2dAlgorithms : public ::testing::TestWithParam<ConvGeometry> {};
INSTANTIATE_TEST_SUITE_P(
    Sizes, Conv2dAlgorithms,
    ::testing::Values(geometry(2, 3, {7, 9}, 5, 3, 1, 1),       //
                      geometry(1, 1, {28, 28}, 32, 5),          //
                      geometry(2, 32, {12, 12}, 65, 5),         // more than a panel of columns
                      geometry(3, 33, {8, 8}, 31, 3, 1, 1),     //
                      geometry(1, 64, {16, 14}, 128, 3, 2, 1),  // halves the size
                      geometry(2, 64, {9, 8}, 66, 1, 2),        // three of four inputs are not read
                      geometry(4, 65, {7, 5}, 67, 1),           // a matrix product
                      geometry(20, 80, {7, 5}, 67, 1),          // a matrix product of full vectors, several pieces
                      geometry(2, 6, {13, 11}, 9, {3, 2}, {2, 3}, {3, 1}, {2, 3}, 3),   //
                      geometry(2, 34, {9, 8}, 130, {3, 2}, {2, 1}, {1, 0}, {1, 2}, 2),  // sources read in place
                      geometry(1, 16, {12, 11}, 17, 9, {1, 2}, {4, 1}),                 // many taps
                      geometry(1, 5, {9, 10}, 7, 3, {4, 2}, {2, 0}, {2, 4}),  // strides and dilations share factors
                      geometry(1, 4, {3, 4}, 5, {2, 2}, 7, {5, 4}),           // steps over the input
                      geometry(2, 16, {6, 6}, 16, 3, 1, 1, 1, 16),            // depthwise
                      geometry(3, 70, {9, 8}, 70, {3, 2}, {2, 1}, {1, 2}, {1, 3}, 70),  //
                      geometry(1, 19, {1, 300}, 19, {1, 5}, {1, 2}, {0, 2}, 1, 19),     // several parts of a row
                      geometry(2, 24, {14, 15}, 24, 3, 2, 1, 1, 24),                    //
                      geometry(2, 41, {3, 3}, 41, 5, 1, 2, 1, 41),                      // every pixel is at the border
                      geometry(3, 48, {7, 9}, 48, 3, 1, 1, 1, 24),                      // narrow groups
                      geometry(2, 48, {9, 8}, 48, {2, 5}, {1, 2}, 1, 1, 12),            //
                      geometry(2, 32, {9, 8}, 32, {3, 2}, {2, 1}, {1, 0}, {1, 2}, 4),   //
                      geometry(3, 34, {9, 8}, 40, 3, 1, 1, 1, 2),                       // Winograd in groups
                      geometry(6, 40, {12, 11}, 82, 5, 1, {0, 1}, 1, 2),                //
                      geometry(1, 260, {6, 7}, 3, 3, 1, 1),         // more than a block of the depth
                      geometry(9, 16, {15, 18}, 33, 3, 1, {1, 0}),  // more tiles than channels and filters
                      geometry(6, 20, {12, 11}, 41, 5, 1, {0, 1}),  // little padding: tiles add to the gradient
                      geometry(7, 9, {13, 10}, 17, 5, 1, {0, 3}),   //
                      geometry(3, 20, {3, 3}, 130, 3, 1, 2),        // padding larger than the kernel's reach
                      geometry(2, 150, {4, 5}, 35, 5, 1, 2),        //
                      geometry(40, 8, {5, 5}, 12, 3, 1, 2),         // several pieces and slices
                      geometry(5, 60, {31, 30}, 130, 3, 2, 1),      // several chunks of rows
                      geometry(0, 3, {5, 5}, 4, 3),                 // no images
                      geometry(2, 0, {5, 5}, 4, 3),                 // nothing to sum
                      geometry(2, 3, {5, 5}, 0, 3)));               // no filters

TEST_P(Conv2dAlgorithms, EachMatchesDirectAlgorithmInFloat64) {
  const ConvGeometry g = GetParam();
  Tensor input = random_tensor({g.batch * g.size.height * g.size.width * g.channels}, 1);
  Tensor weight = random_tensor({g.weight_elements()}, 2);
  Tensor grad = random_tensor({g.out_pixels() * g.out_channels}, 3);
  Tensor bias = random_tensor({std::max(g.channels, g.out_channels)}, 4);  // of either image
  Tensor start = random_tensor({g.weight_elements()}, 5);
  for (ConvPass pass : kPasses) {
    for (const bool variant : {false, true}) {
      auto run = [&](ConvAlgorithm algorithm, DType dtype) {
        return run_pass(pass, algorithm, g, input.to(dtype), weight.to(dtype), grad.to(dtype),
                        variant ? bias.to(dtype) : Tensor(), variant, variant ? 1 : 0, start);
      };
      const double terms = static_cast<double>(pass == ConvPass::kBackwardWeight ? g.out_pixels()
                                               : pass == ConvPass::kForward      ? g.group_channels() * g.taps()
                                                                                 : g.group_out_channels() * g.taps());
      Dense expected = dense(run(ConvAlgorithm::kDirect, kFloat64));
      EXPECT_TRUE(close(run(ConvAlgorithm::kTilesAvx2, kFloat64), expected, 1e-13 * std::sqrt(terms + 1)));
      for (ConvAlgorithm algorithm : kAlgorithms) {
        if (!is_available(algorithm, g)) continue;
        SCOPED_TRACE(std::string(to_string(algorithm)) + ", pass " + std::to_string(static_cast<int>(pass)));
        if (algorithm ==
            ConvAlgorithm::kTilesAvx512Bf16) {  // last: rounds the operands; tolerance 0.5 ulp and the sums
          for (Tensor* tensor : {&input, &weight, &grad, &bias, &start}) *tensor = tensor->to(kBFloat16).to(kFloat32);
          expected = dense(run(ConvAlgorithm::kDirect, kFloat64));
          EXPECT_TRUE(close(run(algorithm, kBFloat16), expected,
                            epsilon(kBFloat16) / 2 + 32 * epsilon(kFloat32) * std::sqrt(terms + 1)));
          continue;
        }
        // Winograd's transforms multiply rounding errors by their coefficients.
        const double c = algorithm >= ConvAlgorithm::kWinogradAvx2 ? 1000 : 32;
        EXPECT_TRUE(close(run(algorithm, kFloat32), expected, c * epsilon(kFloat32) * std::sqrt(terms + 1)));
      }
    }
  }
}

/// Compares values and gradients on the device under test, accumulated `times` times, with float64 on the CPU.
void check_operator_functions(const ConvGeometry& g, DType dtype, int times = 2) {
  const Conv2dOptions options{g.stride, g.padding, g.dilation, g.groups};
  const Tensor input = random_tensor({g.batch, g.channels, g.size.height, g.size.width}, 1, dtype);
  const Tensor weight = random_tensor({g.out_channels, g.group_channels(), g.kernel.height, g.kernel.width}, 2, dtype);
  const Tensor bias = random_tensor({g.out_channels}, 3, dtype);
  const Tensor cotangent = random_tensor({g.batch, g.out_channels, g.out.height, g.out.width}, 4, dtype, -1, 1);
  const auto run = [&](Device device, DType run_dtype) {
    std::vector<Tensor> leaves;
    for (const Tensor& t : {input, weight, bias}) leaves.push_back(t.to(run_dtype).to(device).detach());
    std::vector<Tensor> results = {conv2d_relu(leaves[0], leaves[1], leaves[2], options)};
    for (Tensor& leaf : leaves) leaf.requires_grad_();
    for (int i = 0; i < times; ++i) {
      results.push_back(conv2d(leaves[0], leaves[1], leaves[2], options));
      results.back().backward(cotangent.to(run_dtype).to(device));
    }
    for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
    return results;
  };
  const std::vector<Tensor> actual = run(test_device(), dtype), expected = run({}, kFloat64);
  // Winograd's transforms, on the CPU, multiply rounding errors by their coefficients. The CPU sums half types in
  // float32 and rounds each result once, and each sum of gradients.
  const bool is_cpu = test_device().is_cpu(), rounds_once = is_cpu && size_of(dtype) == 2;
  const double error = (is_cpu && dtype != kFloat64 ? 1000 : 32) * epsilon(rounds_once ? kFloat32 : dtype);
  const double rounding = rounds_once ? (times + 1) * epsilon(dtype) : 0;
  const double forward_terms = static_cast<double>(g.group_channels() * g.taps());
  std::vector<double> terms(static_cast<size_t>(times) + 1, forward_terms);
  terms.push_back(static_cast<double>(g.group_out_channels() * g.taps()));
  terms.insert(terms.end(), 2, static_cast<double>(g.out_pixels()));
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(close(actual[i], dense(expected[i]), rounding + error * std::sqrt(terms[i] + 1))) << "result " << i;
  }
}

TEST_P(Conv2dAlgorithms, OperatorFunctionsMatchFloat64) {
  for (const DType dtype : {kFloat32, kFloat16, kBFloat16}) {
    SCOPED_TRACE(str(dtype));
    check_operator_functions(GetParam(), dtype);
  }
}

TEST(Conv2d, Im2colBeyondOneGpuPieceMatchesFloat64) {
  // The workspace would need 33.8 MB, in forward and in the gradient of the input; a piece has 33.5 MB.
  check_operator_functions(geometry(1, 2, 91, 2, {15, 17}, 1, {7, 8}), kFloat64, 1);
}

TEST(Conv2d, SingleChannelFiltersMatchFloat64) {
  const ConvGeometry sizes[] = {geometry(2, 1, {9, 8}, 33, 5, {1, 2}, 1),                       //
                                geometry(3, 3, {7, 9}, 12, {2, 3}, {3, 1}, {1, 2}, {2, 1}, 3),  //
                                geometry(2, 35, {30, 33}, 35, 3, 1, 1, 1, 35),                  // two slices of pixels
                                geometry(1, 2, {1, 1030}, 2, 1, 1, 0, 1, 2)};
  for (const ConvGeometry& g : sizes) {
    SCOPED_TRACE(::testing::PrintToString(g));
    for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) check_operator_functions(g, dtype);
  }
}

TEST(ConvAlgorithm, ChoiceFollowsFromSizes) {
  auto chosen = [](const ConvGeometry& g) { return std::string(to_string(conv_algorithm(ConvPass::kForward, g))); };
  EXPECT_EQ(chosen(geometry(1, 3, 4, 4, 3)), "direct");
  EXPECT_EQ(chosen(geometry(4, 64, 16, 64, 3, 1, 1, 1, 64)), "depthwise");
  EXPECT_EQ(chosen(geometry(4, 64, 16, 64, 3, 2, 1, 1, 8)), "depthwise");
  EXPECT_EQ(chosen(geometry(4, 64, 16, 8, 3, 2, 1)), "tiles avx2");
  const bool wide = is_available(ConvAlgorithm::kTilesAvx512, {});
  EXPECT_EQ(chosen(geometry(4, 64, 16, 64, 3, 2, 1)), wide ? "tiles avx512" : "tiles avx2");
  EXPECT_EQ(chosen(geometry(4, 3, 16, 64, 3)), wide ? "tiles avx512" : "tiles avx2");
  EXPECT_EQ(chosen(geometry(1, 1024, 8, 512, 3)), wide ? "tiles avx512" : "tiles avx2");
  EXPECT_EQ(chosen(geometry(4, 32, 16, 64, 3, 1, 1, 1, 4)), "tiles avx2");
  for (const int64_t kernel : {3, 5}) {
    EXPECT_EQ(chosen(geometry(4, 16, 16, 16, kernel)), wide ? "winograd avx512" : "winograd avx2");
    EXPECT_EQ(chosen(geometry(4, 64, 16, 64, kernel, 1, 1, 1, 4)), wide ? "winograd avx512" : "winograd avx2");
  }
  // Maps that fill few tiles.
  for (const ConvGeometry& g :
       {geometry(32, 64, 2, 64, 3, 1, 1), geometry(32, 64, 5, 64, 3, 1, 1), geometry(32, 64, 1, 64, 5, 1, 2)}) {
    EXPECT_EQ(chosen(g), wide ? "tiles avx512" : "tiles avx2");
    EXPECT_EQ(to_string(conv_algorithm(ConvPass::kBackwardWeight, g)),
              std::string(wide ? "winograd avx512" : "winograd avx2"));
  }
}

TEST(ConvAlgorithm, BFloat16HasKernelsWhereFloat32HasTiles) {
  const bool has = is_available(GemmAlgorithm::kAvx512Bf16);
  const auto can = [](const ConvGeometry& g, DType dtype = kBFloat16) {
    return has_half_conv(dtype, ConvPass::kForward, g);
  };
  EXPECT_EQ(can(geometry(4, 64, 16, 64, 3, 2, 1)), has);
  EXPECT_EQ(can(geometry(4, 64, 16, 64, 1)), has);
  EXPECT_FALSE(can(geometry(4, 64, 16, 64, 1), kFloat16));
  EXPECT_FALSE(can(geometry(4, 64, 16, 64, 1), kFloat32));
  EXPECT_FALSE(can(geometry(4, 64, 16, 64, 3, 1, 1)));        // Winograd
  EXPECT_FALSE(can(geometry(4, 64, 16, 64, 3, 2, 1, 1, 4)));  // groups
  EXPECT_FALSE(can(geometry(1, 3, 4, 4, 3)));                 // small
  EXPECT_FALSE(can(geometry(4, 1024, 16, 1024, 3, 2, 1)));    // 9216 terms
}

TEST(ConvAlgorithm, EnvironmentVariableSelectsDirectAlgorithm) {
  const Tensor input = random_tensor({2, 16, 9, 9}, 1), weight = random_tensor({32, 16, 3, 3}, 2);
  const Tensor usual = conv2d(input, weight);
  ASSERT_EQ(setenv("TANDEM_CONV_ALGORITHM", "direct", 1), 0);
  const Tensor direct = conv2d(input, weight);
  ASSERT_EQ(setenv("TANDEM_CONV_ALGORITHM", "fast", 1), 0);
  EXPECT_ERROR(ValueError, conv2d(input, weight), "TANDEM_CONV_ALGORITHM is 'fast', expected 'direct' or no value");
  ASSERT_EQ(unsetenv("TANDEM_CONV_ALGORITHM"), 0);
  EXPECT_FALSE(primitives::bytes_equal(usual, direct));
  EXPECT_TRUE(close(usual, dense(direct), 1e-4));
}

using Conv = std::function<Tensor(const Tensor& input, const Tensor& weight, const Tensor& bias)>;

Tensor random_here(const Shape& shape, uint64_t seed, DType dtype = kFloat32) {
  return random_tensor(shape, seed, dtype).to(test_device());
}

const struct {
  Conv conv;
  Shape weight;
  Shape empty_result;  ///< for an input [0, 16, 5, 5]
} kConvs[] = {
    {[](auto& x, auto& w, auto& b) { return conv2d(x, w, b, {.padding = 1}); }, {33, 16, 3, 3}, {0, 33, 5, 5}},
    {[](auto& x, auto& w, auto& b) { return conv2d_relu(x, w, b); }, {33, 16, 3, 3}, {0, 33, 3, 3}},
    {[](auto& x, auto& w, auto& b) { return conv_transpose2d(x, w, b, {.stride = 2, .padding = 1}); },
     {16, 7, 3, 3},
     {0, 7, 9, 9}}};

TEST(Convolutions, ResultsAndInputGradientsAreChannelsLast) {
  const auto strides = [](const Shape& s) { return Shape{s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}; };
  for (const auto& c : kConvs) {
    Tensor input = random_here({2, 16, 9, 8}, 1);
    const Tensor out = c.conv(input.requires_grad_(), random_here(c.weight, 2), {});
    EXPECT_EQ(out.strides(), strides(out.shape()));
    const std::vector<Tensor> outputs = {out}, inputs = {input}, cotangents = {random_here(out.shape(), 3)};
    EXPECT_EQ(tandem::grad(outputs, inputs, cotangents)[0].strides(), strides(input.shape()));
  }
}

TEST(Convolutions, GradientsAccumulateInTheSlot) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    for (const auto& c : kConvs) {
      const Tensor input = random_here({3, 16, 9, 8}, 1, dtype);
      Tensor weight = random_here(c.weight, 3, dtype), bias = random_here({c.empty_result[1]}, 4, dtype);
      weight.requires_grad_();
      bias.requires_grad_();
      const auto backward = [&] {
        const Tensor out = c.conv(input, weight, bias);
        out.backward(random_here(out.shape(), 2, dtype));
      };
      backward();
      const Dense weight_once = dense(weight.grad()), bias_once = dense(bias.grad());
      const void* slot = weight.grad().data_ptr();
      EXPECT_TRUE(weight.grad().is_contiguous());
      backward();
      EXPECT_EQ(weight.grad().data_ptr(), slot);
      const auto twice = [](Dense values) {
        for (double& value : values.values) value *= 2;
        return values;
      };
      EXPECT_TRUE(close(weight.grad(), twice(weight_once), 4 * epsilon(dtype)));
      EXPECT_TRUE(close(bias.grad(), twice(bias_once), 4 * epsilon(dtype)));
    }
  }
}

TEST(Convolutions, EmptyBatchGivesZeroWeightGradients) {
  for (const auto& c : kConvs) {
    const TensorOptions options{kFloat32, test_device()};
    Tensor input = empty({0, 16, 5, 5}, options).requires_grad_(), weight = random_here(c.weight, 1).requires_grad_();
    Tensor bias = random_here({c.empty_result[1]}, 2).requires_grad_();
    const Tensor out = c.conv(input, weight, bias);
    EXPECT_EQ(out.shape(), c.empty_result);
    out.backward(ones(out.shape(), options));
    EXPECT_EQ(input.grad().shape(), input.shape());
    EXPECT_TRUE(close(weight.grad(), dense_zeros(weight.shape()), 0));
    EXPECT_TRUE(close(bias.grad(), dense_zeros(bias.shape()), 0));
  }
}

TEST(Conv2dRelu, NaNPropagatesAndZeroResultsMaskGradients) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor x = tensor({1.0, nan, -1.0}).view({3, 1, 1, 1}).to(test_device()).requires_grad_();
  const Tensor weight = tensor({2.0}).view({1, 1, 1, 1}).to(test_device());
  const Tensor y = conv2d_relu(x, weight);
  EXPECT_EQ(y.to_vector<float>()[0], 2.0f);
  EXPECT_TRUE(std::isnan(y.to_vector<float>()[1]));
  EXPECT_EQ(y.to_vector<float>()[2], 0.0f);
  y.backward(tensor({3.0, 5.0, 7.0}).view({3, 1, 1, 1}).to(test_device()));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{6, 10, 0}));
}

/// The text without the lines of its operands, which it must end with.
std::string without_operands(const std::string& text, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  std::string lines;
  for (const auto& [name, tensor] : {std::pair("input ", input), {"weight", weight}, {"bias  ", bias}}) {
    if (tensor.defined()) lines += str("\n  ", name, "  cpu  float32 ", tensor.shape());
  }
  EXPECT_TRUE(text.ends_with(lines)) << text;
  return text.substr(0, text.size() - std::min(lines.size(), text.size()));
}

TEST(Conv2d, InvalidShapesAreNamedInErrors) {
  auto text = [](Shape input, Shape weight, Conv2dOptions options = {}, Shape bias = {}) {
    const Tensor x = empty(input), w = empty(weight), b = bias.empty() ? Tensor() : empty(bias);
    return without_operands(error_text<ShapeError>([&] { conv2d(x, w, b, options); }), x, w, b);
  };
  EXPECT_EQ(text({5, 5}, {4, 3, 3, 3}),
            "conv2d: input must have 4 dimensions, [batch, channels, height, width], or 3 without batch");
  EXPECT_EQ(text({1, 3, 5, 5}, {4, 27}), "conv2d: weight must have 4 dimensions, [out, in / groups, height, width]");
  EXPECT_EQ(text({1, 3, 5, 5}, {4, 3, 0, 3}), "conv2d: the kernel size of weight must be at least 1");
  EXPECT_EQ(text({1, 3, 5, 5}, {4, 2, 3, 3}), "conv2d: weight must have 3 channels, as many as the input");
  EXPECT_EQ(text({1, 6, 5, 5}, {4, 6, 3, 3}, {.groups = 2}),
            "conv2d: weight must have 3 channels, as many as a group of the input");
  EXPECT_EQ(text({1, 6, 5, 5}, {4, 2, 3, 3}, {.groups = 3}),
            "conv2d: 6 channels of the input and 4 filters are not divisible into 3 groups");
  EXPECT_EQ(text({1, 3, 5, 5}, {4, 3, 3, 3}, {}, {3}), "conv2d: bias must have shape [4]");
  EXPECT_EQ(text({1, 3, 2, 5}, {4, 3, 3, 3}, {.padding = {1, 0}, .dilation = {2, 1}}),
            "conv2d: filters of height 5 do not fit into an input of height 4, padding included");
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(text({1, 3, 5, 5}, {4, 3, 3, 3}, {.padding = {0, kHuge}}),
            "conv2d: the padded width or the filters' width overflows int64");
  EXPECT_EQ(text({1, 3, 5, 5}, {4, 3, 3, 3}, {.dilation = kHuge + 1}),
            "conv2d: the padded height or the filters' height overflows int64");
  const Tensor x = empty({1, 3, 5, 5}), weight = empty({4, 3, 3, 3});
  EXPECT_NE(error_text<ShapeError>([&] { conv2d(x, weight, {}, {.padding = kHuge / 4}); }), "");
}

TEST(Conv2d, InvalidOptionsAndDTypesAreNamedInErrors) {
  auto text = [](Conv2dOptions options) {
    return error_text<ValueError>([&] { conv2d(empty({1, 3, 5, 5}), empty({4, 3, 3, 3}), {}, options); });
  };
  EXPECT_EQ(text({.stride = {1, 0}}), "conv2d: stride is [1, 0], expected at least 1");
  EXPECT_EQ(text({.padding = {-1, 0}}), "conv2d: padding is [-1, 0], expected at least 0");
  EXPECT_EQ(text({.dilation = 0}), "conv2d: dilation is [0, 0], expected at least 1");
  EXPECT_EQ(text({.stride = {1, 2}, .padding = kSame}), "conv2d: stride is [1, 2], expected 1 if padding is kSame");
  EXPECT_EQ(text({.groups = 0}), "conv2d: groups is 0, expected at least 1");
  EXPECT_ERROR(DTypeError, conv2d(empty({1, 3, 5, 5}, {kInt64}), empty({4, 3, 3, 3}, {kInt64})),
               "conv2d: input must be floating\n  input  cpu  int64 [1, 3, 5, 5]");
}

TEST(Convolutions, LayoutOfTheInputDoesNotChangeBits) {
  const auto channels_last = [](const Tensor& x) {
    return x.dim() == 3 ? x.transpose(1, 2).contiguous().transpose(1, 2)
                        : x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  };
  const struct {
    Shape input, weight;
    Conv conv;
  } cases[] = {
      {{2, 16, 9, 7}, {24, 16, 3, 3}, [](auto& x, auto& w, auto& b) { return conv2d(x, w, b, {.padding = kSame}); }},
      {{2, 24, 9, 7}, {24, 3, 3, 3}, [](auto& x, auto& w, auto& b) { return conv2d(x, w, b, {.groups = 8}); }},
      {{2, 16, 65}, {24, 16, 3}, [](auto& x, auto& w, auto& b) { return conv1d(x, w, b, {.stride = 2}); }},
      {{2, 16, 5, 7},
       {16, 24, 3, 3},
       [](auto& x, auto& w, auto& b) { return conv_transpose2d(x, w, b, {.stride = 2}); }},
      {{2, 16, 33}, {16, 24, 4}, [](auto& x, auto& w, auto& b) { return conv_transpose1d(x, w, b, {.stride = 2}); }},
  };
  for (const auto& c : cases) {
    for (const DType dtype : floating_dtypes()) {
      SCOPED_TRACE(str(c.input, " ", dtype));
      const Tensor weight = random_here(c.weight, 1, dtype), bias = random_here({24}, 2, dtype);
      std::vector<Tensor> results, gradients;
      for (const bool is_last : {false, true}) {
        const Tensor plain = random_here(c.input, 3, dtype);
        Tensor input = is_last ? channels_last(plain) : plain;
        const Tensor out = c.conv(input.requires_grad_(), weight, bias);
        out.backward(random_here(out.shape(), 4, dtype));
        results.push_back(out);
        gradients.push_back(input.grad());
      }
      EXPECT_TRUE(same_bits(results[0], results[1]));
      EXPECT_TRUE(same_bits(gradients[0], gradients[1]));
    }
  }
}

TEST(Conv2d, SamePaddingPutsTheExtraZeroAtTheEnd) {
  const Tensor input = tensor({1.0, 2.0, 4.0}).view({1, 1, 1, 3}).to(test_device());
  const Tensor weight = tensor({1.0, 10.0}).view({1, 1, 1, 2}).to(test_device());
  EXPECT_EQ(conv2d(input, weight, {}, {.padding = kSame}).to_vector<float>(), (std::vector<float>{21, 42, 4}));
}

TEST(Conv1d, ResultsAreChannelsLastAndReadWithoutACopy) {
  const Tensor input = random_tensor({2, 16, 33}, 1), weight = random_tensor({24, 16, 3}, 2);
  const Tensor out = conv1d(input, weight);
  EXPECT_EQ(out.strides(), Shape({31 * 24, 1, 24}));
  const auto num_copies = [](const Tensor& x) {
    const Tensor next = random_tensor({8, 24, 1}, 3);
    start_trace();
    conv1d(x, next);
    int copies = 0;
    for (const TraceEvent& event : stop_trace()) copies += std::string(event.category) == "copy";
    return copies;
  };
  EXPECT_EQ(num_copies(out), 0);
  EXPECT_EQ(num_copies(out.contiguous()), 1);
}

TEST(Conv1d, ErrorsNameItsArguments) {
  auto text = [](Shape input, Shape weight, Conv1dOptions options = {}) {
    return error_text<ShapeError>([&] { conv1d(empty(input), empty(weight), {}, options); });
  };
  EXPECT_EQ(text({2, 3, 4, 5}, {4, 3, 3}),
            "conv1d: input must have 3 dimensions, [batch, channels, length], or 2 without batch\n"
            "  input   cpu  float32 [2, 3, 4, 5]\n"
            "  weight  cpu  float32 [4, 3, 3]");
  EXPECT_EQ(text({3, 5}, {4, 3}),
            "conv1d: weight must have 3 dimensions, [out, in / groups, length]\n"
            "  input   cpu  float32 [3, 5]\n"
            "  weight  cpu  float32 [4, 3]");
  EXPECT_EQ(text({3, 5}, {4, 3, 3}, {.padding = 1, .dilation = 4}),
            "conv1d: filters of length 9 do not fit into an input of length 7, padding included\n"
            "  input   cpu  float32 [3, 5]\n"
            "  weight  cpu  float32 [4, 3, 3]");
  auto option_text = [](Conv1dOptions options) {
    return error_text<ValueError>([&] { conv1d(empty({3, 5}), empty({4, 3, 3}), {}, options); });
  };
  EXPECT_EQ(option_text({.stride = 0}), "conv1d: stride is 0, expected at least 1");
  EXPECT_EQ(option_text({.stride = 3, .padding = kSame}), "conv1d: stride is 3, expected 1 if padding is kSame");
  EXPECT_EQ(option_text({.padding = {1, 2}}), "conv1d: padding is [1, 2], expected one number");
}

TEST(ConvTranspose2d, InvalidShapesAreNamedInErrors) {
  auto text = [](Shape input, Shape weight, ConvTranspose2dOptions options = {}, Shape bias = {}) {
    const Tensor x = empty(input), w = empty(weight), b = bias.empty() ? Tensor() : empty(bias);
    return without_operands(error_text<ShapeError>([&] { conv_transpose2d(x, w, b, options); }), x, w, b);
  };
  EXPECT_EQ(text({1, 4, 5, 5}, {4, 27}),
            "conv_transpose2d: weight must have 4 dimensions, [in, out / groups, height, width]");
  EXPECT_EQ(text({1, 4, 5, 5}, {3, 4, 3, 3}),
            "conv_transpose2d: weight must have 4 filters, as many as the input has channels");
  EXPECT_EQ(text({1, 4, 5, 5}, {4, 2, 3, 3}, {.groups = 3}),
            "conv_transpose2d: 4 channels of the input are not divisible into 3 groups");
  EXPECT_EQ(text({1, 4, 5, 5}, {4, 2, 3, 3}, {.groups = 2}, {2}), "conv_transpose2d: bias must have shape [4]");
  EXPECT_EQ(text({1, 4, 0, 5}, {4, 2, 3, 3}), "conv_transpose2d: the height of input must be at least 1");
  EXPECT_EQ(text({1, 4, 2, 1}, {4, 2, 3, 3}, {.padding = {0, 2}}),
            "conv_transpose2d: the width of the result would be -1, expected at least 1");
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(text({1, 4, 2, 1}, {4, 2, 3, 3}, {.stride = {kHuge, 1}, .dilation = {kHuge, 1}}),
            "conv_transpose2d: the height of the result overflows int64");
}

TEST(ConvTranspose2d, InvalidOptionsAreNamedInErrors) {
  auto text = [](ConvTranspose2dOptions options) {
    return error_text<ValueError>([&] { conv_transpose2d(empty({1, 3, 5, 5}), empty({3, 4, 3, 3}), {}, options); });
  };
  EXPECT_EQ(text({.stride = {1, 0}}), "conv_transpose2d: stride is [1, 0], expected at least 1");
  EXPECT_EQ(text({.padding = {-1, 0}}), "conv_transpose2d: padding is [-1, 0], expected at least 0");
  EXPECT_EQ(text({.output_padding = -1}), "conv_transpose2d: output_padding is [-1, -1], expected at least 0");
  EXPECT_EQ(text({.stride = 2, .output_padding = {2, 0}}),
            "conv_transpose2d: output_padding is [2, 0], expected less than stride [2, 2] or dilation [1, 1]");
  EXPECT_ERROR(ValueError, conv_transpose1d(empty({3, 5}), empty({3, 4, 3}), {}, {.output_padding = 1}),
               "conv_transpose1d: output_padding is 1, expected less than stride 1 or dilation 1");
}

}}  // namespace testing
}  // namespace tandem

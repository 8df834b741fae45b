// Asks cuDNN, without a GPU, for the plans by which an H200 would compute tandem's convolutions
// (ops/conv/cudnn_plan.h): cuDNN accepts a description of a GPU in place of one.
//
//   cudnn_plans_test --table    prints the plans of ResNet-50 as a Markdown table
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/ops/conv/cudnn_plan.h>
#include <tandem/tests/ops/plans_main.h>

namespace tandem {
namespace {

using cuda::conv_text;
using cuda::ConvPlan;
using cuda::CudnnDescriptor;

constexpr ConvPass kPasses[] = {ConvPass::kForward, ConvPass::kBackwardInput, ConvPass::kBackwardWeight};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const CudnnDescriptor& h200() {
  static const CudnnDescriptor* const properties = [] {
    auto* d = new CudnnDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const std::string json = text_of("tests/ops/h200.json");
    d->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data());
    d->finalize();
    return d;
  }();
  return *properties;
}

/// The plan, or null and a test failure.
std::optional<ConvPlan> plan_of(ConvPass pass, DType dtype, bool tf32, const ConvGeometry& geometry) {
  try {
    return cuda::make_conv_plan({nullptr, &h200()}, pass, dtype, tf32, geometry);
  } catch (const cuda::CudnnFailure& failure) {
    ADD_FAILURE() << conv_text(pass, dtype, geometry) << ": " << failure.reason;
    return std::nullopt;
  }
}

ConvGeometry square(int64_t batch, int64_t channels, int64_t size, int64_t filters, int64_t kernel, int64_t stride,
                    int64_t padding) {
  const int64_t out = (size + 2 * padding - kernel) / stride + 1;
  return {batch, channels, size, filters, out, kernel, stride, padding};
}

/// The 23 different convolutions of ResNet-50 for images of 224 x 224.
std::vector<ConvGeometry> resnet50(int64_t batch) {
  std::vector<ConvGeometry> all = {square(batch, 3, 224, 64, 7, 2, 3)};
  int64_t channels = 64, size = 56;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2;
    all.push_back(square(batch, channels, size, width, 1, 1, 0));
    all.push_back(square(batch, width, size, width, 3, stride, 1));
    all.push_back(square(batch, channels, size, 4 * width, 1, stride, 0));  // the shortcut
    size /= stride;
    channels = 4 * width;
    if (stride == 2) all.push_back(square(batch, width, size, channels, 1, 1, 0));  // else equal to the shortcut
    all.push_back(square(batch, channels, size, width, 1, 1, 0));
    if (stride == 2) all.push_back(square(batch, width, size, width, 3, 1, 1));
  }
  return all;
}

/// A geometry as conv_text writes it.
ConvGeometry parse_geometry(const std::string& text) {
  long long v[14];
  const int count =
      std::sscanf(text.c_str(),
                  "[%lld, %lld, %lld, %lld], %lld filters %lldx%lld, stride %lldx%lld, padding %lldx%lld, dilation "
                  "%lldx%lld, groups %lld",
                  v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9, v + 10, v + 11, v + 12, v + 13);
  EXPECT_EQ(count, 14) << text;
  long long end[] = {v[9], v[10]};
  if (const size_t at = text.find("end padding"); at != std::string::npos) {
    EXPECT_EQ(std::sscanf(text.c_str() + at, "end padding %lldx%lld", end, end + 1), 2) << text;
  }
  return {.batch = v[0],
          .channels = v[1],
          .size = {v[2], v[3]},
          .out_channels = v[4],
          .out = {(v[2] + v[9] + end[0] - v[11] * (v[5] - 1) - 1) / v[7] + 1,
                  (v[3] + v[10] + end[1] - v[12] * (v[6] - 1) - 1) / v[8] + 1},
          .kernel = {v[5], v[6]},
          .stride = {v[7], v[8]},
          .padding = {v[9], v[10]},
          .dilation = {v[11], v[12]},
          .groups = v[13],
          .has_bias = text.find(", bias") != std::string::npos};
}

// A line of the file is a geometry, a colon, and the passes and dtypes that the tests compute: "forward float32, ...".
TEST(CudnnPlans, EveryConvolutionOfTheTestsHasAPlan) {
  std::ifstream file("tests/ops/conv_problems.txt");
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    ASSERT_NE(colon, std::string::npos) << line;
    const std::string text = line.substr(0, colon), uses = line.substr(colon + 2) + ",";
    const ConvGeometry geometry = parse_geometry(text);
    auto remaining = std::count(uses.begin(), uses.end(), ',');
    for (const ConvPass pass : kPasses) {
      for (const DType dtype : {kFloat32, kFloat16, kBFloat16}) {
        const std::string problem = conv_text(pass, dtype, geometry), use = problem.substr(0, problem.find(" ["));
        EXPECT_EQ(problem, use + " " + text);
        if (uses.find(use + ",") == std::string::npos) continue;
        --remaining;
        for (const bool tf32 : {false, true}) {
          if (!tf32 || dtype == kFloat32) plan_of(pass, dtype, tf32, geometry);
        }
        ++count;
      }
    }
    EXPECT_EQ(remaining, 0) << "unknown passes or dtypes: " << line;
  }
  EXPECT_GT(count, 60);
}

TEST(CudnnPlans, EveryConvolutionOfResnet50HasAPlan) {
  for (const ConvGeometry& geometry : resnet50(256)) {
    for (const ConvPass pass : kPasses) {
      for (const DType dtype : {kBFloat16, kFloat16}) plan_of(pass, dtype, false, geometry);
      for (const bool tf32 : {false, true}) plan_of(pass, kFloat32, tf32, geometry);
    }
  }
}

TEST(CudnnPlans, FallsBackWithAReasonWhereCudnnHasNoPlan) {
  ConvGeometry impossible = square(1, 2, 4, 3, 3, 1, 0);
  impossible.out = 1;  // does not follow from the input's size
  try {
    cuda::make_conv_plan({nullptr, &h200()}, ConvPass::kForward, kFloat32, false, impossible);
    FAIL() << "nothing was thrown";
  } catch (const cuda::CudnnFailure& failure) {
    EXPECT_NE(failure.reason.find("CUDNN_STATUS_BAD_PARAM"), std::string::npos) << failure.reason;
  }
}

}  // namespace

void print_plans() {
  std::cout << "| convolution (batch 256, bfloat16) | forward | backward of input | backward of weight "
               "|\n|---|---|---|---|\n";
  for (const ConvGeometry& g : resnet50(256)) {
    std::cout << "| " << g.channels << " x " << g.size.height << "^2, " << g.out_channels << " filters of "
              << g.kernel.height << "^2, stride " << g.stride.height << " |";
    for (const ConvPass pass : kPasses) {
      const auto plan = cuda::make_conv_plan({nullptr, &h200()}, pass, kBFloat16, false, g);
      std::cout << " engine " << plan.engine << ", " << (plan.workspace_bytes + (1 << 19)) / (1 << 20) << " MiB |";
    }
    std::cout << "\n";
  }
}

}  // namespace tandem

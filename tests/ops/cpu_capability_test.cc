// TANDEM_CPU_CAPABILITY, which this test has in its environment, limits the instruction set of operations.
#include <tandem/base/env.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

const std::string kLimit = env_string("TANDEM_CPU_CAPABILITY").value_or("");

TEST(CpuCapability, LimitsInstructionSet) {
  const bool has_avx512 = __builtin_cpu_supports("x86-64-v4"), has_bf16 = __builtin_cpu_supports("avx512bf16");
  EXPECT_EQ(is_available(GemmAlgorithm::kAvx512), has_avx512 && kLimit != "avx2");
  EXPECT_EQ(is_available(GemmAlgorithm::kAvx512Bf16), has_avx512 && has_bf16 && kLimit.empty());
}

// Dot products of bfloat16 take subnormal numbers as zeros, products of float32 copies do not.
TEST(CpuCapability, BFloat16IsMultipliedAsFloat32WithoutDotProducts) {
  const double product = is_available(GemmAlgorithm::kAvx512Bf16) ? 0 : 0x1p-4;
  const auto small = [](const Shape& shape) { return full(shape, 0x1p-130, {kBFloat16}); };
  const auto large = [](const Shape& shape) { return full(shape, 0x1p126, {kBFloat16}); };
  const auto expect_all = [](const Tensor& out, double value) {
    for (const double v : out.to_vector<double>()) EXPECT_EQ(v, value);
  };
  expect_all(mm(small({67, 32}), large({32, 65})), 32 * product);
  expect_all(linear(small({67, 32}), large({65, 32})), 32 * product);
  expect_all(bmm(small({2, 67, 32}), large({2, 32, 65})), 32 * product);
  expect_all(conv2d(small({2, 16, 15, 15}), large({33, 16, 3, 3}), {}, {.stride = 2}), 144 * product);
}

}}  // namespace tandem::testing

// Choice of the GEMM algorithm in the emulated cuBLASLt: by rule, by the tuning file, by measuring.
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/base/error.h>
#include <tandem/base/tuning.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { namespace {

constexpr int64_t kRows = 13,
                  kDepth = 2100;  // deep enough for sums of several blocks, so that algorithms give different bits
constexpr GemmAlgorithm kAlgorithms[] = {GemmAlgorithm::kDirect, GemmAlgorithm::kAvx2, GemmAlgorithm::kAvx2Swapped,
                                         GemmAlgorithm::kAvx512, GemmAlgorithm::kAvx512Swapped};

std::string key(int64_t n) {
  return str("product, emulated: float32 1x", kRows, "x", n, "x", kDepth, " a N ", kDepth, " 0 b N ", n,
             " 0 aligned 1");
}

struct Operands {
  Tensor a, b;
  explicit Operands(int64_t n) : a(empty({kRows, kDepth})), b(empty({kDepth, n})) {
    for (const Tensor& t : {a, b}) {
      float* values = t.data<float>();
      for (int64_t i = 0; i < t.num_elements(); ++i)
        values[i] = static_cast<float>((i * 7919 + 13) % 1009) / 1009 - 0.5f;
    }
  }

  std::vector<float> on_cpu(GemmAlgorithm algorithm) const {
    const int64_t n = b.size(1);
    const Tensor out = empty({kRows, n});
    const MatrixOperand left{a.data_ptr(), kDepth, false}, right{b.data_ptr(), n, false};
    const Tensor workspace =
        empty({cpu::gemm_workspace_bytes(kFloat32, algorithm, kRows, n, kDepth, left, right) + 64}, {kUInt8});
    cpu::gemm(Device(), kFloat32, algorithm, kRows, n, kDepth, 1, left, right, 0, {}, workspace.data_ptr(),
              out.data_ptr());
    return out.to_vector<float>();
  }

  std::vector<float> on_gpu() const { return matmul(a.to(Device::cuda()), b.to(Device::cuda())).to_vector<float>(); }
};

// One test, because the process reads the variables only once.
TEST(GemmTuning, FileOverridesRuleAndNewShapesAreMeasured) {
  const testing::TemporaryFolder folder;
  const std::string choices = folder / "choices", measured = folder / "measured";
  std::vector<GemmAlgorithm> available;
  for (const GemmAlgorithm algorithm : kAlgorithms) {
    if (!is_available(algorithm)) continue;
    Tuning::append(choices, key(70 + static_cast<int64_t>(available.size())), to_string(algorithm));
    available.push_back(algorithm);
  }
  Tuning::append(choices, key(40), "by hand");
  setenv("TANDEM_TUNING_FILE", choices.c_str(), 1);
  setenv("TANDEM_TUNING_WRITE", measured.c_str(), 1);

  int num_other_bits = 0;
  for (size_t i = 0; i < available.size(); ++i) {
    const int64_t n = 70 + static_cast<int64_t>(i);
    const Operands operands(n);
    const std::vector<float> result = operands.on_gpu();
    EXPECT_EQ(result, operands.on_cpu(available[i])) << to_string(available[i]);
    num_other_bits += result != operands.on_cpu(gemm_algorithm(kRows, n, kDepth, false, false));
  }
  EXPECT_GT(num_other_bits, 0);  // otherwise the comparison would be trivial
  EXPECT_FALSE(std::ifstream(measured).good());

  EXPECT_EQ(testing::error_text<ValueError>([] { Operands(40).on_gpu(); }),
            "tuning file: 'by hand' is not an available algorithm for " + key(40));

  const Operands fresh(41);
  const std::vector<float> first = fresh.on_gpu();
  const Tuning written(measured);
  ASSERT_NE(written.find(key(41)), nullptr);
  bool is_the_written_one = false;
  for (const GemmAlgorithm algorithm : available) {
    is_the_written_one =
        is_the_written_one || (*written.find(key(41)) == to_string(algorithm) && first == fresh.on_cpu(algorithm));
  }
  EXPECT_TRUE(is_the_written_one) << *written.find(key(41));
  EXPECT_EQ(fresh.on_gpu(), first);
  std::ifstream file(measured);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);  // measured once
}

}}  // namespace tandem

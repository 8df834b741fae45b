// Choice of cuBLASLt's algorithm, in the emulation: by the heuristic, by the tuning file, by measuring.
#include <cublasLt.h>
#include <stdlib.h>

#include <cstdio>

#include <cuda_emulation/control.h>

#include <tandem/base/tuning.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/support/ops.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { namespace {

constexpr int64_t kRows = 13, kDepth = 21;

std::string key(int64_t n) {
  return str("product, ", cuda::device_properties(Device::cuda()).name, ", cublasLt ", cublasLtGetVersion(),
             ": float32 1x", kRows, "x", n, "x", kDepth, " a N ", kDepth, " 0 b N ", n, " 0 aligned 16");
}

/// Computes a product with n columns, and returns the last call of cuBLASLt's product.
std::string product(int64_t n) {
  cuda_emulation::forget_library_calls();
  const Tensor a = ones({kRows, kDepth}, {kFloat32, Device::cuda()}), b = ones({kDepth, n}, a.options());
  EXPECT_EQ(matmul(a, b).to_vector<float>(), std::vector<float>(static_cast<size_t>(kRows * n), kDepth));
  const std::vector<std::string> calls = cuda_emulation::library_calls();
  const auto last = std::find_if(calls.rbegin(), calls.rend(),
                                 [](const std::string& call) { return call.rfind("cublasLtMatmul, ", 0) == 0; });
  return last == calls.rend() ? "" : *last;
}

/// The text of algorithm `i`, from a line that measuring wrote for algorithm `measured`.
std::string text_of(const std::string& measured, int i) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016x", i);
  return digits + measured.substr(16);
}

// One test, because a process reads the variables only once.
TEST(GemmTuning, NewShapesAreMeasuredAndTheFileOverridesTheHeuristic) {
  const testing::TemporaryFolder folder;
  const std::string choices = folder / "choices", measured = folder / "measured";
  EXPECT_EXIT(
      {
        setenv("TANDEM_TUNING_WRITE", measured.c_str(), 1);
        const std::string first = product(41);
        std::exit(first == str("cublasLtMatmul, algorithm ", (*Tuning(measured).find(key(41)))[15]) &&
                          product(41) == first
                      ? 0
                      : 1);
      },
      ::testing::ExitedWithCode(0), "");
  std::ifstream file(measured);
  const std::string lines((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);  // measured once

  const std::string text = *Tuning(measured).find(key(41));
  const int other = (text[15] - '0' + 1) % 4;
  Tuning::append(choices, key(40), "by hand");
  Tuning::append(choices, key(41), text_of(text, other));
  setenv("TANDEM_TUNING_FILE", choices.c_str(), 1);
  EXPECT_EQ(product(41), str("cublasLtMatmul, algorithm ", other));
  EXPECT_EQ(product(42), "cublasLtMatmul, algorithm 0");
  EXPECT_EQ(testing::error_text<ValueError>([] { product(40); }),
            "tuning file: 'by hand' is not an available algorithm for " + key(40));
}

}}  // namespace tandem

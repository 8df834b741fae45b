#include <tandem/ops/matmul.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

constexpr double kTolerance = 64;  // sums of products of numbers up to 9

TANDEM_FIXTURES(matmul) {
  fixtures.op(
      "matmul", [](const Arguments& a) { return matmul(a.tensor("input"), a.tensor("other")); }, kTolerance);
  fixtures.op(
      "__rmatmul__", [](const Arguments& a) { return matmul(a.tensor("other"), a.tensor("input")); }, kTolerance);
  fixtures.op(
      "bmm", [](const Arguments& a) { return bmm(a.tensor("input"), a.tensor("mat2")); }, kTolerance);
  fixtures.op(
      "addmm",
      [](const Arguments& a) {
        return addmm(a.tensor("input"), a.tensor("mat1"), a.tensor("mat2"), a.number("beta", 1), a.number("alpha", 1));
      },
      kTolerance);
  fixtures.op(
      "nn.functional.linear",
      [](const Arguments& a) { return linear(a.tensor("input"), a.tensor("weight"), a.tensor("bias")); }, kTolerance);
}

}  // namespace tandem::testing

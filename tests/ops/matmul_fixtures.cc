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
      "addmv",
      [](const Arguments& a) {
        return addmv(a.tensor("input"), a.tensor("mat"), a.tensor("vec"), a.number("beta", 1), a.number("alpha", 1));
      },
      kTolerance);
  fixtures.op(
      "nn.functional.linear",
      [](const Arguments& a) { return linear(a.tensor("input"), a.tensor("weight"), a.tensor("bias")); }, kTolerance);
  fixtures.op(
      "mm", [](const Arguments& a) { return mm(a.tensor("input"), a.tensor("mat2")); }, kTolerance);
  fixtures.op(
      "mv", [](const Arguments& a) { return mv(a.tensor("input"), a.tensor("vec")); }, kTolerance);
  fixtures.op(
      "dot", [](const Arguments& a) { return dot(a.tensor("input"), a.tensor("tensor")); }, kTolerance);
  fixtures.op(
      "outer", [](const Arguments& a) { return outer(a.tensor("input"), a.tensor("vec2")); }, kTolerance);
  fixtures.op(
      "baddbmm",
      [](const Arguments& a) {
        return baddbmm(a.tensor("input"), a.tensor("batch1"), a.tensor("batch2"), a.number("beta", 1),
                       a.number("alpha", 1));
      },
      kTolerance);
  fixtures.op(
      "nn.functional.bilinear",
      [](const Arguments& a) {
        return bilinear(a.tensor("input1"), a.tensor("input2"), a.tensor("weight"), a.tensor("bias"));
      },
      kTolerance);
  fixtures.op(
      "einsum", [](const Arguments& a) { return einsum(a.text("equation", ""), a.tensors("operands")); }, kTolerance);
}

}  // namespace tandem::testing

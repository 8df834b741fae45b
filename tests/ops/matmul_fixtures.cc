#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

constexpr double kTolerance = 64;  // sums of products of numbers up to 9

TANDEM_FIXTURES(matmul) {
  fixtures.op("matmul", kTolerance, [](const Arguments& a) { return matmul(a.tensor("input"), a.tensor("other")); });
  fixtures.op("__rmatmul__", kTolerance,
              [](const Arguments& a) { return matmul(a.tensor("other"), a.tensor("input")); });
  fixtures.op("bmm", kTolerance, [](const Arguments& a) { return bmm(a.tensor("input"), a.tensor("mat2")); });
  fixtures.op("addmm", kTolerance, [](const Arguments& a) {
    return addmm(a.tensor("input"), a.tensor("mat1"), a.tensor("mat2"), a.number("beta", 1), a.number("alpha", 1));
  });
  fixtures.op("addmv", kTolerance, [](const Arguments& a) {
    return addmv(a.tensor("input"), a.tensor("mat"), a.tensor("vec"), a.number("beta", 1), a.number("alpha", 1));
  });
  fixtures.op("nn.functional.linear", kTolerance,
              [](const Arguments& a) { return linear(a.tensor("input"), a.tensor("weight"), a.tensor("bias")); });
  fixtures.op("mm", kTolerance, [](const Arguments& a) { return mm(a.tensor("input"), a.tensor("mat2")); });
  fixtures.op("mv", kTolerance, [](const Arguments& a) { return mv(a.tensor("input"), a.tensor("vec")); });
  fixtures.op("dot", kTolerance, [](const Arguments& a) { return dot(a.tensor("input"), a.tensor("tensor")); });
  fixtures.op("linalg.cross", kTolerance,
              [](const Arguments& a) { return cross(a.tensor("input"), a.tensor("other"), a.integer("dim", -1)); });
  fixtures.op("outer", kTolerance, [](const Arguments& a) { return outer(a.tensor("input"), a.tensor("vec2")); });
  fixtures.op("baddbmm", kTolerance, [](const Arguments& a) {
    return baddbmm(a.tensor("input"), a.tensor("batch1"), a.tensor("batch2"), a.number("beta", 1),
                   a.number("alpha", 1));
  });
  fixtures.op("nn.functional.bilinear", kTolerance, [](const Arguments& a) {
    return bilinear(a.tensor("input1"), a.tensor("input2"), a.tensor("weight"), a.tensor("bias"));
  });
  fixtures.op("einsum", kTolerance,
              [](const Arguments& a) { return einsum(a.text("equation", ""), a.tensors("operands")); });
}

}  // namespace tandem::testing

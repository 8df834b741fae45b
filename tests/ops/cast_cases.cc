
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

TANDEM_OP_CASES(cast) {
  cases.op("Tensor to(const Tensor& input, DType dtype)", std::nullopt,
           {{.inputs = {{"input", {3, 7}}},
             .run = [](const Tensors& x) { return to(x[0], kFloat64); },
             .reference = elementwise([](double x) { return x; }),
             .result_dtype = kFloat64}});
  cases.add({.name = "to",
             .inputs = {{"input", {3, 33}}},
             .run = [](const Tensors& x) { return x[0].to(kFloat32); },
             .reference = elementwise([](double x) { return x; }),
             .dtypes = {kFloat32, kFloat16, kBFloat16},
             .result_dtype = kFloat32,
             .has_gradient = false});
}

}  // namespace tandem::testing

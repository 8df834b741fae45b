#include <string>
#include <utility>
#include <vector>

#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/tests/ops/activation_reference.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using namespace activation;

OpCase case_of(const Activation& activation, const Shape& shape) {
  OpCase op;
  op.name = activation.name;
  op.inputs = {{"input", shape, -4, 4}};
  op.run = [run = activation.run](const std::vector<Tensor>& in) { return run(in[0]); };
  op.reference = [exact = activation.exact, shape](const std::vector<Dense>& in) {
    return dense_map(shape, in, [&](const std::vector<double>& v) { return static_cast<double>(exact(v[0])); });
  };
  return op;
}

// The hidden layer of a transformer: 16 sequences of 128 positions.
TensorList hidden() { return {randn({16, 128, 512})}; }

}  // namespace

TANDEM_OP_CASES(activation) {
  const std::pair<const char*, const char*> declarations[] = {
      {"gelu", "Tensor gelu(Tensor input, GeluApproximation approximation = GeluApproximation::kNone)"},
      {"silu", "Tensor silu(Tensor input)"},
      {"tanh", "Tensor tanh(Tensor input)"},
      {"sigmoid", "Tensor sigmoid(Tensor input)"}};
  for (const auto& [name, declaration] : declarations) {
    std::vector<OpCase> list;
    for (const Activation& activation : activations()) {
      if (activation.name != std::string(name)) continue;
      for (const Shape& shape : {Shape{3, 7}, Shape{3, 33}, Shape{2, 3, 7}, Shape{}, Shape{0, 3}, Shape{1}}) {
        list.push_back(case_of(activation, shape));
      }
    }
    cases.op(declaration, CastPolicy::kWidest, list);
  }

  for (const Activation& activation : activations()) {
    const OpCase op = case_of(activation, {3, 32769});
    cases.add(op, kValues | kThreads);
  }

  cases.benchmark("gelu", hidden, [](const TensorList& in) { return gelu(in[0]); });
  cases.benchmark("gelu tanh", hidden, [](const TensorList& in) { return gelu(in[0], GeluApproximation::kTanh); });
  cases.benchmark("silu", hidden, [](const TensorList& in) { return silu(in[0]); });
  cases.benchmark("tanh", hidden, [](const TensorList& in) { return tanh(in[0]); });
  cases.benchmark("sigmoid", hidden, [](const TensorList& in) { return sigmoid(in[0]); });
}

}  // namespace tandem::testing

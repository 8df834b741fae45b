// The registry of operations: one description of each. Its tests, its benchmarks and its entry in docs/operations.md
// are generated from it. A family's descriptions are in tests/ops/<family>_cases.cc; no list names that file:
//
//     TANDEM_OP_CASES(elementwise) {
//       cases.op("Tensor relu(Tensor input)", CastPolicy::kWidest,
//                {{.inputs = {{"input", {3, 7}}},
//                  .run = [](const TensorList& in) { return relu(in[0]); },
//                  .reference = elementwise([](double x) { return x > 0 ? x : 0; })}});
//       cases.benchmark("relu", [] { return TensorList{randn({128, 32, 24, 24})}; },
//                       [](const TensorList& in) { return relu(in[0]); });
//     }
#pragma once

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing {

/// Work of a benchmark, from which its speed is computed.
struct Cost {
  double flops = 0;           ///< of forward, two per multiply-add; backward counts twice as many
  double bytes = 0;           ///< read and written by forward; 0: inputs and output once each
  double backward_bytes = 0;  ///< 0: inputs, their gradients and the output's gradient once each
  bool backward = true;       ///< false: measure forward only
};

struct Benchmark {
  std::string name;
  std::function<TensorList()> inputs;
  std::function<Tensor(const TensorList&)> run;
  Cost cost;
  std::string torch;  ///< the call in PyTorch, an expression over the inputs a, b, ...; "": not compared
};

/// A result, and the device it must be on.
struct Placed {
  Tensor tensor;
  Device device;
};

/// A call that names the devices of its results: it moves data between devices, or makes a tensor.
struct CrossingCase {
  std::vector<std::pair<Shape, int>> inputs;  ///< float32: shapes and device indices, from 1
  std::function<std::vector<Placed>(const Tensors&)> run;
};

/// Checks of a case; see op_checks.h.
enum Checks : unsigned {
  kValues = 1,
  kGradients = 2,
  kThreads = 4,
  kErrors = 8,
  kAllChecks = 15,
};

/// A public function: an overload that a header declares.
struct Operation {
  std::string declaration;             ///< as in the header; functions of namespace comm have the prefix "comm::"
  std::optional<CastPolicy> autocast;  ///< nullopt: operands are never cast
  std::vector<OpCase> cases;
  std::vector<CrossingCase> crossing;

  std::string name() const;
};

/// A case, its checks, and a unique name such as "matmul_12".
struct CheckedCase {
  std::string id;
  OpCase op;
  unsigned checks;
};

class OpCases {
 public:
  /// Declares an overload, with calls whose operands must be on one device. `autocast` is its cast policy. Each case
  /// gets all applicable checks: values and gradients require a reference.
  void op(std::string declaration, std::optional<CastPolicy> autocast, std::vector<OpCase> cases);
  /// Declares an overload whose calls name the devices of their results.
  void crossing(std::string declaration, CrossingCase op_case);
  /// Adds more shapes, layouts and attributes of a declared operation, with the given checks.
  void add(OpCase op, unsigned checks = kAllChecks);
  /// Adds a row of //benchmarks/ops. `name` is the function's name, plus a word if rows differ in more than
  /// shapes: "conv2d winograd". `inputs` is called when the row runs. Floating inputs get gradients; capture inputs
  /// without gradients in `run`. With `torch`, for example "torch.add(a, b)", the row is compared with PyTorch.
  void benchmark(std::string name, std::function<TensorList()> inputs, std::function<Tensor(const TensorList&)> run,
                 Cost cost = {}, std::string torch = {});
  /// The same for inputs of these shapes by randn.
  void benchmark(std::string name, std::vector<Shape> inputs, std::function<Tensor(const TensorList&)> run,
                 Cost cost = {}, std::string torch = {});

  std::vector<Operation> operations;
  std::vector<CheckedCase> checked;
  std::vector<Benchmark> benchmarks;

 private:
  friend const OpCases& op_cases();
  std::string family_;
};

/// All families, in alphabetical order. First called after static initialization.
const OpCases& op_cases();

/// Used by TANDEM_OP_CASES.
bool register_op_cases(const char* family, void (*add)(OpCases&));

}  // namespace tandem::testing

/// Defines a function with a parameter `OpCases& cases` that describes the operations of a family.
#define TANDEM_OP_CASES(family)                                                 \
  static void tandem_op_cases_##family(::tandem::testing::OpCases& cases);      \
  static const bool tandem_op_cases_registered_##family =                       \
      ::tandem::testing::register_op_cases(#family, &tandem_op_cases_##family); \
  static void tandem_op_cases_##family([[maybe_unused]] ::tandem::testing::OpCases& cases)

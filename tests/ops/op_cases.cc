#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

std::map<std::string, void (*)(OpCases&)>& families() {
  static std::map<std::string, void (*)(OpCases&)> registry;
  return registry;
}

}  // namespace

std::string Operation::name() const {
  const size_t end = declaration.find('('), begin = declaration.find_last_of(' ', end) + 1;
  return declaration.substr(begin, end - begin);
}

void OpCases::op(std::string declaration, std::optional<CastPolicy> autocast, std::vector<OpCase> cases) {
  Operation operation{std::move(declaration), autocast, std::move(cases), {}};
  for (OpCase& op : operation.cases) {
    if (op.name.empty()) op.name = operation.name();
    if (op.reference) add(op);
  }
  operations.push_back(std::move(operation));
}

void OpCases::crossing(std::string declaration, CrossingCase op_case) {
  operations.push_back({std::move(declaration), {}, {}, {std::move(op_case)}});
}

void OpCases::add(OpCase op, unsigned checks) {
  checked.push_back({str(family_, '_', checked.size()), std::move(op), checks});
}

void OpCases::benchmark(std::string name, std::function<TensorList()> inputs,
                        std::function<Tensor(const TensorList&)> run, Cost cost, std::string torch) {
  benchmarks.push_back({std::move(name), std::move(inputs), std::move(run), cost, std::move(torch)});
}

void OpCases::benchmark(std::string name, std::vector<Shape> inputs, std::function<Tensor(const TensorList&)> run,
                        Cost cost, std::string torch) {
  const auto make = [shapes = std::move(inputs)] {
    TensorList tensors;
    for (const Shape& shape : shapes) tensors.push_back(randn(shape));
    return tensors;
  };
  benchmark(std::move(name), make, std::move(run), cost, std::move(torch));
}

bool register_op_cases(const char* family, void (*add)(OpCases&)) { return families().emplace(family, add).second; }

const OpCases& op_cases() {
  static const OpCases all = [] {
    OpCases cases;
    for (const auto& [family, add] : families()) {
      cases.family_ = family;
      add(cases);
    }
    return cases;
  }();
  return all;
}

}  // namespace tandem::testing

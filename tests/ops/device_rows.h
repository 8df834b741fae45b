// Every public operation on tensors: how to make its operands on any device and to call it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/ops/index.h>
#include <tandem/tensor/tensor.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing {

/// What an operation returns.
struct Results {
  Results(Tensor tensor) : tensors{std::move(tensor)} {}
  Results(std::vector<Tensor> list) : tensors(std::move(list)) {}
  Results(TopK both) : tensors{std::move(both.values), std::move(both.indices)} {}
  std::vector<Tensor> tensors;
};

enum Trait : unsigned {
  kBroadcasts = 1,        ///< each operand may have no dimensions
  kNoGradient = 2,        ///< of any order
  kNoSecondGradient = 4,  ///< its backward cannot be recorded
};

/// A call whose operands must be on one device, where its results are too.
struct OpRow {
  std::string signature;      ///< as declared_signatures says; in several rows where calls take different ways
  std::vector<Input> inputs;  ///< named as error texts name them
  std::function<Results(const std::vector<Tensor>&)> run;
  unsigned traits = 0;
  std::string name = signature.substr(0, signature.find('('));  ///< how error texts begin
};
std::vector<OpRow> op_rows();

/// A result, and where it must be.
struct Placed {
  Tensor tensor;
  Device device;
};

/// A call that says where its results are: one that crosses between devices, or makes a tensor from nothing.  All on cpu:1 ..
/// cpu:3.
struct CrossingRow {
  std::string signature;
  std::vector<std::pair<Shape, int>> inputs;  ///< float32, shapes and numbers of CPU devices
  std::function<std::vector<Placed>(const std::vector<Tensor>&)> run;
};
std::vector<CrossingRow> crossing_rows();

}  // namespace tandem::testing

// Copies of modules.
#pragma once

#include <memory>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Makes `to`, a new module of the same structure as `from`, a deep copy of `from`: copies parameters and buffers (also
/// non-persistent ones) with their dtypes and devices, the ties between tensors, the requires_grad flags and the modes.
/// Existing handles of `to`'s parameters refer to the copied values; their gradients and hooks, if any, are lost.
/// Gradients and hooks of `from`, and members that are not registered, are not copied. Throws StateError, changing
/// nothing, while the structure of `to` is frozen, or if `from` and `to` differ in classes, children, parameters or
/// buffers; the error lists the differences.
TANDEM_API void copy_state(const Module& from, Module& to);

/// A deep copy of `model`, as copy.deepcopy(model). make() returns a std::unique_ptr to a new module with the class and
/// settings of `model`; copy_state() then makes it equal to `model`. Does not advance the random streams.
///
///     std::unique_ptr<Net> copy = nn::clone(net, [&] { return std::make_unique<Net>(classes); });
template <class M, class Make>
std::unique_ptr<M> clone(const M& model, Make&& make) {
  const GeneratorPositions positions;
  std::unique_ptr<M> copy = make();
  positions.restore();
  copy_state(model, *copy);
  return copy;
}

/// As above, for a class M with a default constructor.
template <class M>
std::unique_ptr<M> clone(const M& model) {
  return clone(model, [] { return std::make_unique<M>(); });
}

}}}  // namespace tandem::v0::nn

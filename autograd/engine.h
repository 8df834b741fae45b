// Backward.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

struct BackwardOptions {
  bool retain_graph = false;  ///< keep what was saved, for another backward through the same graph
  bool create_graph = false;  ///< record the backward itself, for second derivatives; implies retain_graph
};

/// Adds d(sum over roots of <gradient, root>) / d leaf into the slot of every leaf below the roots and runs their hooks.
/// gradients[i] has the root's shape, dtype and device; undefined counts as one for a root of a single element.
/// Throws StateError if a root requires no grad or the graph was released, ShapeError / DTypeError / DeviceError naming
/// the node whose gradient does not fit.  Iterative: the depth of the graph does not matter.
TANDEM_API void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                         BackwardOptions options = {});

/// Runs f() when the backward that the calling thread is inside of has delivered its last gradient.  For hooks.  Throws
/// StateError outside a backward.
TANDEM_API void queue_callback(std::function<void()> f);

/// Defined in ops/elementwise/elementwise.cc: a + b, recorded; how gradients are accumulated under create_graph.
TANDEM_API Tensor accumulate_with_graph(const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::autograd

namespace tandem { inline namespace v0 {

/// d(sum over outputs of <grad_outputs, output>) / d inputs, without touching any slot or hook.  Inputs are leaves or
/// tensors inside the graph, at least one (ValueError); undefined is returned for one on which no output depends.
TANDEM_API std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                    std::span<const Tensor> grad_outputs = {}, autograd::BackwardOptions options = {});
/// The same for lists in braces: grad({y}, {x}).
TANDEM_API inline std::vector<Tensor> grad(std::initializer_list<Tensor> outputs, std::initializer_list<Tensor> inputs,
                                           std::initializer_list<Tensor> grad_outputs = {},
                                           autograd::BackwardOptions options = {}) {
  return grad(std::span(outputs.begin(), outputs.size()), std::span(inputs.begin(), inputs.size()),
              std::span(grad_outputs.begin(), grad_outputs.size()), options);
}

}}  // namespace tandem::v0

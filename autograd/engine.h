// Running backward.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// Options of a backward pass.
struct BackwardOptions {
  bool retain_graph = false;  ///< keep saved tensors, for another backward through the same graph
  bool create_graph = false;  ///< record the backward itself, for second derivatives; implies retain_graph
};

/// Adds d(sum over i of <gradients[i], roots[i]>) / d leaf into the gradient slot of every leaf reachable from the
/// roots, and runs their hooks. gradients[i] has the shape, dtype and device of roots[i]; if undefined, it is 1 and the
/// root must have one element. Throws StateError if a root does not require grad or the graph was released, and
/// ShapeError, DTypeError or DeviceError, naming the node, for a gradient that does not match. Not recursive, so graphs
/// may be arbitrarily deep.
TANDEM_API void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                         BackwardOptions options = {});

/// Runs f() at the end of the running backward of the calling thread, after the last gradient. For hooks. Throws
/// StateError outside a backward.
TANDEM_API void queue_callback(std::function<void()> f);

/// a + b, recorded: accumulates gradients under create_graph. Defined in ops/elementwise/elementwise.cc.
TANDEM_API Tensor accumulate_with_graph(const Tensor& a, const Tensor& b);

}}}  // namespace tandem::v0::autograd

namespace tandem { inline namespace v0 {

/// d(sum over i of <grad_outputs[i], outputs[i]>) / d inputs, as torch.autograd.grad: does not change the
/// gradients of leaves and does not run their post-accumulate hooks. Tensor hooks run, and retain_grad keeps gradients.
/// Inputs are leaves or intermediate results, at least one (ValueError). The gradient of an input on which no output
/// depends is undefined.
TANDEM_API std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                    std::span<const Tensor> grad_outputs = {}, autograd::BackwardOptions options = {});
/// grad for initializer lists: grad({y}, {x}).
TANDEM_API inline std::vector<Tensor> grad(std::initializer_list<Tensor> outputs, std::initializer_list<Tensor> inputs,
                                           std::initializer_list<Tensor> grad_outputs = {},
                                           autograd::BackwardOptions options = {}) {
  return grad(std::span(outputs.begin(), outputs.size()), std::span(inputs.begin(), inputs.size()),
              std::span(grad_outputs.begin(), grad_outputs.size()), options);
}

}}  // namespace tandem::v0

// Activation checkpointing.
#pragma once

#include <type_traits>
#include <utility>

#include <tandem/autograd/checkpoint.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Calls function(inputs...) without keeping the tensors that its operations save for backward; backward calls the
/// function again to compute them. Trades one more forward pass for memory: of a chain of n checkpointed blocks only
/// the inputs of the blocks are stored, and the activations of one block at a time (Chen et al., "Training deep nets
/// with sublinear memory cost", 2016).
///
/// Results and gradients have the same bits as without it: the second run draws the same numbers from the default
/// generators, has the same autocast mode, and does not update the running statistics of batch normalization. It works
/// under DistributedDataParallel, with tied parameters, in nested checkpoints, and with second derivatives.
///
/// The function must do the same in both runs, which is checked by what it saves, and by the versions of the tensors
/// that its operations use (StateError): they must not be changed in place before backward. What it refers to, such as
/// a module captured by reference, must live until backward and keep its mode; generators of its own are not reset. It
/// must not call backward or grad (StateError). Hooks of layers inside run in both runs (autograd::is_recomputing). The
/// result is the function's, of any type. Without grad mode it is an ordinary call.
template <class F, class... Inputs>
requires(!std::is_base_of_v<Module, F>) auto checkpoint(F function, const Inputs&... inputs) {
  static_assert((std::is_same_v<Inputs, Tensor> && ...), "the arguments of a checkpointed function must be tensors");
  if (!is_grad_enabled()) return function(inputs...);
  const autograd::CheckpointScope scope(
      [function, ... saved = autograd::snapshot(inputs)]() mutable { static_cast<void>(function(saved...)); },
      {autograd::snapshot(inputs)...});
  return function(inputs...);
}

/// checkpoint of a layer: checkpoint(block, x) instead of block(x).
inline Tensor checkpoint(Layer& layer, const Tensor& input) {
  return checkpoint([&layer](const Tensor& x) { return layer(x); }, input);
}

}}}  // namespace tandem::v0::nn

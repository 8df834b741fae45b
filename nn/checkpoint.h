// Activation checkpointing.
#pragma once

#include <type_traits>
#include <utility>

#include <tandem/autograd/checkpoint.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Calls function(inputs...) without keeping the tensors that its operations save for backward; backward calls the
/// function again to compute them. Saves memory at the cost of one more forward pass: for a chain of n checkpointed
/// blocks, only the inputs of the blocks and the activations of one block at a time are stored (Chen et al., "Training
/// deep nets with sublinear memory cost", 2016).
///
/// Results and gradients have the same bits as without checkpointing: the second run draws the same numbers from the
/// default generators, has the same autocast mode, and does not update the running statistics of batch normalization.
/// Checkpointing works under DistributedDataParallel, with tied parameters, in nested checkpoints, and with second
/// derivatives.
///
/// The function must run the same operations in both runs. This is checked by the operations, shapes and dtypes of the
/// saved tensors, and by the versions of the tensors that its operations use, which must not be changed in place before
/// backward (StateError). Objects that the function refers to, such as a module captured by reference, must exist until
/// backward and keep their mode. The function's own generators are not reset. The function must not call backward or
/// grad (StateError). Hooks of layers in the function run in both runs (autograd::is_recomputing). The function may
/// return any type. Without grad mode, checkpoint is an ordinary call of the function.
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

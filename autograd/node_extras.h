// Optional state of a node: hooks, retained gradient, call stack. Private to autograd/.
#pragma once

#include <functional>

#include <tandem/base/call_stack.h>
#include <tandem/base/hook_list.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// A function that takes a gradient and may return a replacement, see Tensor::register_hook.
using TensorHook = std::function<Tensor(const Tensor& grad)>;

struct NodeExtras {
  HookList<TensorHook> hooks;  ///< tensor hooks of the output
  bool retains_grad = false;   ///< whether `grad` is kept
  Tensor grad;                 ///< sum of the output's gradients
  CallStack recorded_at;       ///< call of the operation, in anomaly mode
};

}}}  // namespace tandem::v0::autograd

// Hooks of layers.
#include <tandem/autograd/engine.h>
#include <tandem/autograd/function.h>
#include <tandem/base/hook_list.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

struct LayerHooks {
  HookList<std::function<Tensor(Layer&, const Tensor&)>> forward_pre;
  HookList<std::function<Tensor(Layer&, const Tensor&, const Tensor&)>> forward, backward;
};

namespace {

/// State shared by the LayerInput and the LayerOutput of one call.
struct Call {
  Layer* layer;
  std::shared_ptr<LayerHooks> hooks;
  Tensor grad_output;

  Tensor run(Tensor grad_input) {
    hooks->backward.run([&](const auto& hook) {
      if (Tensor replaced = hook(*layer, grad_input, grad_output); replaced.defined()) grad_input = std::move(replaced);
    });
    return grad_input;
  }
};

/// The input of a call; its backward runs the hooks.
struct LayerInput : autograd::Function<LayerInput> {
  std::shared_ptr<Call> call;
  Tensor forward(const Tensor& input, const std::shared_ptr<Call>& of) {
    call = of;
    return input;
  }
  TensorList backward(const TensorList& grads) override { return {call->run(grads[0])}; }
};

/// The output of a call; its backward stores the output's gradient for the hooks, and runs them if the input has no
/// gradient.
struct LayerOutput : autograd::Function<LayerOutput> {
  std::shared_ptr<Call> call;
  bool has_input = false;
  Tensor forward(const Tensor& output, const std::shared_ptr<Call>& of, bool input_requires_grad) {
    call = of;
    has_input = input_requires_grad;
    return output;
  }
  TensorList backward(const TensorList& grads) override {
    call->grad_output = grads[0];
    // Released at the end of backward: under create_graph the gradient refers to this node, which refers to `call`.
    // LayerInput::backward cannot release it, because it does not run if the input's gradient is not needed.
    autograd::queue_callback([of = call] { of->grad_output = {}; });
    if (!has_input) call->run({});
    return {grads[0]};
  }
};

}  // namespace

HookHandle Layer::add_forward_pre_hook(TensorHook hook) {
  if (hooks_ == nullptr) hooks_ = std::make_shared<LayerHooks>();
  return hooks_->forward_pre.add(std::move(hook));
}

HookHandle Layer::add_forward_hook(TensorsHook hook) {
  if (hooks_ == nullptr) hooks_ = std::make_shared<LayerHooks>();
  return hooks_->forward.add(std::move(hook));
}

HookHandle Layer::add_full_backward_hook(TensorsHook hook) {
  if (hooks_ == nullptr) hooks_ = std::make_shared<LayerHooks>();
  return hooks_->backward.add(std::move(hook));
}

Tensor Layer::call_with_hooks(const Tensor& input, FunctionRef<Tensor(const Tensor&)> f) {
  const std::shared_ptr<LayerHooks> hooks = hooks_;
  Tensor value = input;
  hooks->forward_pre.run([&](const auto& hook) {
    if (Tensor replaced = hook(*this, value); replaced.defined()) value = std::move(replaced);
  });
  std::shared_ptr<Call> call;
  const bool requires_grad = is_grad_enabled() && value.defined() && value.requires_grad();
  if (is_grad_enabled() && !hooks->backward.empty()) {
    call = std::make_shared<Call>(Call{this, hooks, {}});
    if (requires_grad) value = LayerInput::apply(value, call);
  }
  Tensor output = f(value);
  hooks->forward.run([&](const auto& hook) {
    if (Tensor replaced = hook(*this, value, output); replaced.defined()) output = std::move(replaced);
  });
  return call != nullptr ? LayerOutput::apply(output, call, requires_grad) : output;
}

}}}  // namespace tandem::v0::nn

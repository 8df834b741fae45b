#include <tandem/ops/activation.h>

#include <numbers>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/activation_kernels.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/math.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::convert;
using ops::floating_or_float32;
using ops::make_loop;

namespace {

Tensor run(const KernelContext& context, ActivationOp kind, const Tensor& input) {
  Tensor out = empty_preserving_layout(input, input.dtype());
  const auto loop = make_loop<2>(out.shape(), out.num_elements(), {&out, &input});
  TANDEM_KERNEL(context, activation, kind, input.dtype(), loop, input.data_ptr(), out.data_ptr());
  return out;
}

const char* backward_name(ActivationOp kind) {
  switch (kind) {
    case ActivationOp::kGeluErf:
    case ActivationOp::kGeluTanh: return "gelu_backward";
    case ActivationOp::kSilu: return "silu_backward";
    case ActivationOp::kTanh: return "tanh_backward";
    case ActivationOp::kSigmoid: break;
  }
  return "sigmoid_backward";
}

/// The derivative, by what activation_backward saves, of what it multiplies grad with.  Beyond the bounds of the clamps it is 0.
Tensor second_factor(ActivationOp kind, const Tensor& saved) {
  switch (kind) {
    case ActivationOp::kGeluErf: {  // (Phi + x phi)' = phi (2 - x^2)
      const Tensor x = clamp(saved, -kGeluEndDouble, kGeluEndDouble);
      const Tensor square = x * x;
      return exp(square * -0.5) * (2 - square) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    }
    case ActivationOp::kGeluTanh: {
      // With s = sigmoid(v): s' = s (1 - s) v', where 1 - s = sigmoid(-v) keeps its digits.
      const Tensor x = clamp(saved, -kGeluEndDouble, kGeluEndDouble);
      const Tensor square = x * x;
      const Tensor v = kGeluSlope * x * (1 + kGeluCubic * square);
      const Tensor s = sigmoid(v), rest = sigmoid(-v);
      const Tensor v1 = kGeluSlope * (1 + 3 * kGeluCubic * square);
      const Tensor v2 = 6 * kGeluCubic * kGeluSlope * x;
      return s * rest * (2 * v1 + x * (v2 + v1 * v1 * (rest - s)));
    }
    case ActivationOp::kSilu: {
      const Tensor x = clamp(saved, -kSigmoidEndDouble, kSigmoidEndDouble);
      const Tensor s = sigmoid(x), rest = sigmoid(-x);
      return s * rest * (2 + x * (rest - s));
    }
    case ActivationOp::kTanh: return -2 * saved;
    case ActivationOp::kSigmoid: break;
  }
  return 1 - 2 * saved;
}

Tensor activation_backward(ActivationOp kind, const Tensor& grad, const Tensor& saved);

struct ActivationBackwardNode : Node {
  ActivationOp kind{};
  SavedTensor grad{*this, "grad"};
  SavedTensor saved{*this, "saved"};
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    if (context.needs(0)) grads[0] = activation_backward(kind, context.grad(), saved.get());
    if (context.needs(1)) {  // half types in float32, rounded once
      const DType dtype = context.grad().dtype(), compute = promote(dtype, kFloat32);
      const Tensor product = to(context.grad(), compute) * to(grad.get(), compute);
      grads[1] = to(product * second_factor(kind, to(saved.get(), compute)), dtype);
    }
    return grads;
  }
};

/// The gradient of an activation in one pass over memory, an operation of its own.
Tensor activation_backward(ActivationOp kind, const Tensor& grad, const Tensor& saved) {
  const char* name = backward_name(kind);
  const KernelContext context = ops::check_same_device(name, {{"grad", grad}, {"saved", saved}});
  Tensor out = empty_preserving_layout(saved, saved.dtype());
  const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &grad, &saved});
  TANDEM_KERNEL(context, activation_backward, kind, out.dtype(), loop, grad.data_ptr(), saved.data_ptr(),
                out.data_ptr());
  if (auto* node = record<ActivationBackwardNode>(name, out, grad, saved)) {
    node->kind = kind;
    node->grad.save(grad);
    node->saved.save(saved);
  }
  return out;
}

/// gelu, silu.
struct ActivationOfInputNode : Node {
  ActivationOp kind{};
  SavedTensor input{*this, "input"};
  TensorList backward(BackwardContext& context) override {
    return {activation_backward(kind, context.grad(), input.get())};
  }
};

/// tanh, sigmoid.
struct ActivationOfOutputNode : Node {
  ActivationOp kind{};
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override {
    return {activation_backward(kind, context.grad(), output.get())};
  }
};

Tensor by_input(const char* op, ActivationOp kind, Tensor input) {
  cast_for(CastPolicy::kWidest, {&input});
  const KernelContext context = ops::check_same_device(op, {{"input", input}});
  ops::check_floating(op, {"input", input});
  Tensor out = run(context, kind, input);
  if (auto* node = record<ActivationOfInputNode>(op, out, input)) {
    node->kind = kind;
    node->input.save(input);
  }
  return out;
}

Tensor by_output(const char* op, ActivationOp kind, Tensor input) {
  cast_for(CastPolicy::kWidest, {&input});
  const KernelContext context = ops::check_same_device(op, {{"input", input}});
  convert(input, floating_or_float32(input.dtype()));
  Tensor out = run(context, kind, input);
  if (auto* node = record<ActivationOfOutputNode>(op, out, input)) {
    node->kind = kind;
    node->output.save(out);
  }
  return out;
}

}  // namespace

Tensor gelu(Tensor input, GeluApproximation approximation) {
  const bool tanh_form = approximation == GeluApproximation::kTanh;
  return by_input("gelu", tanh_form ? ActivationOp::kGeluTanh : ActivationOp::kGeluErf, std::move(input));
}

Tensor silu(Tensor input) { return by_input("silu", ActivationOp::kSilu, std::move(input)); }

Tensor tanh(Tensor input) { return by_output("tanh", ActivationOp::kTanh, std::move(input)); }

Tensor sigmoid(Tensor input) { return by_output("sigmoid", ActivationOp::kSigmoid, std::move(input)); }

Tensor Tensor::tanh() const { return tandem::tanh(*this); }
Tensor Tensor::sigmoid() const { return tandem::sigmoid(*this); }

}}  // namespace tandem::v0

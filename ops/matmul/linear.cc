#include <tandem/base/function_ref.h>
#include <tandem/base/trace.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/matmul/product.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

using namespace ops;

namespace {

/// Whether products of the autocast dtype have float32 results on `device`.
bool has_float32_gradients(Device device) {
  return !device.is_cpu() ||
         (dtype_for(CastPolicy::kLowPrecision, kFloat32) == kBFloat16 && is_available(GemmAlgorithm::kAvx512Bf16));
}

/// The operands of a linear layer under autocast. Casts are recorded, except those of float32 parameters if products
/// have float32 results: then the node has the parameters themselves as inputs, and writes their gradients in float32
/// into their slots.
struct LinearOperands {
  Tensor x;
  Tensor weight, bias;          ///< inputs of the node
  Tensor low_weight, low_bias;  ///< operands of the kernel

  LinearOperands(const Tensor& x_argument, const Tensor& weight_argument, const Tensor& bias_argument)
      : x(x_argument), weight(weight_argument), bias(bias_argument) {
    const auto is_float32 = [](const Tensor& tensor) { return tensor.defined() && tensor.dtype() == kFloat32; };
    if (is_float32(weight) && has_float32_gradients(weight.device()) && (is_float32(bias) || !bias.defined())) {
      cast_for(CastPolicy::kLowPrecision, {&x});
      low_weight = weight;
      low_bias = bias;
      const NoGradGuard no_grad;
      cast_for(CastPolicy::kLowPrecision, {&low_weight, &low_bias});
    } else {
      cast_for(CastPolicy::kLowPrecision, {&x, &weight, &bias});
      low_weight = weight;
      low_bias = bias;
    }
  }
};

/// Checks and forward of linear layers. `epilogue` is given without tensors; `before_gelu` becomes its tensor of that
/// name, unless null.
Tensor linear_forward(const char* op, const LinearOperands& operands_in, Epilogue epilogue = {},
                      Tensor* before_gelu = nullptr) {
  const Tensor &x = operands_in.x, &weight = operands_in.low_weight, &bias = operands_in.low_bias;
  const Call call(op, {{"x", x}, {"weight", weight}, {"bias", bias, kOptional}}, DTypes::kSameFloating);
  call.require(weight.dim() == 2, "weight must have 2 dimensions, [out, in]");
  call.require(x.dim() >= 1 && x.shape().back() == weight.shape()[1], "the last dimension of x must have size ",
               weight.shape()[1]);
  call.require(!bias.defined() || (bias.dim() == 1 && bias.shape()[0] == weight.shape()[0]), "bias must have shape [",
               weight.shape()[0], "]");
  Shape shape = x.shape();
  shape.back() = weight.shape()[0];
  const Tensor out = empty(shape, x.options());
  epilogue.bias = bias;
  if (before_gelu != nullptr) epilogue.before_gelu = *before_gelu = empty(shape, x.options());
  multiply(call, rows_of(x), matrix(weight).t(), 1, 0, out, epilogue);
  return out;
}

/// The gradients of x, weight and bias of y = x @ weight^T + bias for the gradient `grad` of y; bias_grad is already
/// written.
struct LinearNodeBase : Node {
  SavedTensor x{*this, "x"}, weight{*this, "weight"}, low_weight{*this, "weight"};
  Shape x_shape, weight_shape;
  DType weight_dtype = kFloat32, bias_dtype = kFloat32;

  void save(const LinearOperands& operands) {
    if (operands.weight.requires_grad()) x.save(operands.x);
    if (operands.x.requires_grad()) {
      weight.save(operands.weight);
      low_weight.save(operands.low_weight);
    }
    x_shape = operands.x.shape();
    weight_shape = operands.weight.shape();
    weight_dtype = operands.weight.dtype();
    if (operands.bias.defined()) bias_dtype = operands.bias.dtype();
  }

  void operand_gradients(BackwardContext& context, const Tensor& grad, TensorList& grads) {
    if (context.create_graph()) {
      if (context.needs(0)) grads[0] = matmul(grad, to(weight.get(), grad.dtype())).reshape(x_shape);
      if (context.needs(1)) grads[1] = to(matmul(flat_rows(grad).t(), flat_rows(x.get())), weight_dtype);
      return;
    }
    const KernelContext kernels = kernel_context(grad.device());
    if (context.needs(1)) {  // first, because its communication can overlap the gradient of x
      grads[1] = matmul_gradient(kernels, context, 1, weight_shape, weight_dtype, rows_of(grad).t(), rows_of(x.get()));
      context.notify_ready(1, grads[1]);
    }
    if (context.needs(0)) {
      grads[0] = matmul_gradient(kernels, context, 0, x_shape, grad.dtype(), rows_of(grad), matrix(low_weight.get()));
    }
  }

  bool needs_bias(const BackwardContext& context) const { return num_inputs() == 3 && context.needs(2); }
  /// The gradient of bias under create_graph.
  Tensor recorded_bias_gradient(const Tensor& grad) const {
    return to(sum_to_shape(grad, {weight_shape[0]}), bias_dtype);
  }

  /// All gradients of a linear layer with an activation, in whose gradient's pass the gradient of bias is summed;
  /// `recorded` is the gradient of the activation's argument under create_graph.
  TensorList activation_gradients(BackwardContext& context, FusedActivation activation, const Tensor& saved,
                                  FunctionRef<Tensor()> recorded) {
    TensorList grads(num_inputs());
    if (context.create_graph()) {
      const Tensor grad = recorded();
      operand_gradients(context, grad, grads);
      if (needs_bias(context)) grads[2] = recorded_bias_gradient(grad);
      return grads;
    }
    operand_gradients(
        context, activation_gradient(context, activation, rows_of(row_major(context.grad())), saved, bias_dtype, grads),
        grads);
    return grads;
  }
};

template <class N>
N* record_linear(const char* op, const Tensor& out, const LinearOperands& operands) {
  return operands.bias.defined() ? autograd::record<N>(op, out, operands.x, operands.weight, operands.bias)
                                 : autograd::record<N>(op, out, operands.x, operands.weight);
}

struct LinearNode : LinearNodeBase {
  TensorList backward(BackwardContext& context) override {
    TensorList grads(num_inputs());
    if (needs_bias(context)) {
      if (context.create_graph()) {
        grads[2] = recorded_bias_gradient(context.grad());
      } else {
        grads[2] = sum_rows_gradient(context, 2, bias_dtype, rows_of(row_major(context.grad())));
        context.notify_ready(2, grads[2]);
      }
    }
    operand_gradients(context, context.grad(), grads);
    return grads;
  }
};

/// f(weight, bias) for a weight [in] as a matrix of one output feature, whose dimension the result lacks.
template <class F>
Tensor with_one_feature(const Tensor& weight, const Tensor& bias, F f) {
  const bool adds_number = bias.defined() && bias.dim() == 0;
  return f(weight.unsqueeze(0), adds_number ? bias.unsqueeze(0) : bias).squeeze(-1);
}

/// linear, also as a part of operation `op`.
Tensor recorded_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined() && weight.dim() == 1) {
    return with_one_feature(weight, bias,
                            [&](const Tensor& w, const Tensor& b) { return recorded_linear(op, x, w, b); });
  }
  const LinearOperands operands(x, weight, bias);
  const Tensor out = linear_forward(op, operands);
  if (auto* node = record_linear<LinearNode>(op, out, operands)) node->save(operands);
  return out;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return recorded_linear("linear", x, weight, bias);
}

Tensor linear_relu(const Tensor& x_argument, const Tensor& weight_argument, const Tensor& bias_argument) {
  if (weight_argument.defined() && weight_argument.dim() == 1) {
    return with_one_feature(weight_argument, bias_argument,
                            [&](const Tensor& w, const Tensor& b) { return linear_relu(x_argument, w, b); });
  }
  const LinearOperands operands(x_argument, weight_argument, bias_argument);
  const Tensor out = linear_forward("linear_relu", operands, {.relu = true});

  struct LinearReluNode : LinearNodeBase {
    SavedTensor output{*this, "output"};

    TensorList backward(BackwardContext& context) override {
      const Tensor result = output.get();
      return activation_gradients(context, FusedActivation::kRelu, result,
                                  [&] { return ops::relu_backward(context.grad(), result.detach()); });
    }
  };
  if (auto* node = record_linear<LinearReluNode>("linear_relu", out, operands)) {
    node->save(operands);
    node->output.save(out);
  }
  return out;
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, GeluApproximation approximation) {
  const bool is_half_on_gpu =
      x.defined() && !x.device().is_cpu() && is_half(dtype_for(CastPolicy::kLowPrecision, x.dtype()));
  const bool is_recorded = autograd::should_record(x, weight, bias);
  // Backward without a gradient of weight does not need x, but that of the fused operation does for create_graph.
  if (approximation != GeluApproximation::kTanh || !is_half_on_gpu || !weight.defined() || weight.dim() != 2 ||
      (is_recorded && !weight.requires_grad())) {
    return gelu(recorded_linear("linear_gelu", x, weight, bias), approximation);
  }
  const LinearOperands operands(x, weight, bias);
  Tensor before_gelu;
  const Tensor out = linear_forward("linear_gelu", operands, {.gelu = true}, is_recorded ? &before_gelu : nullptr);

  struct LinearGeluNode : LinearNodeBase {
    SavedTensor bias{*this, "bias"}, before_gelu{*this, "before_gelu"};

    TensorList backward(BackwardContext& context) override {
      const Tensor argument = before_gelu.get();
      return activation_gradients(context, FusedActivation::kGeluTanh, argument, [&] {
        const DType dtype = argument.dtype();
        const Tensor offset = num_inputs() == 3 ? to(bias.get(), dtype) : Tensor();
        return ops::gelu_backward(context.grad(), linear(x.get(), to(weight.get(), dtype), offset),
                                  GeluApproximation::kTanh);
      });
    }
  };
  if (auto* node = record_linear<LinearGeluNode>("linear_gelu", out, operands)) {
    node->save(operands);
    if (!operands.x.requires_grad()) node->weight.save(operands.weight);
    node->bias.save(operands.bias);
    node->before_gelu.save(before_gelu);
  }
  return out;
}

}}  // namespace tandem::v0

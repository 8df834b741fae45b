#include <limits>
#include <optional>
#include <utility>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/norm/norm_common.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/ops/reduce.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

struct LayerNormArguments {
  Tensor input, weight, bias;
  const Shape& normalized_shape;
  double eps;
  bool low_precision_result;
  bool centres = true;  ///< false: rms_norm
  bool adds_other = false;
  Tensor other = {};  ///< is added to the input

  /// The dtype of the result.
  DType result() const {
    return low_precision_result ? dtype_for(CastPolicy::kLowPrecision, input.dtype()) : input.dtype();
  }
};

Call check_layer_norm(const char* op, LayerNormArguments& a) {
  Call call(op, CastPolicy::kFloat32,
            {{"input", &a.input},
             {"other", a.other, !a.adds_other},
             {"weight", &a.weight, kOptional},
             {"bias", &a.bias, kOptional}},
            DTypes::kFloating);
  check_eps(op, a.eps);
  const Shape &shape = a.input.shape(), &normalized = a.normalized_shape;
  const size_t dims = normalized.size(), all = shape.size();
  call.require(dims > 0 && dims <= all && Shape(shape.begin() + (all - dims), shape.end()) == normalized,
               "input must end in normalized_shape ", normalized);
  for (size_t i = a.adds_other ? 2 : 1; i < call.operands.size(); ++i) {
    const Operand& parameter = call.operands[i];
    check_same_dtype(op, {call.operands[0], parameter});
    call.require(parameter.tensor.shape() == normalized, parameter.name, " must have shape ", normalized);
  }
  call.require(num_elements(normalized) > 0, "normalized_shape has a size of 0");
  if (a.adds_other) {
    check_floating(op, call.operands[1]);
    call.require(a.other.shape() == shape, "input and other must have the same shape");
  }
  return call;
}

struct LayerNormNode : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"}, statistics{*this, "statistics"};
  Shape normalized_shape;
  double eps = 0;
  bool centres = true;

  TensorList backward(BackwardContext& context) override {
    TensorList grads(3);
    const Tensor x = input.get(), weights = weight.get();
    if (context.create_graph()) {
      Shape normalized, outer;
      for (int64_t d = 0; d < x.dim(); ++d) {
        (d < x.dim() - normalized_shape.dim() ? outer : normalized).push_back(d);
      }
      const Tensor g = to(context.grad(), x.dtype());
      const auto sum_outer = [&](const Tensor& tensor) { return outer.empty() ? tensor : sum(tensor, outer); };
      Tensor normal;
      grads[0] =
          recorded_gradient(x, weights.defined() ? mul(g, weights) : g, normalized, eps, {}, {}, normal, centres);
      if (context.needs(1)) grads[1] = sum_outer(mul(g, normal));
      if (context.needs(2)) grads[2] = sum_outer(g);
      return grads;
    }
    const int64_t row_size = num_elements(normalized_shape), num_rows = x.numel() / row_size;
    const Tensor dense_x = row_major(x), grad = row_major(context.grad()), dense_weight = row_major(weights);
    const KernelContext kernels = kernel_context(x.device());
    const int64_t num_bytes = TANDEM_KERNEL(kernels, layer_norm_workspace_bytes, x.dtype(), num_rows, row_size);
    const Tensor workspace = scratch_memory(num_bytes, x.device());
    LayerNormGradients gradients = {};
    if (context.needs(0)) {
      const auto [out, accumulate] = context.grad_buffer(0, x.shape(), x.dtype());
      grads[0] = out;
      gradients.in = out.data_ptr();
      gradients.accumulate_in = accumulate;
    }
    const auto parameter = [&](int i, void*& slot, bool& accumulate) {
      if (!context.needs(i)) return;
      const auto buffer = context.grad_buffer(i, normalized_shape, x.dtype());
      grads[static_cast<size_t>(i)] = buffer.tensor;
      slot = buffer.tensor.data_ptr();
      accumulate = buffer.accumulate;
    };
    parameter(1, gradients.weight, gradients.accumulate_weight);
    parameter(2, gradients.bias, gradients.accumulate_bias);
    TANDEM_KERNEL(kernels, layer_norm_backward, x.dtype(), grad.dtype(), centres, num_rows, row_size,
                  dense_x.data_ptr(), data_or_null(dense_weight), statistics.get().data_ptr(), grad.data_ptr(),
                  data_or_null(workspace), gradients);
    return grads;
  }
};

/// Normalizes the rows of the input; or those of input + other, which it writes to `sum`, if they are defined.
Tensor normalize_rows(const Call& call, const LayerNormArguments& a, const Tensor& sum = {}) {
  const int64_t n = num_elements(a.normalized_shape), rows = a.input.numel() / n;
  const Tensor dense = row_major(a.input), added = row_major(a.other);
  const Tensor weights = row_major(a.weight), biases = row_major(a.bias);
  const Tensor out = empty(a.input.shape(), {a.result(), call.device});
  const Tensor statistics =
      empty({rows, kLayerNormStatistics}, {a.input.dtype() == kFloat64 ? kFloat64 : kFloat32, call.device});
  TANDEM_KERNEL(call, layer_norm, a.input.dtype(), out.dtype(), a.centres, rows, n, a.eps, dense.data_ptr(),
                data_or_null(added), data_or_null(weights), data_or_null(biases), data_or_null(sum),
                statistics.data_ptr(), out.data_ptr());
  const Tensor& normalized = sum.defined() ? sum : a.input;
  if (auto* node = autograd::record<LayerNormNode>(call.op, out, normalized, a.weight, a.bias)) {
    node->input.save(normalized);
    node->weight.save(a.weight);
    node->statistics.save(statistics);
    node->normalized_shape = a.normalized_shape;
    node->eps = a.eps;
    node->centres = a.centres;
  }
  return out;
}

}  // namespace

Tensor layer_norm(Tensor input, const Shape& normalized_shape, Tensor weight, Tensor bias, double eps,
                  bool low_precision_result) {
  LayerNormArguments a = {std::move(input),    std::move(weight), std::move(bias), normalized_shape, eps,
                          low_precision_result};
  const Call call = check_layer_norm("layer_norm", a);
  if (a.result() != a.input.dtype() && call.device.is_cpu())
    return to(layer_norm(a.input, normalized_shape, a.weight, a.bias, eps), a.result());
  return normalize_rows(call, a);
}

Tensor rms_norm(Tensor input, const Shape& normalized_shape, Tensor weight, std::optional<double> eps) {
  const bool is_float64 = input.defined() && input.dtype() == kFloat64;
  const double smallest = is_float64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  LayerNormArguments a = {
      std::move(input), std::move(weight), {}, normalized_shape, eps.value_or(smallest), false, false};
  return normalize_rows(check_layer_norm("rms_norm", a), a);
}

std::pair<Tensor, Tensor> add_layer_norm(Tensor input, const Tensor& other, const Shape& normalized_shape,
                                         Tensor weight, Tensor bias, double eps, bool low_precision_result) {
  LayerNormArguments a = {std::move(input),
                          std::move(weight),
                          std::move(bias),
                          normalized_shape,
                          eps,
                          low_precision_result,
                          true,
                          true,
                          other};
  const Call call = check_layer_norm("add_layer_norm", a);
  if (other.dtype() != a.result() || (a.result() != a.input.dtype() && call.device.is_cpu())) {
    const Tensor sum = add(a.input, to(other, a.input.dtype()));
    return {sum, layer_norm(sum, normalized_shape, a.weight, a.bias, eps, low_precision_result)};
  }
  const Tensor sum = empty(a.input.shape(), a.input.options());
  record_sum("add_layer_norm", sum, a.input, other);
  return {sum, normalize_rows(call, a, sum)};
}

}}  // namespace tandem::v0

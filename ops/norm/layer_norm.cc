#include <limits>
#include <optional>
#include <utility>
#include <vector>

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

  /// The dtype of the result.
  DType result() const {
    return low_precision_result ? dtype_for(CastPolicy::kLowPrecision, input.dtype()) : input.dtype();
  }
};

/// `other` is added to the input, or null.
KernelContext check_layer_norm(const char* op, const LayerNormArguments& a, const Tensor* other = nullptr) {
  std::vector<Operand> operands, parameters;
  operands.reserve(4);
  parameters.reserve(2);
  operands.push_back({"input", a.input});
  if (other != nullptr) operands.push_back({"other", *other});
  if (a.weight.defined()) parameters.push_back({"weight", a.weight});
  if (a.bias.defined()) parameters.push_back({"bias", a.bias});
  for (const Operand& parameter : parameters) operands.push_back(parameter);
  KernelContext context = check_same_device(op, operands);
  check_floating(op, operands.front());
  check_eps(op, a.eps);
  const Shape &shape = a.input.shape(), &normalized = a.normalized_shape;
  const size_t dims = normalized.size(), all = shape.size();
  TANDEM_CHECK(ShapeError, dims > 0 && dims <= all && Shape(shape.begin() + (all - dims), shape.end()) == normalized,
               operand_error(op, str("input must end in normalized_shape ", normalized), operands));
  for (const Operand& parameter : parameters) {
    check_same_dtype(op, {operands.front(), parameter});
    TANDEM_CHECK(ShapeError, parameter.tensor.shape() == normalized,
                 operand_error(op, str(parameter.name, " must have shape ", normalized), operands));
  }
  TANDEM_CHECK(ShapeError, num_elements(normalized) > 0,
               operand_error(op, "normalized_shape has a size of 0", operands));
  if (other != nullptr) {
    check_floating(op, operands[1]);
    TANDEM_CHECK(ShapeError, other->shape() == shape,
                 operand_error(op, "input and other must have the same shape", operands));
  }
  return context;
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
      grads[0] = context.sum_so_far(0);
      gradients.accumulate_in = grads[0].defined();
      if (!gradients.accumulate_in) grads[0] = empty(x.shape(), x.options());
      gradients.in = grads[0].data_ptr();
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
Tensor normalize_rows(const char* op, const KernelContext& context, const LayerNormArguments& a,
                      const Tensor& other = {}, const Tensor& sum = {}) {
  const int64_t n = num_elements(a.normalized_shape), rows = a.input.numel() / n;
  const Tensor dense = row_major(a.input), added = row_major(other);
  const Tensor weights = row_major(a.weight), biases = row_major(a.bias);
  const Tensor out = empty(a.input.shape(), {a.result(), context.device});
  const Tensor statistics =
      empty({rows, kLayerNormStatistics}, {a.input.dtype() == kFloat64 ? kFloat64 : kFloat32, context.device});
  TANDEM_KERNEL(context, layer_norm, a.input.dtype(), out.dtype(), a.centres, rows, n, a.eps, dense.data_ptr(),
                data_or_null(added), data_or_null(weights), data_or_null(biases), data_or_null(sum),
                statistics.data_ptr(), out.data_ptr());
  const Tensor& normalized = sum.defined() ? sum : a.input;
  if (auto* node = autograd::record<LayerNormNode>(op, out, normalized, a.weight, a.bias)) {
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
  cast_for(CastPolicy::kFloat32, {&input, &weight, &bias});
  const LayerNormArguments a = {input, weight, bias, normalized_shape, eps, low_precision_result};
  const KernelContext context = check_layer_norm("layer_norm", a);
  if (a.result() != input.dtype() && context.device.is_cpu())
    return to(layer_norm(input, normalized_shape, weight, bias, eps), a.result());
  return normalize_rows("layer_norm", context, a);
}

Tensor rms_norm(Tensor input, const Shape& normalized_shape, Tensor weight, std::optional<double> eps) {
  cast_for(CastPolicy::kFloat32, {&input, &weight});
  const bool is_float64 = input.defined() && input.dtype() == kFloat64;
  const double smallest = is_float64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const LayerNormArguments a = {input, weight, {}, normalized_shape, eps.value_or(smallest), false, false};
  const KernelContext context = check_layer_norm("rms_norm", a);
  return normalize_rows("rms_norm", context, a);
}

std::pair<Tensor, Tensor> add_layer_norm(Tensor input, const Tensor& other, const Shape& normalized_shape,
                                         Tensor weight, Tensor bias, double eps, bool low_precision_result) {
  cast_for(CastPolicy::kFloat32, {&input, &weight, &bias});
  const LayerNormArguments a = {input, weight, bias, normalized_shape, eps, low_precision_result};
  const KernelContext context = check_layer_norm("add_layer_norm", a, &other);
  if (other.dtype() != a.result() || (a.result() != input.dtype() && context.device.is_cpu())) {
    const Tensor sum = add(input, to(other, input.dtype()));
    return {sum, layer_norm(sum, normalized_shape, weight, bias, eps, low_precision_result)};
  }
  const Tensor sum = empty(input.shape(), input.options());
  record_sum("add_layer_norm", sum, input, other);
  return {sum, normalize_rows("add_layer_norm", context, a, other, sum)};
}

}}  // namespace tandem::v0

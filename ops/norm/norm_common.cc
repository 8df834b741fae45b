#include <tandem/ops/norm/norm_common.h>

#include <cmath>

#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>

namespace tandem { inline namespace v0 { namespace ops {

using autograd::BackwardContext;

void check_eps(const char* op, double eps) {
  TANDEM_CHECK(ValueError, eps >= 0 && std::isfinite(eps), op, ": eps is ", eps, ", expected a finite number >= 0");
}

Tensor in_order(const Tensor& tensor, const BatchNormShape& shape) {
  return shape.channels_last && tensor.dim() == 4 ? ops::channels_last(tensor) : row_major(tensor);
}

Tensor empty_in_order(const Tensor& like, const BatchNormShape& shape) {
  return shape.channels_last && like.dim() == 4 ? empty_channels_last(like.shape(), like.options())
                                                : empty(like.shape(), like.options());
}

BatchNormShape batch_norm_shape(const Tensor& input) {
  const Shape& shape = input.shape();
  const int64_t channels = shape[1];
  int64_t inner = 1;
  for (size_t d = 2; d < shape.size(); ++d) inner *= shape[d];
  const bool channels_last = inner == 1 || (is_channels_last(input) && !(channels == 1 && input.is_contiguous()));
  return {shape[0], channels, inner, channels_last};
}

DType parameter_dtype(const BatchNormArguments& a) {
  return a.weight.defined() ? a.weight.dtype() : a.bias.defined() ? a.bias.dtype() : a.input.dtype();
}

Call check_batch_norm(const char* op, const BatchNormArguments& a, Tail tail, int64_t (*values)(const Shape& shape)) {
  const size_t num_inputs = tail == Tail::kAddRelu ? 2 : 1;
  Call call(op,
            {{"input", a.input},
             {"residual", a.residual, num_inputs == 1},
             {"running_mean", a.running_mean, kOptional},
             {"running_var", a.running_var, kOptional},
             {"weight", a.weight, kOptional},
             {"bias", a.bias, kOptional}},
            DTypes::kFloating);
  call.require(a.input.dim() >= 2, "input must be [N, C] or [N, C, ...]");
  call.require(num_inputs == 1 || a.residual.shape() == a.input.shape(), "input and residual must have the same shape");
  call.require<DTypeError>(num_inputs == 1 || a.residual.dtype() == a.input.dtype(),
                           "input and residual must have the same dtype");
  const Shape per_channel = {a.input.shape()[1]};
  for (size_t i = num_inputs; i < call.operands.size(); ++i) {
    const Operand& operand = call.operands[i];
    call.require(operand.tensor.shape() == per_channel, operand.name, " must have shape ", per_channel);
    const bool is_running = operand.name[0] == 'r', may_be_float32 = is_half(a.input.dtype());
    const DType dtype = operand.tensor.dtype();
    const bool fits = dtype == a.input.dtype() || (may_be_float32 && dtype == kFloat32);
    call.require<DTypeError>(is_running ? is_floating_point(dtype) : fits && dtype == parameter_dtype(a), operand.name,
                             is_running       ? " must be floating"
                             : may_be_float32 ? " must have input's dtype or be float32"
                                              : " must have input's dtype");
    call.require<StateError>(!is_running || !a.training || per_channel[0] < 2 || operand.tensor.strides()[0] != 0,
                             operand.name, " is expanded, its elements share memory: clone it first");
  }
  check_eps(op, a.eps);
  TANDEM_CHECK(ValueError, a.momentum >= 0 && a.momentum <= 1, op, ": momentum is ", a.momentum,
               ", expected a number from 0 to 1");
  TANDEM_CHECK(StateError, a.training || (a.running_mean.defined() && a.running_var.defined()), op,
               ": without training, running_mean and running_var must be defined");
  if (values != nullptr) {
    const int64_t count = values(a.input.shape());
    call.require(count >= 2, "training needs at least two values per channel, got ", count);
  }
  return call;
}

Tensor batch_norm_workspace(const KernelContext& context, const BatchNormShape& shape) {
  return scratch_memory(TANDEM_KERNEL(context, batch_norm_workspace_bytes, shape), context.device);
}

double* row_of(const Tensor& rows, int64_t row) { return rows.data<double>() + row * rows.shape()[1]; }

RunningStatistics::RunningStatistics(const Tensor& mean, const Tensor& var, double momentum, BatchNormUpdate& update)
    : running_{mean, var}, dense_{row_major(mean), row_major(var)} {
  update.momentum = momentum;
  update.running_mean = data_or_null(dense_[0]);
  update.running_var = data_or_null(dense_[1]);
  if (mean.defined()) update.mean_dtype = mean.dtype();
  if (var.defined()) update.var_dtype = var.dtype();
}

void RunningStatistics::finish(const char* op) {
  for (int i = 0; i < 2; ++i) {
    if (!running_[i].defined()) continue;
    if (!dense_[i].is_same(running_[i])) primitives::copy(dense_[i], running_[i]);
    autograd::end_in_place(op, running_[i]);
  }
}

Tensor parameter_slot(BackwardContext& context, int i, int64_t n, BatchNormParameters& slots) {
  if (!context.needs(i)) return {};
  const BackwardContext::GradBuffer buffer = context.grad_buffer(i, {n}, slots.dtype);
  (i == 1 ? slots.weight : slots.bias) = buffer.tensor.data_ptr();
  (i == 1 ? slots.accumulate_weight : slots.accumulate_bias) = buffer.accumulate;
  return buffer.tensor;
}

Tensor recorded_gradient(const Tensor& x, const Tensor& g, const Shape& dims, double eps, Tensor mean_value,
                         Tensor rstd, Tensor& normal, bool centres) {
  const bool fixed = mean_value.defined();
  const auto centred = [&](const Tensor& tensor) { return centres ? sub(tensor, mean(tensor, dims, true)) : tensor; };
  const Tensor deviation = fixed ? sub(x, mean_value) : centred(x);
  if (!fixed) rstd = rsqrt(add(mean(mul(deviation, deviation), dims, true), eps));
  normal = mul(deviation, rstd);
  if (fixed) return mul(g, rstd);
  return mul(rstd, sub(centred(g), mul(normal, mean(mul(g, normal), dims, true))));
}

}}}  // namespace tandem::v0::ops

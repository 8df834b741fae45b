// Losses of pairs of elements.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/elementwise/elementwise_op.h>
#include <tandem/ops/loss/loss_functions.h>
#include <tandem/ops/loss/loss_operands.h>
#include <tandem/ops/reduce.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::SavedTensor;

namespace ops {

LossCall::LossCall(const char* name, Arguments arguments) : Call(name, CastPolicy::kFloat32, arguments) {
  dtype = operands[0].tensor.dtype();
  const auto is_converted = [](const Argument& argument) {
    return argument.variable != nullptr && argument.tensor->defined();
  };
  for (const Argument& argument : arguments) {
    if (!is_converted(argument)) continue;
    check_floating(name, {argument.name, *argument.tensor});
    dtype = promote(dtype, argument.tensor->dtype());
  }
  for (const Argument& argument : arguments) {
    if (is_converted(argument)) *argument.variable = to(*argument.tensor, promote(dtype, kFloat32));
  }
}

void LossCall::check_same_shape() const {
  if (operands[0].tensor.shape() != operands[1].tensor.shape())
    fail<ShapeError>(op, {operands.data(), 2}, "shapes differ");
}

Tensor LossCall::result(const Tensor& losses, Reduction reduction) const {
  return to(reduce(op, losses, reduction), dtype);
}

Tensor reduce(const char* op, const Tensor& losses, Reduction reduction) {
  TANDEM_CHECK(ValueError, reduction != Reduction::kBatchMean, op, ": kBatchMean is a reduction of kl_div only");
  return reduction == Reduction::kNone ? losses : reduction == Reduction::kMean ? mean(losses) : sum(losses);
}

}  // namespace ops

using namespace ops;

Tensor mse_loss(Tensor input, Tensor target, Reduction reduction) {
  const LossCall call("mse_loss", {{"input", &input}, {"target", &target}});
  call.check_same_shape();
  Tensor out;
  {
    const NoGradGuard no_grad;
    const Tensor difference = sub(input, target);
    out = reduce("mse_loss", mul(difference, difference), reduction);
  }
  const int64_t count = reduction == Reduction::kMean ? std::max<int64_t>(1, input.numel()) : 1;
  const auto gradients = [count](BackwardContext& context, const SavedTensor& x, const SavedTensor& y) {
    const Tensor slope = mul(sub(x.get(), y.get()), mul(context.grad(), 2 / static_cast<double>(count)));
    return TensorList{context.needs(0) ? slope : Tensor(), context.needs(1) ? neg(slope) : Tensor()};
  };
  record_gradient("mse_loss", out, {&input, &target}, {{"input", input}, {"target", target}}, gradients);
  return to(out, call.dtype);
}

namespace {

/// The loss of the difference of input and target.
Tensor difference_loss(const char* op, Tensor input, Tensor target, Reduction reduction, double threshold, double slope,
                       double parabola) {
  const LossCall call(op, {{"input", &input}, {"target", &target}});
  call.check_same_shape();
  return call.result(unary(functions::Huber{{}, threshold, slope, parabola}, sub(input, target)), reduction);
}

}  // namespace

Tensor l1_loss(Tensor input, Tensor target, Reduction reduction) {
  return difference_loss("l1_loss", std::move(input), std::move(target), reduction, 0, 1, 0);
}

Tensor smooth_l1_loss(Tensor input, Tensor target, Reduction reduction, double beta) {
  TANDEM_CHECK(ValueError, beta >= 0, "smooth_l1_loss: beta is ", beta, ", expected at least 0");
  return difference_loss("smooth_l1_loss", std::move(input), std::move(target), reduction, beta, 1,
                         beta > 0 ? 0.5 / beta : 0);
}

Tensor huber_loss(Tensor input, Tensor target, Reduction reduction, double delta) {
  TANDEM_CHECK(ValueError, delta > 0, "huber_loss: delta is ", delta, ", expected a positive number");
  return difference_loss("huber_loss", std::move(input), std::move(target), reduction, delta, delta, 0.5);
}

namespace {

/// `losses` times the optional weight; the shape of the losses must not change.
Tensor weighted(const char* op, const Tensor& losses, const Tensor& weight) {
  if (!weight.defined()) return losses;
  const Tensor result = mul(losses, weight);
  TANDEM_CHECK(ShapeError, result.shape() == losses.shape(),
               operand_error(op, str("weight does not broadcast to ", losses.shape()), {{"weight", weight}}));
  return result;
}

}  // namespace

Tensor functions::BinaryCrossEntropy::backward_a(const Tensor& grad, const Tensor& x, const Tensor& t) {
  return mul(grad, binary(BinaryCrossEntropySlope{}, x, t));
}

Tensor binary_cross_entropy(Tensor input, Tensor target, Tensor weight, Reduction reduction) {
  const char* op = "binary_cross_entropy";
  const LossCall call(op, {{"input", &input}, {"target", &target}, {"weight", &weight, kOptional}});
  call.check_same_shape();
  return call.result(weighted(op, binary(functions::BinaryCrossEntropy{}, input, target), weight), reduction);
}

Tensor binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor weight, Reduction reduction,
                                        Tensor pos_weight) {
  const char* op = "binary_cross_entropy_with_logits";
  const LossCall call(
      op,
      {{"input", &input}, {"target", &target}, {"weight", &weight, kOptional}, {"pos_weight", &pos_weight, kOptional}});
  call.check_same_shape();
  const auto losses_for = [&](const Tensor& t) { return binary(functions::BinaryCrossEntropyWithLogits{}, input, t); };
  Tensor losses;
  if (pos_weight.defined()) {
    const Tensor of_positive = weighted(op, losses_for(ones({}, input.options())), pos_weight);
    losses = add(mul(target, of_positive), mul(sub(1, target), losses_for(zeros({}, input.options()))));
  } else {
    losses = losses_for(target);
  }
  return call.result(weighted(op, losses, weight), reduction);
}

Tensor kl_div(Tensor input, Tensor target, Reduction reduction, bool log_target) {
  const LossCall call("kl_div", {{"input", &input}, {"target", &target}});
  call.check_same_shape();
  const Tensor losses = log_target ? mul(exp(target), sub(target, input)) : binary(functions::KlDiv{}, input, target);
  if (reduction != Reduction::kBatchMean) return call.result(losses, reduction);
  check_input("kl_div", input, input.dim() > 0, "kBatchMean needs at least one dimension");
  return to(div(sum(losses), static_cast<double>(input.size(0))), call.dtype);
}

Tensor gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full, double eps, Reduction reduction) {
  const char* op = "gaussian_nll_loss";
  TANDEM_CHECK(ValueError, eps > 0, "gaussian_nll_loss: eps is ", eps, ", expected a positive number");
  const LossCall call(op, {{"input", &input}, {"target", &target}, {"var", &var}});
  call.check_same_shape();
  Shape one_per_row = input.shape();
  if (!one_per_row.empty()) one_per_row.back() = 1;
  if (var.dim() + 1 == input.dim()) var = var.unsqueeze(-1);
  TANDEM_CHECK(ShapeError, var.shape() == input.shape() || var.shape() == one_per_row,
               operand_error(op, "var must have input's shape, with 1 as last size or without the last dimension",
                             {{"input", input}, {"var", var}}));
  const Tensor fixed = var.detach(), clamped = add(var, sub(clamp(fixed, eps), fixed)), difference = sub(input, target);
  const Tensor losses = mul(add(log(clamped), div(mul(difference, difference), clamped)), 0.5);
  return call.result(full ? add(losses, 0.5 * std::log(2 * std::numbers::pi)) : losses, reduction);
}

}}  // namespace tandem::v0

// Losses of pairs of elements.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/elementwise/elementwise_op.h>
#include <tandem/ops/loss/loss_functions.h>
#include <tandem/ops/loss/loss_operands.h>
#include <tandem/ops/reduce.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace ops {

LossScope prepare(const char* op, std::initializer_list<LossArgument> arguments) {
  std::vector<Operand> operands;
  for (const LossArgument& argument : arguments) {
    if (!argument.keeps_dtype) cast_for(CastPolicy::kFloat32, {argument.tensor});
    if (!argument.optional || argument.tensor->defined()) operands.push_back({argument.name, *argument.tensor});
  }
  LossScope scope{check_same_device(op, operands), operands[0].tensor.dtype()};
  const auto is_converted = [](const LossArgument& argument) {
    return argument.tensor->defined() && !argument.keeps_dtype;
  };
  for (const LossArgument& argument : arguments) {
    if (!is_converted(argument)) continue;
    check_floating(op, {argument.name, *argument.tensor});
    scope.dtype = promote(scope.dtype, argument.tensor->dtype());
  }
  for (const LossArgument& argument : arguments) {
    if (is_converted(argument)) *argument.tensor = to(*argument.tensor, promote(scope.dtype, kFloat32));
  }
  return scope;
}

void check_same_shape(const char* op, Operands operands) {
  const auto fits = [&](const Operand& operand) { return operand.tensor.shape() == operands.begin()->tensor.shape(); };
  TANDEM_CHECK(ShapeError, std::all_of(operands.begin(), operands.end(), fits),
               operand_error(op, "shapes differ", operands));
}

Tensor reduce(const char* op, const Tensor& losses, Reduction reduction) {
  TANDEM_CHECK(ValueError, reduction != Reduction::kBatchMean, op, ": kBatchMean is a reduction of kl_div only");
  return reduction == Reduction::kNone ? losses : reduction == Reduction::kMean ? mean(losses) : sum(losses);
}

}  // namespace ops

using namespace ops;

Tensor mse_loss(Tensor input, Tensor target, Reduction reduction) {
  const LossScope scope = prepare("mse_loss", {{"input", &input}, {"target", &target}});
  check_same_shape("mse_loss", {{"input", input}, {"target", target}});
  Tensor out;
  {
    const NoGradGuard no_grad;
    const Tensor difference = sub(input, target);
    out = reduce("mse_loss", mul(difference, difference), reduction);
  }

  struct MseLossNode : Node {
    SavedTensor input{*this, "input"}, target{*this, "target"};
    double factor = 2;

    TensorList backward(BackwardContext& context) override {
      const Tensor slope = mul(sub(input.get(), target.get()), mul(context.grad(), factor));
      TensorList grads(2);
      if (context.needs(0)) grads[0] = slope;
      if (context.needs(1)) grads[1] = neg(slope);
      return grads;
    }
  };
  if (auto* node = autograd::record<MseLossNode>("mse_loss", out, input, target)) {
    node->input.save(input);
    node->target.save(target);
    const int64_t count = reduction == Reduction::kMean ? std::max<int64_t>(1, input.numel()) : 1;
    node->factor = 2 / static_cast<double>(count);
  }
  return to(out, scope.dtype);
}

namespace {

/// The loss of the difference of input and target.
Tensor difference_loss(const char* op, Tensor input, Tensor target, Reduction reduction, double threshold, double slope,
                       double parabola) {
  const LossScope scope = prepare(op, {{"input", &input}, {"target", &target}});
  check_same_shape(op, {{"input", input}, {"target", target}});
  const Tensor losses = unary(functions::Huber{{}, threshold, slope, parabola}, sub(input, target));
  return to(reduce(op, losses, reduction), scope.dtype);
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
  const LossScope scope = prepare(op, {{"input", &input}, {"target", &target}, {"weight", &weight, true}});
  check_same_shape(op, {{"input", input}, {"target", target}});
  const Tensor losses = binary(functions::BinaryCrossEntropy{}, input, target);
  return to(reduce(op, weighted(op, losses, weight), reduction), scope.dtype);
}

Tensor binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor weight, Reduction reduction,
                                        Tensor pos_weight) {
  const char* op = "binary_cross_entropy_with_logits";
  const LossScope scope = prepare(
      op, {{"input", &input}, {"target", &target}, {"weight", &weight, true}, {"pos_weight", &pos_weight, true}});
  check_same_shape(op, {{"input", input}, {"target", target}});
  const auto losses_for = [&](const Tensor& t) { return binary(functions::BinaryCrossEntropyWithLogits{}, input, t); };
  Tensor losses;
  if (pos_weight.defined()) {
    const Tensor of_positive = weighted(op, losses_for(ones({}, input.options())), pos_weight);
    losses = add(mul(target, of_positive), mul(sub(1, target), losses_for(zeros({}, input.options()))));
  } else {
    losses = losses_for(target);
  }
  return to(reduce(op, weighted(op, losses, weight), reduction), scope.dtype);
}

Tensor kl_div(Tensor input, Tensor target, Reduction reduction, bool log_target) {
  const LossScope scope = prepare("kl_div", {{"input", &input}, {"target", &target}});
  check_same_shape("kl_div", {{"input", input}, {"target", target}});
  const Tensor losses = log_target ? mul(exp(target), sub(target, input)) : binary(functions::KlDiv{}, input, target);
  if (reduction != Reduction::kBatchMean) return to(reduce("kl_div", losses, reduction), scope.dtype);
  TANDEM_CHECK(ShapeError, input.dim() > 0,
               operand_error("kl_div", "kBatchMean needs at least one dimension", {{"input", input}}));
  return to(div(sum(losses), static_cast<double>(input.size(0))), scope.dtype);
}

Tensor gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full, double eps, Reduction reduction) {
  const char* op = "gaussian_nll_loss";
  TANDEM_CHECK(ValueError, eps > 0, "gaussian_nll_loss: eps is ", eps, ", expected a positive number");
  const LossScope scope = prepare(op, {{"input", &input}, {"target", &target}, {"var", &var}});
  check_same_shape(op, {{"input", input}, {"target", target}});
  Shape one_per_row = input.shape();
  if (!one_per_row.empty()) one_per_row.back() = 1;
  if (var.dim() + 1 == input.dim()) var = var.unsqueeze(-1);
  TANDEM_CHECK(ShapeError, var.shape() == input.shape() || var.shape() == one_per_row,
               operand_error(op, "var must have input's shape, with 1 as last size or without the last dimension",
                             {{"input", input}, {"var", var}}));
  const Tensor fixed = var.detach(), clamped = add(var, sub(clamp(fixed, eps), fixed)), difference = sub(input, target);
  const Tensor losses = mul(add(log(clamped), div(mul(difference, difference), clamped)), 0.5);
  return to(reduce(op, full ? add(losses, 0.5 * std::log(2 * std::numbers::pi)) : losses, reduction), scope.dtype);
}

}}  // namespace tandem::v0

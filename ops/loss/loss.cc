#include <tandem/ops/loss.h>

#include <cmath>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/loss/loss_kernels.h>
#include <tandem/ops/loss/loss_operands.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::SavedTensor;

namespace {

int64_t class_dim(const Tensor& input) { return input.dim() == 1 ? 0 : 1; }

/// Arguments of cross_entropy and nll_loss with labels: checks all but devices; returns the labels in row-major order.
Tensor checked_labels(const char* op, const KernelContext& context, const Tensor& input, const Tensor& target,
                      int64_t ignore_index) {
  const Operands operands = {{"input", input}, {"target", target}};
  Shape shape = input.shape();
  if (!shape.empty()) shape.erase(static_cast<size_t>(class_dim(input)));
  TANDEM_CHECK(DTypeError, target.dtype() == kInt64, operand_error(op, "target must be int64", operands));
  TANDEM_CHECK(ShapeError, input.dim() > 0 && target.shape() == shape,
               operand_error(op, "input must be [C] or [N, C, ...] and target have its shape without C", operands));
  const Tensor labels = row_major(target.detach());
  check_index_bounds(op, "label", context, labels, input.size(class_dim(input)), ignore_index);
  return labels;
}

/// `weight` [C] as a factor of tensors of input's shape; undefined if it is undefined.
Tensor per_class(const char* op, const Tensor& input, const Tensor& weight) {
  if (!weight.defined()) return {};
  TANDEM_CHECK(ShapeError, input.dim() > 0 && weight.shape() == Shape{input.size(class_dim(input))},
               operand_error(op, "weight must be [C]", {{"input", input}, {"weight", weight}}));
  Shape shape(input.shape().size(), 1);
  shape[static_cast<size_t>(class_dim(input))] = weight.size(0);
  return weight.detach().reshape(shape);
}

/// The reduced losses of labels for log-probabilities, with smoothed targets.
Tensor label_loss(const char* op, const Tensor& log_probs, const Tensor& labels, const Tensor& weight,
                  int64_t ignore_index, double smoothing, Reduction reduction) {
  const int64_t dim = class_dim(log_probs);
  const Tensor ignored = eq(labels, ignore_index), index = masked_fill(labels, ignored, 0).unsqueeze(dim);
  const Tensor class_weights = per_class(op, log_probs, weight);
  Tensor losses = neg(gather(log_probs, dim, index)), counts = ne(labels, ignore_index);
  if (weight.defined()) {
    const Tensor of_labels = gather(class_weights.expand(log_probs.shape()), dim, index);
    losses = mul(losses, of_labels);
    counts = masked_fill(of_labels.squeeze(dim), ignored, 0);
  }
  if (smoothing > 0) {
    const Tensor spread = sum(weight.defined() ? mul(log_probs, class_weights) : log_probs, {dim}, true);
    losses = sub(mul(losses, 1 - smoothing), spread, smoothing / static_cast<double>(log_probs.size(dim)));
  }
  losses = masked_fill(losses.squeeze(dim), ignored, 0);
  if (reduction != Reduction::kMean) return reduce(op, losses, reduction);
  const Tensor count = sum(counts), is_zero = eq(count, 0);
  return masked_fill(div(sum(losses), masked_fill(count, is_zero, 1)), is_zero, NAN);
}

/// cross_entropy with probabilities as target.
Tensor cross_entropy_of_probabilities(Tensor input, Tensor target, const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  Tensor weight = options.weight;
  const LossCall call(op, {{"input", &input}, {"target", &target}, {"weight", &weight, kOptional}});
  TANDEM_CHECK(ShapeError, input.dim() > 0 && target.shape() == input.shape(),
               operand_error(op, "target must be int64 labels, or probabilities of input's shape",
                             {{"input", input}, {"target", target}}));
  const int64_t dim = class_dim(input);
  if (options.label_smoothing > 0) {
    target =
        add(mul(target, 1 - options.label_smoothing), options.label_smoothing / static_cast<double>(input.size(dim)));
  }
  Tensor products = mul(log_softmax(input, dim), target);
  if (weight.defined()) products = mul(products, per_class(op, input, weight));
  return call.result(neg(sum(products, {dim})), options.reduction);
}

/// 1 at (i, labels[i]), else 0, with logits' shape and dtype; no gradient.
Tensor one_hot_like(const Tensor& logits, const Tensor& labels) {
  const Tensor classes = arange(0, logits.size(1), 1, logits.device());
  return to(eq(labels.unsqueeze(1), classes), logits.dtype());
}

/// The mean cross entropy, of `dtype`, of logits [N, C] and row-major labels [N], in one kernel. For half logits
/// `dtype` may be float32.
Tensor cross_entropy_of_rows(const KernelContext& context, const Tensor& logits, const Tensor& labels,
                             int64_t ignore_index, DType dtype) {
  const int64_t n = logits.shape()[0], classes = logits.shape()[1];
  const DType row_dtype = logits.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor shifts = empty({2 * n + 1}, {row_dtype, logits.device()});
  const Tensor losses = empty({n}, {kFloat64, logits.device()});
  const Tensor out = empty({}, {dtype, logits.device()});
  const Tensor dense = row_major(logits);
  TANDEM_KERNEL(context, cross_entropy_rows, logits.dtype(), n, classes, dense.data_ptr(), labels.data<int64_t>(),
                ignore_index, shifts.data_ptr(), losses.data<double>());
  TANDEM_KERNEL(context, mean_of_losses, dtype, n, labels.data<int64_t>(), ignore_index, losses.data<double>(),
                shifts.data_ptr(), out.data_ptr());
  const auto gradient = [n, classes, ignore_index](BackwardContext& backward, const SavedTensor& saved_logits,
                                                   const SavedTensor& saved_labels, const SavedTensor& saved_shifts) {
    const Tensor x = saved_logits.get(), targets = saved_labels.get(), saved = saved_shifts.get();
    const Tensor grad = to(backward.grad(), saved.dtype());
    if (backward.create_graph()) {
      const Tensor difference = sub(softmax(x, 1), one_hot_like(x, targets));
      const Tensor count = clamp(saved.select(0, 2 * n), 1);  // without labels, gradients are 0
      const Tensor scale = to(div(grad, count), x.dtype());
      return mul(difference, where(ne(targets, ignore_index), scale, 0).unsqueeze(1));
    }
    const Tensor grad_logits = backward.may_overwrite(x) ? x : empty(x.shape(), x.options());
    const Tensor rows = row_major(x);
    TANDEM_KERNEL(kernel_context(x.device()), cross_entropy_backward, x.dtype(), n, classes, rows.data_ptr(),
                  targets.data<int64_t>(), ignore_index, saved.data_ptr(), grad.data_ptr(), grad_logits.data_ptr());
    return grad_logits;
  };
  record_gradient("cross_entropy", out, {&logits}, {{"input", logits}, {"target", labels}, {"shifts", shifts}},
                  gradient);
  return out;
}

}  // namespace

Tensor cross_entropy(const Tensor& input_argument, const Tensor& target, const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  TANDEM_CHECK(ValueError, options.label_smoothing >= 0 && options.label_smoothing <= 1, op, ": label_smoothing is ",
               options.label_smoothing, ", expected 0 <= label_smoothing <= 1");
  if (target.defined() && is_floating_point(target.dtype())) {
    TANDEM_CHECK(ValueError, options.ignore_index < 0, op, ": ignore_index is ", options.ignore_index,
                 ", but target has probabilities, which have no labels to ignore");
    return cross_entropy_of_probabilities(input_argument, target, options);
  }
  Tensor input = input_argument, weight = options.weight;
  const bool is_plain = options.reduction == Reduction::kMean && options.label_smoothing == 0 && !weight.defined();
  if (is_plain && input.defined() && input.dim() == 2) {
    const Call call(op, {{"input", input}, {"target", target}}, DTypes::kFloating);
    const Tensor labels = checked_labels(op, call, input, target, options.ignore_index);
    // Under autocast the kernel reads half logits, and only the loss is float32.
    return cross_entropy_of_rows(call, input, labels, options.ignore_index,
                                 dtype_for(CastPolicy::kFloat32, input.dtype()));
  }
  const LossCall call(op, {{"input", &input}, {"target", target}, {"weight", &weight, kOptional}});
  const Tensor labels = checked_labels(op, call, input, target, options.ignore_index);
  const Tensor loss = label_loss(op, log_softmax(input, class_dim(input)), labels, weight, options.ignore_index,
                                 options.label_smoothing, options.reduction);
  return to(loss, call.dtype);
}

Tensor nll_loss(const Tensor& input_argument, const Tensor& target, const NllLossOptions& options) {
  Tensor input = input_argument, weight = options.weight;
  const LossCall call("nll_loss", {{"input", &input}, {"target", target}, {"weight", &weight, kOptional}});
  const Tensor labels = checked_labels("nll_loss", call, input, target, options.ignore_index);
  return to(label_loss("nll_loss", input, labels, weight, options.ignore_index, 0, options.reduction), call.dtype);
}

}}  // namespace tandem::v0

#include <tandem/ops/loss.h>

#include <algorithm>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/loss/loss_kernels.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// 1 at (i, labels[i]), else 0, with logits' shape and dtype; no gradient.
Tensor one_hot_like(const Tensor& logits, const Tensor& labels) {
  const Tensor classes = arange(0, logits.size(1), 1, logits.device());
  return to(eq(labels.unsqueeze(1), classes), logits.dtype());
}

/// Checks everything except devices; returns the labels in row-major order.
Tensor checked_labels(const char* op, const KernelContext& context, Operand rows, const Tensor& labels_argument) {
  const Operands operands = {rows, {"labels", labels_argument}};
  const Shape& shape = rows.tensor.shape();
  check_floating(op, rows);
  TANDEM_CHECK(DTypeError, labels_argument.dtype() == kInt64, operand_error(op, "labels must be int64", operands));
  TANDEM_CHECK(ShapeError, shape.dim() == 2 && labels_argument.dim() == 1 && shape[0] == labels_argument.shape()[0],
               operand_error(op, str(rows.name, " must be [N, C] and labels [N]"), operands));
  const Tensor labels = row_major(labels_argument.detach());
  check_index_bounds(op, "label", context, labels, shape[1]);
  return labels;
}

bool is_half(DType dtype) { return size_of(dtype) == 2; }

}  // namespace

Tensor cross_entropy(const Tensor& logits_argument, const Tensor& labels_argument) {
  Tensor logits = logits_argument;
  cast_for(CastPolicy::kFloat32, {&logits});
  const Operands operands = {{"logits", logits}, {"labels", labels_argument}};
  const KernelContext context = check_same_device("cross_entropy", operands);
  const Tensor labels = checked_labels("cross_entropy", context, {"logits", logits}, labels_argument);
  const int64_t n = logits.shape()[0], classes = logits.shape()[1];

  const DType row_dtype = logits.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor shifts = empty({n, 2}, {row_dtype, logits.device()});
  const Tensor losses = empty({n}, {kFloat64, logits.device()});
  const Tensor out = empty({}, logits.options());
  const Tensor dense = row_major(logits);
  TANDEM_KERNEL(context, cross_entropy_rows, logits.dtype(), n, classes, dense.data_ptr(), labels.data<int64_t>(),
                shifts.data_ptr(), losses.data<double>());
  TANDEM_KERNEL(context, mean_of_losses, logits.dtype(), n, losses.data<double>(), out.data_ptr());

  struct CrossEntropyNode : Node {
    SavedTensor logits{*this, "logits"}, labels{*this, "labels"}, shifts{*this, "shifts"};

    TensorList backward(BackwardContext& context) override {
      const Tensor x = logits.get(), targets = labels.get();
      const Tensor& grad = context.grad();
      const int64_t rows = x.shape()[0];
      if (context.create_graph()) {
        const Tensor difference = sub(softmax(x, 1), one_hot_like(x, targets));
        return {mul(difference, div(grad, static_cast<double>(std::max<int64_t>(1, rows))))};
      }
      const Tensor dense = row_major(x);
      const Tensor grad_logits = empty(x.shape(), x.options());
      TANDEM_KERNEL(kernel_context(x.device()), cross_entropy_backward, x.dtype(), rows, x.shape()[1], dense.data_ptr(),
                    targets.data<int64_t>(), shifts.get().data_ptr(), grad.data_ptr(), grad_logits.data_ptr());
      return {grad_logits};
    }
  };
  if (auto* node = autograd::record<CrossEntropyNode>("cross_entropy", out, logits)) {
    node->logits.save(logits);
    node->labels.save(labels);
    node->shifts.save(shifts);
  }
  return out;
}

Tensor nll_loss(const Tensor& log_probs_argument, const Tensor& labels_argument) {
  Tensor log_probs = log_probs_argument;
  cast_for(CastPolicy::kFloat32, {&log_probs});
  const KernelContext context = check_same_device("nll_loss", {{"log_probs", log_probs}, {"labels", labels_argument}});
  const Tensor labels = checked_labels("nll_loss", context, {"log_probs", log_probs}, labels_argument);
  const DType dtype = log_probs.dtype();
  if (is_half(dtype)) log_probs = to(log_probs, kFloat32);
  return to(neg(mean(gather(log_probs, 1, labels.unsqueeze(1)))), dtype);
}

Tensor mse_loss(const Tensor& input_argument, const Tensor& target_argument) {
  Tensor input = input_argument, target = target_argument;
  cast_for(CastPolicy::kFloat32, {&input, &target});
  const Operands operands = {{"input", input}, {"target", target}};
  const KernelContext context = check_same_device("mse_loss", operands);
  check_floating("mse_loss", {"input", input});
  check_floating("mse_loss", {"target", target});
  TANDEM_CHECK(ShapeError, input.shape() == target.shape(), operand_error("mse_loss", "shapes differ", operands));
  const DType dtype = promote(input.dtype(), target.dtype());
  const DType compute = is_half(dtype) ? kFloat32 : dtype;
  if (input.dtype() != compute || target.dtype() != compute) {
    return to(mse_loss(to(input, compute), to(target, compute)), dtype);
  }
  Tensor out;
  {
    const NoGradGuard no_grad;
    const Tensor difference = sub(input, target);
    out = mean(mul(difference, difference));
  }

  struct MseLossNode : Node {
    SavedTensor input{*this, "input"}, target{*this, "target"};

    TensorList backward(BackwardContext& context) override {
      const Tensor x = input.get(), y = target.get();
      const double count = static_cast<double>(std::max<int64_t>(1, x.num_elements()));
      const Tensor slope = mul(sub(x, y), mul(context.grad(), 2 / count));
      TensorList grads(2);
      if (context.needs(0)) grads[0] = slope;
      if (context.needs(1)) grads[1] = neg(slope);
      return grads;
    }
  };
  if (auto* node = autograd::record<MseLossNode>("mse_loss", out, input, target)) {
    node->input.save(input);
    node->target.save(target);
  }
  return out;
}

}}  // namespace tandem::v0

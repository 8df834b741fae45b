#include <tandem/ops/loss.h>

#include <tandem/ops/cast.h>
#include <tandem/ops/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss_kernels.h>
#include <tandem/ops/softmax.h>

namespace tandem::inline v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::Saved;

namespace {

/// 1 at (i, labels[i]), else 0, of logits' shape and dtype; no gradient.
Tensor one_hot_like(const Tensor& logits, const Tensor& labels) {
  const Tensor classes = arange(0, logits.size(1), 1, logits.device());
  return to(eq(labels.unsqueeze(1), classes), logits.dtype());
}

}  // namespace

Tensor cross_entropy(const Tensor& logits_argument, const Tensor& labels_argument) {
  Tensor logits = logits_argument;
  cast_for(CastPolicy::kFloat32, {&logits});
  const Operands operands = {{"logits", logits}, {"labels", labels_argument}};
  const KernelContext context = check_same_device("cross_entropy", operands);
  check_floating("cross_entropy", {"logits", logits});
  TANDEM_CHECK(DTypeError, labels_argument.dtype() == kInt64,
               operand_error("cross_entropy", "labels must be int64", operands));
  TANDEM_CHECK(ShapeError,
               logits.dim() == 2 && labels_argument.dim() == 1 && logits.shape()[0] == labels_argument.shape()[0],
               operand_error("cross_entropy", "logits must be [N, C] and labels [N]", operands));
  const int64_t n = logits.shape()[0], classes = logits.shape()[1];
  const Tensor labels = row_major(labels_argument.detach());
  const int64_t bad = cpu::find_bad_label(context, n, classes, labels.data<int64_t>());
  TANDEM_CHECK(IndexError, bad < 0, "cross_entropy: label ", labels.data<int64_t>()[bad], " at position ", bad,
               " is outside [0, ", classes, ")");

  const DType row_dtype = logits.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor shifts = empty({n, 2}, {row_dtype, logits.device()});
  const Tensor losses = empty({n}, {kFloat64, logits.device()});
  const Tensor out = empty({}, logits.options());
  const Tensor dense = row_major(logits);
  cpu::cross_entropy_rows(context, logits.dtype(), n, classes, dense.data_ptr(), labels.data<int64_t>(),
                          shifts.data_ptr(), losses.data<double>());
  cpu::mean_of_losses(context, logits.dtype(), n, losses.data<double>(), out.data_ptr());

  struct CrossEntropyNode : Node {
    Saved logits{*this, "logits"}, labels{*this, "labels"}, shifts{*this, "shifts"};

    TensorList backward(BackwardContext& context) override {
      const Tensor x = logits.get(), targets = labels.get();
      const Tensor& grad = context.grad();
      const int64_t rows = x.shape()[0];
      if (context.create_graph()) {
        const Tensor difference = sub(softmax(x, 1), one_hot_like(x, targets));
        return {mul(difference, div(grad, static_cast<double>(rows)))};
      }
      const Tensor dense = row_major(x);
      const Tensor grad_logits = empty(x.shape(), x.options());
      cpu::cross_entropy_backward({x.device()}, x.dtype(), rows, x.shape()[1], dense.data_ptr(),
                                  targets.data<int64_t>(), shifts.get().data_ptr(), grad.data_ptr(),
                                  grad_logits.data_ptr());
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

}  // namespace tandem::inline v0

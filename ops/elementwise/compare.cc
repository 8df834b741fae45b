#include <tandem/ops/compare.h>

#include <tandem/ops/common/call.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/elementwise/elementwise_op.h>

namespace tandem { inline namespace v0 {

#define TANDEM_DEFINE_COMPARISON(name, Op)                                                             \
  Tensor name(Tensor a, Tensor b) { return ops::binary(functions::Op{}, std::move(a), std::move(b)); } \
  Tensor name(Tensor a, Scalar b) { return ops::binary(functions::Op{}, std::move(a), b); }            \
  Tensor Tensor::name(const Tensor& other) const { return tandem::name(*this, other); }                \
  Tensor Tensor::name(Scalar other) const { return tandem::name(*this, other); }
TANDEM_COMPARISONS(TANDEM_DEFINE_COMPARISON)

// --- where ---------------------------------------------------------------------------------------

namespace {

struct WhereNode : autograd::Node {
  autograd::SavedTensor condition{*this, "condition"};
  Shape a_shape, b_shape;
  TensorList backward(autograd::BackwardContext& context) override {
    TensorList grads(2);
    const Tensor chosen = condition.get();
    if (context.needs(0)) grads[0] = ops::sum_to_shape(where(chosen, context.grad(), 0), a_shape);
    if (context.needs(1)) grads[1] = ops::sum_to_shape(where(chosen, 0, context.grad()), b_shape);
    return grads;
  }
};

}  // namespace

Tensor where(const Tensor& condition, Tensor a, Tensor b) {
  const ops::Call call("where", CastPolicy::kWidest, {{"condition", condition}, {"a", &a}, {"b", &b}});
  call.require<DTypeError>(condition.dtype() == kBool, "condition must be bool");
  ops::promote_operands(a, b);
  const Shape shape = ops::broadcast_shape("where", call.operands);
  const Tensor& model = shape == a.shape() ? a : b;
  Tensor out = shape == model.shape() ? empty_preserving_layout(model, a.dtype()) : empty(shape, a.options());
  const auto loop = ops::make_loop<4>(out.shape(), out.numel(), {&out, &condition, &a, &b});
  TANDEM_KERNEL(call, where, size_of(a.dtype()), loop, condition.data_ptr(), a.data_ptr(), b.data_ptr(),
                out.data_ptr());
  if (auto* node = autograd::record<WhereNode>("where", out, a, b)) {
    node->condition.save(condition);
    node->a_shape = a.shape();
    node->b_shape = b.shape();
  }
  return out;
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  const KernelContext context = ops::check_same_device("where", {{"condition", condition}, {"a", a}});
  check_fits("where", "b", b, ops::dtype_with(a, b));
  return where(condition, a, scalar_tensor(b, {ops::dtype_with(a, b), a.device()}));
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  const KernelContext context = ops::check_same_device("where", {{"condition", condition}, {"b", b}});
  check_fits("where", "a", a, ops::dtype_with(b, a));
  return where(condition, scalar_tensor(a, {ops::dtype_with(b, a), b.device()}), b);
}

}}  // namespace tandem::v0

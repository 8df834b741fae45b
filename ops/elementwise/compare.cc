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
  const auto gradients = [a_shape = a.shape(), b_shape = b.shape()](autograd::BackwardContext& context,
                                                                    const autograd::SavedTensor& saved) {
    const Tensor &grad = context.grad(), chosen = saved.get();
    return TensorList{context.needs(0) ? ops::sum_to_shape(where(chosen, grad, 0), a_shape) : Tensor(),
                      context.needs(1) ? ops::sum_to_shape(where(chosen, 0, grad), b_shape) : Tensor()};
  };
  ops::record_gradient("where", out, {&a, &b}, {{"condition", condition}}, gradients);
  return out;
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  const ops::Call call("where", {{"condition", condition}, {"a", a}});
  check_fits("where", "b", b, ops::dtype_with(a, b));
  return where(condition, a, scalar_tensor(b, {ops::dtype_with(a, b), a.device()}));
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  const ops::Call call("where", {{"condition", condition}, {"b", b}});
  check_fits("where", "a", a, ops::dtype_with(b, a));
  return where(condition, scalar_tensor(a, {ops::dtype_with(b, a), b.device()}), b);
}

}}  // namespace tandem::v0

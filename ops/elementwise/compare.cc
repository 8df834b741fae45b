#include <tandem/ops/compare.h>

#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::convert;
using ops::dtype_with;
using ops::Element;
using ops::empty_for;
using ops::make_loop;
using ops::promote_operands;

// --- comparisons ---------------------------------------------------------------------------------

namespace {

/// a kind b, or b kind a where `swapped`: greater is less with the operands exchanged.
Tensor compare(const char* op, CompareOp kind, bool swapped, Tensor a, Tensor b) {
  cast_for(CastPolicy::kWidest, {&a, &b});
  const KernelContext context = ops::check_same_device(op, {{"a", a}, {"b", b}});
  promote_operands(a, b);
  Tensor out = empty_for(op, a, b, kBool);
  const Tensor& left = swapped ? b : a;
  const Tensor& right = swapped ? a : b;
  const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &left, &right});
  TANDEM_KERNEL(context, compare, kind, a.dtype(), loop, left.data_ptr(), right.data_ptr(), out.data_ptr());
  return out;
}

Tensor compare(const char* op, CompareOp kind, bool swapped, Tensor a, Scalar b) {
  cast_for(CastPolicy::kWidest, {&a});
  const KernelContext context = ops::check_same_device(op, {{"a", a}});
  convert(a, dtype_with(a, b));
  Tensor out = empty_preserving_layout(a, kBool);
  if (!can_hold(a.dtype(), b)) {                       // beyond all that a can be
    const bool is_less = (b.to_int() > 0) != swapped;  // what stands on the left
    primitives::fill(out, kind == CompareOp::kNotEqual || (kind != CompareOp::kEqual && is_less));
    return out;
  }
  const Element number(b, a.dtype());
  if (swapped) {
    const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, nullptr, &a});
    TANDEM_KERNEL(context, compare, kind, a.dtype(), loop, number.source(), a.data_ptr(), out.data_ptr());
  } else {
    const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &a, nullptr});
    TANDEM_KERNEL(context, compare, kind, a.dtype(), loop, a.data_ptr(), number.source(), out.data_ptr());
  }
  return out;
}

}  // namespace

Tensor eq(Tensor a, Tensor b) { return compare("eq", CompareOp::kEqual, false, std::move(a), std::move(b)); }
Tensor eq(Tensor a, Scalar b) { return compare("eq", CompareOp::kEqual, false, std::move(a), b); }
Tensor ne(Tensor a, Tensor b) { return compare("ne", CompareOp::kNotEqual, false, std::move(a), std::move(b)); }
Tensor ne(Tensor a, Scalar b) { return compare("ne", CompareOp::kNotEqual, false, std::move(a), b); }
Tensor lt(Tensor a, Tensor b) { return compare("lt", CompareOp::kLess, false, std::move(a), std::move(b)); }
Tensor lt(Tensor a, Scalar b) { return compare("lt", CompareOp::kLess, false, std::move(a), b); }
Tensor le(Tensor a, Tensor b) { return compare("le", CompareOp::kLessEqual, false, std::move(a), std::move(b)); }
Tensor le(Tensor a, Scalar b) { return compare("le", CompareOp::kLessEqual, false, std::move(a), b); }
Tensor gt(Tensor a, Tensor b) { return compare("gt", CompareOp::kLess, true, std::move(a), std::move(b)); }
Tensor gt(Tensor a, Scalar b) { return compare("gt", CompareOp::kLess, true, std::move(a), b); }
Tensor ge(Tensor a, Tensor b) { return compare("ge", CompareOp::kLessEqual, true, std::move(a), std::move(b)); }
Tensor ge(Tensor a, Scalar b) { return compare("ge", CompareOp::kLessEqual, true, std::move(a), b); }

// --- where ---------------------------------------------------------------------------------------

namespace {

struct WhereNode : Node {
  SavedTensor condition{*this, "condition"};
  Shape a_shape, b_shape;
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    const Tensor chosen = condition.get();
    if (context.needs(0)) grads[0] = ops::sum_to_shape(where(chosen, context.grad(), 0), a_shape);
    if (context.needs(1)) grads[1] = ops::sum_to_shape(where(chosen, 0, context.grad()), b_shape);
    return grads;
  }
};

}  // namespace

Tensor where(const Tensor& condition, Tensor a, Tensor b) {
  cast_for(CastPolicy::kWidest, {&a, &b});
  const ops::Operands operands = {{"condition", condition}, {"a", a}, {"b", b}};
  const KernelContext context = ops::check_same_device("where", operands);
  TANDEM_CHECK(DTypeError, condition.dtype() == kBool, ops::operand_error("where", "condition must be bool", operands));
  promote_operands(a, b);
  const Shape shape = ops::broadcast_shape("where", operands);
  const Tensor& model = shape == a.shape() ? a : b;
  Tensor out = shape == model.shape() ? empty_preserving_layout(model, a.dtype()) : empty(shape, a.options());
  const auto loop = make_loop<4>(out.shape(), out.num_elements(), {&out, &condition, &a, &b});
  TANDEM_KERNEL(context, where, size_of(a.dtype()), loop, condition.data_ptr(), a.data_ptr(), b.data_ptr(),
                out.data_ptr());
  if (auto* node = record<WhereNode>("where", out, a, b)) {
    node->condition.save(condition);
    node->a_shape = a.shape();
    node->b_shape = b.shape();
  }
  return out;
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  const KernelContext context = ops::check_same_device("where", {{"condition", condition}, {"a", a}});
  check_fits("where", "b", b, dtype_with(a, b));
  return where(condition, a, scalar_tensor(b, {dtype_with(a, b), a.device()}));
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  const KernelContext context = ops::check_same_device("where", {{"condition", condition}, {"b", b}});
  check_fits("where", "a", a, dtype_with(b, a));
  return where(condition, scalar_tensor(a, {dtype_with(b, a), b.device()}), b);
}

}}  // namespace tandem::v0

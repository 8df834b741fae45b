#include <tandem/ops/elementwise.h>

#include <cstdint>

#include <tandem/autograd/engine.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/elementwise/elementwise_op.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using functions::Add;
using functions::Div;
using functions::DivBackward;
using functions::Mul;
using functions::Sub;

Tensor ops::number_with(const Tensor& other, Scalar number) {
  const Tensor result = empty({}, {dtype_with(other, number), other.device()});
  primitives::fill(result, number);
  return result;
}

void ops::check_not_bool(const char* op, const char* name, const Tensor& tensor) {
  TANDEM_CHECK(DTypeError, tensor.dtype() != kBool, operand_error(op, "bool is not accepted", {{name, tensor}}));
}

void ops::check_not_bool(const char* op, const char* name, Scalar value) {
  TANDEM_CHECK(DTypeError, value.dtype() != kBool, op, ": bool is not accepted (", name, " is a bool)");
}

namespace {

bool is_aligned_for_packs(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0; }

bool broadcasts_to(const Shape& from, const Shape& shape) {
  if (from.size() > shape.size()) return false;
  const size_t added = shape.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != shape[added + d]) return false;
  }
  return true;
}

}  // namespace

void ops::check_in_place(const char* op, const Tensor& self, DType result) {
  for (int64_t d = 0; d < self.dim(); ++d) {
    TANDEM_CHECK(
        StateError, self.strides()[d] != 0 || self.shape()[d] <= 1,
        operand_error(op, "self is expanded, several of its elements share memory: clone it first", {{"self", self}}));
  }
  TANDEM_CHECK(DTypeError, result_dtype(self.dtype(), result) == self.dtype(),
               operand_error(op, str("the result is ", result, ", which self cannot represent"), {{"self", self}}));
}

Tensor ops::in_place_argument(const char* op, const Tensor& self, const Tensor& other, const char* name) {
  TANDEM_CHECK(ShapeError, broadcasts_to(other.shape(), self.shape()),
               operand_error(op, str(name, " does not broadcast to the shape of self"),
                             Operands{{"self", self}, {name, other}}));
  if (other.dtype() != self.dtype()) return to(other, self.dtype());
  return other.storage() == self.storage() ? clone(other) : other;
}

TANDEM_UNARY_FUNCTIONS(TANDEM_DEFINE_UNARY)

Tensor ops::relu_backward(const Tensor& grad, const Tensor& output) {
  return unary_backward(functions::Relu{}, grad, output);
}

void ops::record_sum(const char* op, const Tensor& sum, const Tensor& a, const Tensor& b) {
  record_gradient(op, sum, {&a, &b}, [dtype = b.dtype()](BackwardContext& context) {
    return TensorList{context.grad(), context.needs(1) ? to(context.grad(), dtype) : Tensor()};
  });
}

TANDEM_DEFINE_METHOD(exp)
TANDEM_DEFINE_METHOD(log)
TANDEM_DEFINE_METHOD(relu)
TANDEM_UNARY_FUNCTIONS(TANDEM_DEFINE_IN_PLACE)

namespace {

/// Whether autocast would convert b to float32 to add it to a, and add_half can read it as it is.
bool can_add_half(const Tensor& a, const Tensor& b) {
  return dtype_for(CastPolicy::kLowPrecision, kFloat32) != kFloat32 && a.defined() && b.defined() &&
         a.dtype() == kFloat32 && ops::is_half(b.dtype()) && a.device() == b.device() && a.shape() == b.shape() &&
         a.is_contiguous() && b.is_contiguous() && is_aligned_for_packs(a) && is_aligned_for_packs(b);
}

/// a + b in one kernel, with the same bits as after converting b.
Tensor add_half(const Tensor& a, const Tensor& b) {
  const ops::Call call("add", {{"a", a}, {"b", b}});
  const Tensor out = empty(a.shape(), a.options());
  TANDEM_KERNEL(call, add_half, b.dtype(), out.numel(), a.data<float>(), b.data_ptr(), out.data<float>());
  ops::record_sum("add", out, a, b);
  return out;
}

}  // namespace

Tensor add(Tensor a, Tensor b, Scalar alpha) {
  if (alpha.to_double() == 1) {
    if (can_add_half(a, b)) return add_half(a, b);
    if (can_add_half(b, a)) return add_half(b, a);
  }
  return ops::binary(Add{{}, alpha}, std::move(a), std::move(b));
}
Tensor add(Tensor a, Scalar b) { return ops::binary(Add{}, std::move(a), b); }
Tensor sub(Tensor a, Tensor b, Scalar alpha) { return ops::binary(Sub{{}, alpha}, std::move(a), std::move(b)); }
Tensor sub(Tensor a, Scalar b) { return ops::binary(Sub{}, std::move(a), b); }
Tensor mul(Tensor a, Tensor b) { return ops::binary(Mul{}, std::move(a), std::move(b)); }
Tensor mul(Tensor a, Scalar b) { return ops::binary(Mul{}, std::move(a), b); }
Tensor div(Tensor a, Tensor b) { return ops::binary(Div{}, std::move(a), std::move(b)); }
Tensor div(Tensor a, Scalar b) { return ops::binary(Div{}, std::move(a), b); }

Tensor sub(Scalar a, const Tensor& b) {
  const ops::Call call("sub", {{"b", b}});
  ops::check_not_bool("sub", "a", a);
  ops::check_not_bool("sub", "b", b);
  return sub(ops::number_with(b, a), b);
}

Tensor div(Scalar a, const Tensor& b) {
  const ops::Call call("div", {{"b", b}});
  return div(scalar_tensor(a, {ops::floating_or_float32(b.dtype()), b.device()}), b);
}

Tensor functions::Div::backward_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor&) {
  if (is_grad_enabled()) {
    const DType compute = promote(grad.dtype(), kFloat32);
    const Tensor wide_b = to(b, compute);
    return to(neg(mul(to(grad, compute), div(div(to(a, compute), wide_b), wide_b))), grad.dtype());
  }
  return ops::ternary_kernel(DivBackward{}, grad, a, b);
}

const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  return ops::binary_in_place("add_", Add{{}, alpha}, *this, other);
}
const Tensor& Tensor::add_(Scalar other) const { return ops::binary_in_place("add_", Add{}, *this, other); }
const Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) const {
  return ops::binary_in_place("sub_", Sub{{}, alpha}, *this, other);
}
const Tensor& Tensor::sub_(Scalar other) const { return ops::binary_in_place("sub_", Sub{}, *this, other); }
const Tensor& Tensor::mul_(const Tensor& other) const { return ops::binary_in_place("mul_", Mul{}, *this, other); }
const Tensor& Tensor::mul_(Scalar other) const { return ops::binary_in_place("mul_", Mul{}, *this, other); }
const Tensor& Tensor::div_(const Tensor& other) const { return ops::binary_in_place("div_", Div{}, *this, other); }
const Tensor& Tensor::div_(Scalar other) const { return ops::binary_in_place("div_", Div{}, *this, other); }

Tensor autograd::accumulate_with_graph(const Tensor& a, const Tensor& b) { return add(a, b); }

Tensor clone(const Tensor& input) {
  const ops::Call call("clone", {{"input", input}});
  Tensor out = empty_like(input);
  primitives::copy(input, out);
  ops::record_gradient("clone", out, {&input}, [](const Tensor& grad) { return grad; });
  return out;
}

Tensor contiguous(const Tensor& input) {
  const ops::Call call("contiguous", {{"input", input}});
  return input.is_contiguous() ? input : clone(input);
}

Tensor Tensor::clone() const { return tandem::clone(*this); }
Tensor Tensor::contiguous() const { return tandem::contiguous(*this); }

namespace {

/// Throws StateError unless another tensor sees a change of `self`, a temporary handle.
void check_assignable(const char* op, const Tensor& self) {
  TANDEM_CHECK(StateError, self.defined(), op, ": the left side is undefined; assign to a variable, or use ",
               "set_grad for a gradient");
  const TensorImpl& impl = self.impl();
  // The node of a result that is not a view may share its memory, but only the result holds the node.
  const bool is_only_handle = impl.use_count() == 1 && impl.storage->owns_memory() &&
                              (impl.storage->use_count() == 1 || (impl.has_node && !impl.is_view));
  TANDEM_CHECK(StateError, !is_only_handle, op, ": the left side is a new tensor (", describe(self),
               ") that nothing else refers to, so the values would be lost; assign to a variable or a view, or use "
               "index_put_ or masked_fill_");
}

}  // namespace

const Tensor& Tensor::fill_(Scalar value) const {
  const ops::Call call("fill_", {{"self", *this}});
  ops::check_in_place("fill_", *this, dtype());
  check_fits("fill_", "value", value, dtype());
  ops::begin_in_place("fill_", *this);
  ops::record_overwrite("fill_", *this);
  primitives::fill(*this, value);
  autograd::end_in_place("fill_", *this);
  return *this;
}

const Tensor& ops::copy_in_place(const char* op, const Tensor& self, const Tensor& src) {
  const Call call(op, {{"self", self}, {"src", src}});
  check_in_place(op, self, self.dtype());
  const Tensor source = in_place_argument(op, self, src, "src");
  begin_in_place(op, self, source);
  if (is_floating_point(self.dtype())) {
    // The gradient of the old value of self is zero.
    record_gradient(op, self, {&self, &source}, [shape = source.shape()](BackwardContext& backward) {
      return TensorList{Tensor(), backward.needs(1) ? sum_to_shape(backward.grad(), shape) : Tensor()};
    });
  }
  primitives::copy(make_view(source.storage(), source.dtype(), self.shape(), broadcast_strides(source, self.shape()),
                             source.impl().offset),
                   self);
  autograd::end_in_place(op, self);
  return self;
}

const Tensor& Tensor::copy_(const Tensor& src) const { return ops::copy_in_place("copy_", *this, src); }

const Tensor& Tensor::left_side(const char* op) const {
  check_assignable(op, *this);
  return *this;
}

Tensor Tensor::operator=(const Tensor& src) && { return left_side("operator=").copy_(src); }
Tensor Tensor::operator=(Scalar value) && { return left_side("operator=").fill_(value); }

}}  // namespace tandem::v0

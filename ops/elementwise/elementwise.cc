#include <tandem/ops/elementwise.h>

#include <tandem/autograd/engine.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/elementwise/elementwise_loop.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::convert;
using ops::dtype_with;
using ops::Element;
using ops::empty_for;
using ops::floating_or_float32;
using ops::make_loop;
using ops::promote_operands;

namespace {

// --- dispatch ------------------------------------------------------------------------------------

void run_binary(const KernelContext& context, BinaryOp kind, const Tensor& a, const Tensor& b, const Tensor& out,
                Scalar alpha = 1) {
  const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &a, &b});
  TANDEM_KERNEL(context, binary, kind, out.dtype(), loop, alpha, a.data_ptr(), b.data_ptr(), out.data_ptr());
}

void run_binary(const KernelContext& context, BinaryOp kind, const Tensor& a, Scalar b, const Tensor& out) {
  const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &a, nullptr});
  const Element number(b, out.dtype());
  TANDEM_KERNEL(context, binary, kind, out.dtype(), loop, 1, a.data_ptr(), number.source(), out.data_ptr());
}

/// a kind b for operands of one dtype.
Tensor binary(const char* op, const KernelContext& context, BinaryOp kind, const Tensor& a, const Tensor& b,
              Scalar alpha = 1) {
  Tensor out = empty_for(op, a, b, a.dtype());
  run_binary(context, kind, a, b, out, alpha);
  return out;
}

Tensor binary(const KernelContext& context, BinaryOp kind, const Tensor& a, Scalar b) {
  Tensor out = empty_preserving_layout(a, a.dtype());
  run_binary(context, kind, a, b, out);
  return out;
}

Tensor unary(const KernelContext& context, UnaryOp kind, const Tensor& a) {
  Tensor out = empty_preserving_layout(a, a.dtype());
  const auto loop = make_loop<2>(out.shape(), out.num_elements(), {&out, &a});
  TANDEM_KERNEL(context, unary, kind, a.dtype(), loop, a.data_ptr(), out.data_ptr());
  return out;
}

void check_not_bool(const char* op, const char* name, const Tensor& tensor) {
  TANDEM_CHECK(DTypeError, tensor.dtype() != kBool, ops::operand_error(op, "bool is not accepted", {{name, tensor}}));
}

void check_not_bool(const char* op, const char* name, Scalar value) {
  TANDEM_CHECK(DTypeError, value.dtype() != kBool, op, ": bool is not accepted (", name, " is a bool)");
}

void check_alpha(const char* op, Scalar alpha, DType dtype) {
  TANDEM_CHECK(DTypeError, alpha.dtype() != kFloat64 || is_floating_point(dtype), op, ": alpha is the floating number ",
               alpha.to_double(), ", but the result is ", dtype);
}

Scalar negative(Scalar value) {
  return value.dtype() == kFloat64 ? Scalar(-value.to_double()) : Scalar(-value.to_int());
}

// --- in-place forms ------------------------------------------------------------------------------
//
// They record before they write, so that what recording refuses leaves self as it was.

bool broadcasts_to(const Shape& from, const Shape& shape) {
  if (from.size() > shape.size()) return false;
  const size_t added = shape.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != shape[added + d]) return false;
  }
  return true;
}

/// Throws StateError where several elements of `self` share memory, DTypeError where `result` is of a higher kind.
void check_in_place(const char* op, const Tensor& self, DType result) {
  for (int64_t d = 0; d < self.dim(); ++d) {
    TANDEM_CHECK(StateError, self.strides()[d] != 0 || self.shape()[d] <= 1,
                 ops::operand_error(op, "self is expanded, several of its elements share memory: clone it first",
                                    {{"self", self}}));
  }
  TANDEM_CHECK(DTypeError, ops::result_dtype(self.dtype(), result) == self.dtype(),
               ops::operand_error(op, str("the result is ", result, ", which self cannot hold"), {{"self", self}}));
}

/// `other` ready to be combined into `self`: its dtype, and no memory in common.
Tensor in_place_operand(const char* op, const Tensor& self, const Tensor& other, const char* name = "other") {
  const ops::Operands operands = {{"self", self}, {name, other}};
  TANDEM_CHECK(ShapeError, broadcasts_to(other.shape(), self.shape()),
               ops::operand_error(op, str(name, " does not broadcast to the shape of self"), operands));
  if (other.dtype() != self.dtype()) return to(other, self.dtype());
  return other.storage() == self.storage() ? clone(other) : other;
}

bool will_record(const Tensor& self) { return is_floating_point(self.dtype()) && autograd::should_record(self); }
bool will_record(const Tensor& self, const Tensor& other) {
  return is_floating_point(self.dtype()) && autograd::should_record(self, other);
}

}  // namespace

// --- add, sub ------------------------------------------------------------------------------------

namespace {

/// a + alpha b.
struct AddNode : Node {
  Scalar alpha = 1;
  Shape a_shape, b_shape;
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    const Tensor& grad = context.grad();
    if (context.needs(0)) grads[0] = ops::sum_to_shape(grad, a_shape);
    if (context.needs(1)) grads[1] = ops::sum_to_shape(alpha.to_double() == 1 ? grad : mul(grad, alpha), b_shape);
    return grads;
  }
};

/// a + a number.
struct AddScalarNode : Node {
  TensorList backward(BackwardContext& context) override { return {context.grad()}; }
};

void record_add(const char* op, const Tensor& out, const Tensor& a, const Tensor& b, Scalar alpha) {
  if (auto* node = record<AddNode>(op, out, a, b)) {
    node->alpha = alpha;
    node->a_shape = a.shape();
    node->b_shape = b.shape();
  }
}

}  // namespace

Tensor add(Tensor a, Tensor b, Scalar alpha) {
  cast_for(CastPolicy::kWidest, {&a, &b});
  const KernelContext context = ops::check_same_device("add", {{"a", a}, {"b", b}});
  promote_operands(a, b);
  check_alpha("add", alpha, a.dtype());
  Tensor out = binary("add", context, BinaryOp::kAdd, a, b, alpha);
  record_add("add", out, a, b, alpha);
  return out;
}

Tensor add(Tensor a, Scalar b) {
  cast_for(CastPolicy::kWidest, {&a});
  const KernelContext context = ops::check_same_device("add", {{"a", a}});
  convert(a, dtype_with(a, b));
  Tensor out = binary(context, BinaryOp::kAdd, a, b);
  record<AddScalarNode>("add", out, a);
  return out;
}

Tensor sub(Tensor a, Tensor b, Scalar alpha) {
  cast_for(CastPolicy::kWidest, {&a, &b});
  const KernelContext context = ops::check_same_device("sub", {{"a", a}, {"b", b}});
  check_not_bool("sub", "a", a);
  check_not_bool("sub", "b", b);
  promote_operands(a, b);
  check_alpha("sub", alpha, a.dtype());
  Tensor out = binary("sub", context, BinaryOp::kAdd, a, b, negative(alpha));
  record_add("sub", out, a, b, negative(alpha));
  return out;
}

Tensor sub(Tensor a, Scalar b) {
  cast_for(CastPolicy::kWidest, {&a});
  const KernelContext context = ops::check_same_device("sub", {{"a", a}});
  check_not_bool("sub", "a", a);
  check_not_bool("sub", "b", b);
  convert(a, dtype_with(a, b));
  Tensor out = binary(context, BinaryOp::kSub, a, b);
  record<AddScalarNode>("sub", out, a);
  return out;
}

Tensor sub(Scalar a, const Tensor& b) {
  const KernelContext context = ops::check_same_device("sub", {{"b", b}});
  check_not_bool("sub", "a", a);
  check_not_bool("sub", "b", b);
  const Tensor number = empty({}, {dtype_with(b, a), b.device()});
  primitives::fill(number, a);  // an integer wraps around
  return sub(number, b);
}

const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  const KernelContext context = ops::check_same_device("add_", {{"self", *this}, {"other", other}});
  check_in_place("add_", *this, ops::result_dtype(*this, other));
  check_alpha("add_", alpha, dtype());
  const Tensor b = in_place_operand("add_", *this, other);
  autograd::begin_in_place("add_", *this, will_record(*this, b));
  record_add("add_", *this, *this, b, alpha);
  run_binary(context, BinaryOp::kAdd, *this, b, *this, alpha);
  autograd::end_in_place("add_", *this);
  return *this;
}

const Tensor& Tensor::add_(Scalar other) const {
  const KernelContext context = ops::check_same_device("add_", {{"self", *this}});
  check_in_place("add_", *this, dtype_with(*this, other));
  autograd::begin_in_place("add_", *this, will_record(*this));
  record<AddScalarNode>("add_", *this, *this);
  run_binary(context, BinaryOp::kAdd, *this, other, *this);
  autograd::end_in_place("add_", *this);
  return *this;
}

const Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) const {
  const KernelContext context = ops::check_same_device("sub_", {{"self", *this}, {"other", other}});
  check_in_place("sub_", *this, ops::result_dtype(*this, other));
  check_not_bool("sub_", "self", *this);
  check_not_bool("sub_", "other", other);
  check_alpha("sub_", alpha, dtype());
  const Tensor b = in_place_operand("sub_", *this, other);
  autograd::begin_in_place("sub_", *this, will_record(*this, b));
  record_add("sub_", *this, *this, b, negative(alpha));
  run_binary(context, BinaryOp::kAdd, *this, b, *this, negative(alpha));
  autograd::end_in_place("sub_", *this);
  return *this;
}

const Tensor& Tensor::sub_(Scalar other) const {
  const KernelContext context = ops::check_same_device("sub_", {{"self", *this}});
  check_in_place("sub_", *this, dtype_with(*this, other));
  check_not_bool("sub_", "self", *this);
  check_not_bool("sub_", "other", other);
  autograd::begin_in_place("sub_", *this, will_record(*this));
  record<AddScalarNode>("sub_", *this, *this);
  run_binary(context, BinaryOp::kSub, *this, other, *this);
  autograd::end_in_place("sub_", *this);
  return *this;
}

Tensor autograd::accumulate_with_graph(const Tensor& a, const Tensor& b) { return add(a, b); }

// --- mul, div ------------------------------------------------------------------------------------

namespace {

/// a * b.
struct MulNode : Node {
  SavedTensor a{*this, "a"};
  SavedTensor b{*this, "b"};
  Shape a_shape, b_shape;
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    if (context.needs(0)) grads[0] = ops::sum_to_shape(mul(context.grad(), b.get()), a_shape);
    if (context.needs(1)) grads[1] = ops::sum_to_shape(mul(context.grad(), a.get()), b_shape);
    return grads;
  }
};

/// a * number, or a / number.
struct ScaleNode : Node {
  Scalar factor = 1;
  bool divides = false;
  TensorList backward(BackwardContext& context) override {
    return {divides ? div(context.grad(), factor) : mul(context.grad(), factor)};
  }
};

/// The gradient of a / b by b, of grad's shape, rounded once.
Tensor div_backward(const Tensor& grad, const Tensor& a, const Tensor& b, bool recorded) {
  if (recorded) {
    const DType compute = promote(grad.dtype(), kFloat32);
    const Tensor wide_b = to(b, compute);
    return to(neg(mul(to(grad, compute), div(div(to(a, compute), wide_b), wide_b))), grad.dtype());
  }
  Tensor out = empty_preserving_layout(grad, grad.dtype());
  const auto loop = make_loop<4>(out.shape(), out.num_elements(), {&out, &grad, &a, &b});
  TANDEM_KERNEL(kernel_context(out.device()), div_backward, out.dtype(), loop, grad.data_ptr(), a.data_ptr(),
                b.data_ptr(), out.data_ptr());
  return out;
}

/// a / b.
struct DivNode : Node {
  SavedTensor a{*this, "a"};
  SavedTensor b{*this, "b"};
  Shape a_shape, b_shape;
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    const Tensor& grad = context.grad();
    const Tensor divisor = b.get();
    if (context.needs(0)) grads[0] = ops::sum_to_shape(div(grad, divisor), a_shape);
    if (context.needs(1)) {
      grads[1] = ops::sum_to_shape(div_backward(grad, a.get(), divisor, context.create_graph()), b_shape);
    }
    return grads;
  }
};

/// `old_a` holds a's values; it is `a` itself unless that was overwritten.
void record_mul(const char* op, const Tensor& out, const Tensor& a, const Tensor& old_a, const Tensor& b) {
  if (auto* node = record<MulNode>(op, out, a, b)) {
    if (b.requires_grad()) node->a.save(old_a);
    if (a.requires_grad()) node->b.save(b);
    node->a_shape = a.shape();
    node->b_shape = b.shape();
  }
}

void record_div(const char* op, const Tensor& out, const Tensor& a, const Tensor& old_a, const Tensor& b) {
  if (auto* node = record<DivNode>(op, out, a, b)) {
    if (b.requires_grad()) node->a.save(old_a);
    node->b.save(b);
    node->a_shape = a.shape();
    node->b_shape = b.shape();
  }
}

void record_scale(const char* op, const Tensor& out, const Tensor& a, Scalar factor, bool divides) {
  if (auto* node = record<ScaleNode>(op, out, a)) {
    node->factor = factor;
    node->divides = divides;
  }
}

}  // namespace

Tensor mul(Tensor a, Tensor b) {
  cast_for(CastPolicy::kWidest, {&a, &b});
  const KernelContext context = ops::check_same_device("mul", {{"a", a}, {"b", b}});
  promote_operands(a, b);
  Tensor out = binary("mul", context, BinaryOp::kMul, a, b);
  record_mul("mul", out, a, a, b);
  return out;
}

Tensor mul(Tensor a, Scalar b) {
  cast_for(CastPolicy::kWidest, {&a});
  const KernelContext context = ops::check_same_device("mul", {{"a", a}});
  convert(a, dtype_with(a, b));
  Tensor out = binary(context, BinaryOp::kMul, a, b);
  record_scale("mul", out, a, b, false);
  return out;
}

Tensor div(Tensor a, Tensor b) {
  cast_for(CastPolicy::kWidest, {&a, &b});
  const KernelContext context = ops::check_same_device("div", {{"a", a}, {"b", b}});
  promote_operands(a, b);
  const DType dtype = floating_or_float32(a.dtype());
  convert(a, dtype);
  convert(b, dtype);
  Tensor out = binary("div", context, BinaryOp::kDiv, a, b);
  record_div("div", out, a, a, b);
  return out;
}

Tensor div(Tensor a, Scalar b) {
  cast_for(CastPolicy::kWidest, {&a});
  const KernelContext context = ops::check_same_device("div", {{"a", a}});
  convert(a, floating_or_float32(a.dtype()));
  Tensor out = binary(context, BinaryOp::kDiv, a, b);
  record_scale("div", out, a, b, true);
  return out;
}

Tensor div(Scalar a, const Tensor& b) {
  const KernelContext context = ops::check_same_device("div", {{"b", b}});
  return div(scalar_tensor(a, {floating_or_float32(b.dtype()), b.device()}), b);
}

const Tensor& Tensor::mul_(const Tensor& other) const {
  const KernelContext context = ops::check_same_device("mul_", {{"self", *this}, {"other", other}});
  check_in_place("mul_", *this, ops::result_dtype(*this, other));
  const Tensor b = in_place_operand("mul_", *this, other);
  autograd::begin_in_place("mul_", *this, will_record(*this, b));
  const Tensor old = autograd::should_record(b) ? tandem::clone(*this) : Tensor();
  record_mul("mul_", *this, *this, old, b);
  run_binary(context, BinaryOp::kMul, *this, b, *this);
  autograd::end_in_place("mul_", *this);
  return *this;
}

const Tensor& Tensor::mul_(Scalar other) const {
  const KernelContext context = ops::check_same_device("mul_", {{"self", *this}});
  check_in_place("mul_", *this, dtype_with(*this, other));
  autograd::begin_in_place("mul_", *this, will_record(*this));
  record_scale("mul_", *this, *this, other, false);
  run_binary(context, BinaryOp::kMul, *this, other, *this);
  autograd::end_in_place("mul_", *this);
  return *this;
}

const Tensor& Tensor::div_(const Tensor& other) const {
  const KernelContext context = ops::check_same_device("div_", {{"self", *this}, {"other", other}});
  check_in_place("div_", *this, floating_or_float32(ops::result_dtype(*this, other)));
  const Tensor b = in_place_operand("div_", *this, other);
  autograd::begin_in_place("div_", *this, will_record(*this, b));
  const Tensor old = autograd::should_record(b) ? tandem::clone(*this) : Tensor();
  record_div("div_", *this, *this, old, b);
  run_binary(context, BinaryOp::kDiv, *this, b, *this);
  autograd::end_in_place("div_", *this);
  return *this;
}

const Tensor& Tensor::div_(Scalar other) const {
  const KernelContext context = ops::check_same_device("div_", {{"self", *this}});
  check_in_place("div_", *this, floating_or_float32(dtype()));
  autograd::begin_in_place("div_", *this, will_record(*this));
  record_scale("div_", *this, *this, other, true);
  run_binary(context, BinaryOp::kDiv, *this, other, *this);
  autograd::end_in_place("div_", *this);
  return *this;
}

// --- neg, exp, log, relu -------------------------------------------------------------------------

namespace {

struct NegNode : Node {
  TensorList backward(BackwardContext& context) override { return {neg(context.grad())}; }
};

}  // namespace

Tensor neg(Tensor input) {
  cast_for(CastPolicy::kWidest, {&input});
  const KernelContext context = ops::check_same_device("neg", {{"input", input}});
  check_not_bool("neg", "input", input);
  Tensor out = unary(context, UnaryOp::kNegate, input);
  record<NegNode>("neg", out, input);
  return out;
}

namespace {

struct ExpNode : Node {
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override { return {mul(context.grad(), output.get())}; }
};

}  // namespace

Tensor exp(Tensor input) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("exp", {{"input", input}});
  convert(input, floating_or_float32(input.dtype()));
  Tensor out = unary(context, UnaryOp::kExp, input);
  if (auto* node = record<ExpNode>("exp", out, input)) node->output.save(out);
  return out;
}

namespace {

struct LogNode : Node {
  SavedTensor input{*this, "input"};
  TensorList backward(BackwardContext& context) override { return {div(context.grad(), input.get())}; }
};

}  // namespace

Tensor log(Tensor input) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("log", {{"input", input}});
  convert(input, floating_or_float32(input.dtype()));
  Tensor out = unary(context, UnaryOp::kLog, input);
  if (auto* node = record<LogNode>("log", out, input)) node->input.save(input);
  return out;
}

namespace {

Tensor relu_backward(const Tensor& grad, const Tensor& output);

/// grad where output > 0: linear in grad, flat in output.
struct ReluBackwardNode : Node {
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    if (context.needs(0)) grads[0] = relu_backward(context.grad(), output.get());
    return grads;
  }
};

/// The gradient of relu in one pass over memory, an operation of its own.
Tensor relu_backward(const Tensor& grad, const Tensor& output) {
  const KernelContext context = ops::check_same_device("relu_backward", {{"grad", grad}, {"output", output}});
  Tensor out = binary("relu_backward", context, BinaryOp::kReluBackward, grad, output);
  if (auto* node = record<ReluBackwardNode>("relu_backward", out, grad, output)) node->output.save(output);
  return out;
}

struct ReluNode : Node {
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override { return {relu_backward(context.grad(), output.get())}; }
};

}  // namespace

Tensor relu(Tensor input) {
  cast_for(CastPolicy::kWidest, {&input});
  const KernelContext context = ops::check_same_device("relu", {{"input", input}});
  check_not_bool("relu", "input", input);
  Tensor out = unary(context, UnaryOp::kRelu, input);
  if (auto* node = record<ReluNode>("relu", out, input)) node->output.save(out);
  return out;
}

Tensor Tensor::exp() const { return tandem::exp(*this); }
Tensor Tensor::log() const { return tandem::log(*this); }
Tensor Tensor::relu() const { return tandem::relu(*this); }

// --- copies --------------------------------------------------------------------------------------

namespace {

struct CloneNode : Node {
  TensorList backward(BackwardContext& context) override { return {context.grad()}; }
};

}  // namespace

Tensor clone(const Tensor& input) {
  const KernelContext context = ops::check_same_device("clone", {{"input", input}});
  Tensor out = empty_like(input);
  primitives::copy(input, out);
  record<CloneNode>("clone", out, input);
  return out;
}

Tensor contiguous(const Tensor& input) {
  const KernelContext context = ops::check_same_device("contiguous", {{"input", input}});
  return input.is_contiguous() ? input : clone(input);
}

Tensor Tensor::clone() const { return tandem::clone(*this); }
Tensor Tensor::contiguous() const { return tandem::contiguous(*this); }

namespace {

/// self is overwritten: nothing flows to what it was before.
struct FillNode : Node {
  TensorList backward(BackwardContext&) override { return TensorList(1); }
};

/// Inputs: self before (no gradient), src.
struct CopyNode : Node {
  Shape src_shape;
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    if (context.needs(1)) grads[1] = ops::sum_to_shape(context.grad(), src_shape);
    return grads;
  }
};

}  // namespace

const Tensor& Tensor::fill_(Scalar value) const {
  const KernelContext context = ops::check_same_device("fill_", {{"self", *this}});
  check_in_place("fill_", *this, dtype());
  check_fits("fill_", "value", value, dtype());
  autograd::begin_in_place("fill_", *this, will_record(*this));
  record<FillNode>("fill_", *this, *this);
  primitives::fill(*this, value);
  autograd::end_in_place("fill_", *this);
  return *this;
}

const Tensor& Tensor::copy_(const Tensor& src) const {
  const KernelContext context = ops::check_same_device("copy_", {{"self", *this}, {"src", src}});
  check_in_place("copy_", *this, dtype());
  const Tensor source = in_place_operand("copy_", *this, src, "src");
  autograd::begin_in_place("copy_", *this, will_record(*this, source));
  if (is_floating_point(dtype())) {
    if (auto* node = record<CopyNode>("copy_", *this, *this, source)) node->src_shape = source.shape();
  }
  primitives::copy(make_view(source.storage(), source.dtype(), shape(), ops::broadcast_strides(source, shape()),
                             source.impl().offset),
                   *this);
  autograd::end_in_place("copy_", *this);
  return *this;
}

}}  // namespace tandem::v0

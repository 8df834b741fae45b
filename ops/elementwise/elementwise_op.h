// Operator functions and nodes of elementwise operations, generated from their structs (see elementwise_kernels.h).
// Private to ops/.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>

namespace tandem { inline namespace v0 { namespace ops {

using autograd::BackwardContext;
using autograd::SavedTensor;

// --- unary ---------------------------------------------------------------------------------------

template <class Op>
inline constexpr const char* kSavedName = Op::kSaves == Saves::kInput ? "input" : "output";

/// "<name>_backward".
template <class Op>
inline constexpr auto kBackwardName = [] {
  constexpr std::string_view kName = Op::kName, kSuffix = "_backward";
  std::array<char, kName.size() + kSuffix.size() + 1> text{};
  std::copy(kSuffix.begin(), kSuffix.end(), std::copy(kName.begin(), kName.end(), text.begin()));
  return text;
}();

/// The gradient of an operation with a gradient kernel; an operation by itself, so that it is differentiable.
template <class Op>
Tensor unary_backward(const Op& op, const Tensor& grad, const Tensor& saved) {
  const char* name = kBackwardName<Op>.data();
  const KernelContext context = check_same_device(name, {{"grad", grad}, {kSavedName<Op>, saved}});
  Tensor out = empty_preserving_layout(saved, saved.dtype());
  const auto loop = make_loop<3>(out.shape(), out.numel(), {&out, &grad, &saved});
  TANDEM_KERNEL(context, unary_gradient, op, out.dtype(), loop, grad.data_ptr(), saved.data_ptr(), out.data_ptr());
  constexpr bool kIsFlat = !requires { op.second_factor(saved); };
  const auto gradients = [op](BackwardContext& backward, const SavedTensor& old_grad, const SavedTensor& kept) {
    TensorList grads(2);
    if (backward.needs(0)) grads[0] = unary_backward(op, backward.grad(), kept.get());
    if constexpr (!kIsFlat) {
      if (backward.needs(1)) {  // half types are computed in float32 and rounded once
        const DType dtype = backward.grad().dtype(), compute = promote(dtype, kFloat32);
        const Tensor product = to(backward.grad(), compute) * to(old_grad.get(), compute);
        grads[1] = to(product * op.second_factor(to(kept.get(), compute)), dtype);
      }
    }
    return grads;
  };
  record_gradient(name, out, {&grad, &saved}, {{"grad", kIsFlat ? Tensor() : grad}, {kSavedName<Op>, saved}},
                  gradients);
  return out;
}

template <class Op>
struct UnaryNode : autograd::Node {
  Op op;
  autograd::SavedTensor saved{*this, kSavedName<Op>};
  TensorList backward(autograd::BackwardContext& context) override {
    const Tensor kept = Op::kSaves == Saves::kNothing ? Tensor() : saved.get();
    if constexpr (kHasGradientKernel<Op>) {
      return {unary_backward(op, context.grad(), kept)};
    } else {
      return {op.backward(context.grad(), kept)};
    }
  }
};

template <class Op>
Tensor unary(const Op& op, Tensor input) {
  cast_for(Op::kCastPolicy, {&input});
  const KernelContext context = check_same_device(Op::kName, {{"input", input}});
  if constexpr (Op::kDTypeRule == DTypeRule::kNotBool) check_not_bool(Op::kName, "input", input);
  if constexpr (Op::kDTypeRule == DTypeRule::kFloating) check_floating(Op::kName, {"input", input});
  if constexpr (Op::kDTypeRule == DTypeRule::kToFloating) convert(input, floating_or_float32(input.dtype()));
  if constexpr (requires { op.prepare(input); }) op.prepare(input);
  Tensor out = empty_preserving_layout(input, input.dtype());
  const auto loop = make_loop<2>(out.shape(), out.numel(), {&out, &input});
  TANDEM_KERNEL(context, unary, kernel_of(op), out.dtype(), loop, input.data_ptr(), out.data_ptr());
  if (auto* node = autograd::record<UnaryNode<Op>>(Op::kName, out, input)) {
    node->op = op;
    if (Op::kSaves != Saves::kNothing) node->saved.save(Op::kSaves == Saves::kInput ? input : out);
  }
  return out;
}

/// Defines the public function `name` of the struct Op.
#define TANDEM_DEFINE_UNARY(name, Op) \
  Tensor name(Tensor input) { return ops::unary(functions::Op{}, std::move(input)); }

// --- binary --------------------------------------------------------------------------------------

template <class Op>
struct BinaryNode : autograd::Node {
  Op op;
  autograd::SavedTensor a{*this, Op::kArguments[0]}, b{*this, Op::kArguments[1]}, output{*this, "output"};
  Shape a_shape, b_shape;
  TensorList backward(autograd::BackwardContext& context) override {
    TensorList grads(2);
    const Tensor& grad = context.grad();
    const auto get = [](const autograd::SavedTensor& saved, unsigned is_saved) {
      return is_saved ? saved.get() : Tensor();
    };
    if (context.needs(0)) {
      constexpr unsigned kSaved = Op::kSavedForA;
      grads[0] = sum_to_shape(op.backward_a(grad, get(a, kSaved & Op::kA), get(b, kSaved & Op::kB)), a_shape);
    }
    if (context.needs(1)) {
      constexpr unsigned kSaved = Op::kSavedForB;
      grads[1] = sum_to_shape(
          op.backward_b(grad, get(a, kSaved & Op::kA), get(b, kSaved & Op::kB), get(output, kSaved & Op::kOut)),
          b_shape);
    }
    return grads;
  }
};

/// `old_a` holds the values of a before an in-place operation; otherwise it is `a` itself.
template <class Op>
void record_binary(const char* name, const Op& op, const Tensor& out, const Tensor& a, const Tensor& old_a,
                   const Tensor& b) {
  if (auto* node = autograd::record<BinaryNode<Op>>(name, out, a, b)) {
    const unsigned saved = (a.requires_grad() ? Op::kSavedForA : 0) | (b.requires_grad() ? Op::kSavedForB : 0);
    node->op = op;
    if (saved & Op::kA) node->a.save(old_a);
    if (saved & Op::kB) node->b.save(b);
    if (saved & Op::kOut) node->output.save(out);
    node->a_shape = a.shape();
    node->b_shape = b.shape();
  }
}

template <class Op>
void record_binary(const char* name, const Op& op, const Tensor& out, const Tensor& a, Scalar b) {
  record_gradient(name, out, {&a}, [op, b](const Tensor& grad) { return op.backward_a(grad, Tensor(), b); });
}

template <class Op>
void run_binary(const KernelContext& context, const Op& op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const auto loop = make_loop<3>(out.shape(), out.numel(), {&out, &a, &b});
  TANDEM_KERNEL(context, binary, kernel_of(op), a.dtype(), loop, a.data_ptr(), b.data_ptr(), out.data_ptr());
}

template <class Op>
void run_binary(const KernelContext& context, const Op& op, const Tensor& a, Scalar b, const Tensor& out) {
  const auto loop = make_loop<3>(out.shape(), out.numel(), {&out, &a, nullptr});
  const Element number(b, a.dtype());
  TANDEM_KERNEL(context, binary, kernel_of(op), a.dtype(), loop, a.data_ptr(), number.source(), out.data_ptr());
}

template <class Op, class B>
void check_binary(const char* name, const char* const (&arguments)[2], const Tensor& a, const B& b) {
  if constexpr (Op::kDTypeRule == DTypeRule::kNotBool) {
    check_not_bool(name, arguments[0], a);
    check_not_bool(name, arguments[1], b);
  }
}

/// The compute dtype of Op for a promoted dtype.
template <class Op>
DType compute_dtype(DType promoted) {
  return Op::kDTypeRule == DTypeRule::kToFloating ? floating_or_float32(promoted) : promoted;
}

template <class Op>
inline constexpr bool kIsRecorded = !Op::kReturnsBool && Op::kDTypeRule != DTypeRule::kIntegral;

template <class Op>
Tensor binary(const Op& op, Tensor a, Tensor b) {
  cast_for(Op::kCastPolicy, {&a, &b});
  const KernelContext context = check_same_device(Op::kName, {{Op::kArguments[0], a}, {Op::kArguments[1], b}});
  check_binary<Op>(Op::kName, Op::kArguments, a, b);
  const DType dtype = compute_dtype<Op>(result_dtype(a, b));
  convert(a, dtype);
  convert(b, dtype);
  if constexpr (requires { op.check(Op::kName, a); }) op.check(Op::kName, a);
  Tensor out = empty_for(Op::kName, Op::kArguments, a, b, Op::kReturnsBool ? kBool : dtype);
  run_binary(context, op, a, b, out);
  if constexpr (kIsRecorded<Op>) record_binary(Op::kName, op, out, a, a, b);
  return out;
}

template <class Op>
Tensor binary(const Op& op, Tensor a, Scalar b) {
  cast_for(Op::kCastPolicy, {&a});
  const KernelContext context = check_same_device(Op::kName, {{Op::kArguments[0], a}});
  check_binary<Op>(Op::kName, Op::kArguments, a, b);
  convert(a, compute_dtype<Op>(dtype_with(a, b)));
  if constexpr (requires { op.check(Op::kName, a); }) op.check(Op::kName, a);
  Tensor out = empty_preserving_layout(a, Op::kReturnsBool ? kBool : a.dtype());
  if constexpr (Op::kReturnsBool) {
    if (!can_hold(a.dtype(), b)) {  // the number is greater, or less, than every value of the dtype
      primitives::fill(out, op(int64_t{0}, b.to_int() > 0 ? int64_t{1} : int64_t{-1}));
      return out;
    }
  }
  run_binary(context, op, a, b, out);
  if constexpr (kIsRecorded<Op>) record_binary(Op::kName, op, out, a, b);
  return out;
}

// --- ternary -------------------------------------------------------------------------------------

/// op(a, b, c) for operands of one dtype that broadcast to the shape of `out`, by default the shape of a.
template <class Op>
Tensor ternary_kernel(const Op& op, const Tensor& a, const Tensor& b, const Tensor& c, Tensor out = {}) {
  if (!out.defined()) out = empty_preserving_layout(a, a.dtype());
  const auto loop = make_loop<4>(out.shape(), out.numel(), {&out, &a, &b, &c});
  TANDEM_KERNEL(kernel_context(out.device()), ternary, op, out.dtype(), loop, a.data_ptr(), b.data_ptr(), c.data_ptr(),
                out.data_ptr());
  return out;
}

template <class Op>
Tensor ternary(const Op& op, Tensor a, Tensor b, Tensor c) {
  const Call call(Op::kName, CastPolicy::kWidest,
                  {{Op::kArguments[0], &a}, {Op::kArguments[1], &b}, {Op::kArguments[2], &c}});
  promote_operands(a, b);
  promote_operands(a, c);
  convert(b, a.dtype());
  if constexpr (Op::kDTypeRule == DTypeRule::kFloating) check_floating(Op::kName, call.operands[0]);
  if constexpr (requires { op.check(Op::kName, a); }) op.check(Op::kName, a);
  const Shape shape = broadcast_shape(Op::kName, call.operands);
  Tensor out = shape == a.shape() ? empty_preserving_layout(a, a.dtype()) : empty(shape, a.options());
  ternary_kernel(op, a, b, c, out);
  const Tensor* const inputs[] = {&a, &b, &c};
  int saved = 0;
  for (int i = 0; i < 3; ++i) saved |= inputs[i]->requires_grad() ? Op::kSavedFor[i] : 0;
  const auto to_save = [&](int i) { return saved >> i & 1 ? *inputs[i] : Tensor(); };
  const auto gradients = [op, shapes = std::array{a.shape(), b.shape(), c.shape()}](
                             BackwardContext& context, const SavedTensor& x, const SavedTensor& y,
                             const SavedTensor& z) {
    TensorList grads(3);
    for (size_t i = 0; i < 3; ++i) {
      if (!context.needs(static_cast<int>(i))) continue;
      const auto get = [&](int k, const SavedTensor& one) { return Op::kSavedFor[i] >> k & 1 ? one.get() : Tensor(); };
      const Tensor grad = op.backward(static_cast<int>(i), context.grad(), get(0, x), get(1, y), get(2, z));
      grads[i] = sum_to_shape(grad, shapes[i]);
    }
    return grads;
  };
  record_gradient(Op::kName, out, {&a, &b, &c},
                  {{Op::kArguments[0], to_save(0)}, {Op::kArguments[1], to_save(1)}, {Op::kArguments[2], to_save(2)}},
                  gradients);
  return out;
}

// --- in-place forms ------------------------------------------------------------------------------
//
// They record before they write, so that self is unchanged if recording throws.

/// self = op(self). `name` is the name of the in-place form.
template <class Op>
const Tensor& unary_in_place(const char* name, const Op& op, const Tensor& self) {
  const KernelContext context = check_same_device(name, {{"self", self}});
  if constexpr (Op::kDTypeRule == DTypeRule::kNotBool) check_not_bool(name, "self", self);
  Tensor input = self;
  if constexpr (Op::kDTypeRule == DTypeRule::kToFloating) convert(input, floating_or_float32(self.dtype()));
  if constexpr (requires { op.prepare(input); }) op.prepare(input);
  check_in_place(name, self, input.dtype());
  begin_in_place(name, self);
  const bool needs_old = Op::kSaves == Saves::kInput && autograd::should_record(self);
  const Tensor old = needs_old ? clone(self) : Tensor();
  auto* node = autograd::record<UnaryNode<Op>>(name, self, self);
  if (node != nullptr) node->op = op;
  const auto loop = make_loop<2>(self.shape(), self.numel(), {&self, &self});
  TANDEM_KERNEL(context, unary, kernel_of(op), self.dtype(), loop, self.data_ptr(), self.data_ptr());
  autograd::end_in_place(name, self);
  if (node != nullptr && Op::kSaves != Saves::kNothing) node->saved.save(Op::kSaves == Saves::kInput ? old : self);
  return self;
}

/// Defines the in-place form of `name`, a member of Tensor.
#define TANDEM_DEFINE_IN_PLACE(name, Op) \
  const Tensor& Tensor::name##_() const { return ops::unary_in_place(#name "_", functions::Op{}, *this); }
/// Defines the member `name` of Tensor.
#define TANDEM_DEFINE_METHOD(name, ...) \
  Tensor Tensor::name() const { return tandem::name(*this); }

inline constexpr const char* kInPlaceArguments[] = {"self", "other"};

/// self = op(self, other). `name` is the name of the in-place form.
template <class Op>
const Tensor& binary_in_place(const char* name, const Op& op, const Tensor& self, const Tensor& other) {
  const KernelContext context = check_same_device(name, {{"self", self}, {"other", other}});
  check_in_place(name, self, compute_dtype<Op>(result_dtype(self, other)));
  check_binary<Op>(name, kInPlaceArguments, self, other);
  if constexpr (requires { op.check(name, self); }) op.check(name, self);
  const Tensor b = in_place_argument(name, self, other);
  begin_in_place(name, self, b);
  const bool needs_old = (Op::kSavedForB & Op::kA) != 0 && autograd::should_record(b);
  record_binary(name, op, self, self, needs_old ? clone(self) : Tensor(), b);
  run_binary(context, op, self, b, self);
  autograd::end_in_place(name, self);
  return self;
}

template <class Op>
const Tensor& binary_in_place(const char* name, const Op& op, const Tensor& self, Scalar other) {
  const KernelContext context = check_same_device(name, {{"self", self}});
  check_in_place(name, self, compute_dtype<Op>(dtype_with(self, other)));
  check_binary<Op>(name, kInPlaceArguments, self, other);
  begin_in_place(name, self);
  record_binary(name, op, self, self, other);
  run_binary(context, op, self, other, self);
  autograd::end_in_place(name, self);
  return self;
}

}}}  // namespace tandem::v0::ops

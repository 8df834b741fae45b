#include <tandem/ops/math.h>

#include <cmath>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/elementwise/math_kernels.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::convert;
using ops::dtype_with;
using ops::floating_or_float32;
using ops::make_loop;

namespace {

void check_not_bool(const char* op, const char* name, const Tensor& tensor) {
  TANDEM_CHECK(DTypeError, tensor.dtype() != kBool, ops::operand_error(op, "bool is not accepted", {{name, tensor}}));
}

// --- sqrt, rsqrt ---------------------------------------------------------------------------------

Tensor root(const KernelContext& context, RootOp kind, const Tensor& input) {
  Tensor out = empty_preserving_layout(input, input.dtype());
  const auto loop = make_loop<2>(out.shape(), out.num_elements(), {&out, &input});
  TANDEM_KERNEL(context, root, kind, out.dtype(), loop, input.data_ptr(), out.data_ptr());
  return out;
}

struct SqrtNode : Node {
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override { return {div(context.grad(), mul(output.get(), 2))}; }
};

struct RsqrtNode : Node {
  SavedTensor output{*this, "output"};
  TensorList backward(BackwardContext& context) override {
    return {mul(context.grad(), mul(pow(output.get(), 3), -0.5))};
  }
};

}  // namespace

Tensor sqrt(Tensor input) {
  cast_for(CastPolicy::kWidest, {&input});
  const KernelContext context = ops::check_same_device("sqrt", {{"input", input}});
  convert(input, floating_or_float32(input.dtype()));
  Tensor out = root(context, RootOp::kSqrt, input);
  if (auto* node = record<SqrtNode>("sqrt", out, input)) node->output.save(out);
  return out;
}

Tensor rsqrt(Tensor input) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("rsqrt", {{"input", input}});
  convert(input, floating_or_float32(input.dtype()));
  Tensor out = root(context, RootOp::kRsqrt, input);
  if (auto* node = record<RsqrtNode>("rsqrt", out, input)) node->output.save(out);
  return out;
}

// --- pow -----------------------------------------------------------------------------------------

namespace {

struct PowScalarNode : Node {
  SavedTensor input{*this, "input"};
  double exponent = 0;
  TensorList backward(BackwardContext& context) override {
    const Tensor& grad = context.grad();
    if (exponent == 0) return {zeros(grad.shape(), grad.options())};
    return {mul(grad, mul(pow(input.get(), exponent - 1), exponent))};
  }
};

struct PowNode : Node {
  SavedTensor input{*this, "input"};
  SavedTensor exponent{*this, "exponent"};
  SavedTensor output{*this, "output"};
  Shape input_shape, exponent_shape;
  TensorList backward(BackwardContext& context) override {
    TensorList grads(2);
    const Tensor& grad = context.grad();
    const Tensor x = input.get(), e = exponent.get();
    if (context.needs(0)) {
      const Tensor slope = where(eq(e, 0), 0, mul(e, pow(x, sub(e, 1))));
      grads[0] = ops::sum_to_shape(mul(grad, slope), input_shape);
    }
    if (context.needs(1)) {
      // 1 in place of 0, so that the logarithm and its own gradient stay finite there.
      const Tensor base = where(mul(eq(x, 0), ge(e, 0)), 1, x);
      grads[1] = ops::sum_to_shape(mul(grad, mul(output.get(), log(base))), exponent_shape);
    }
    return grads;
  }
};

}  // namespace

Tensor pow(Tensor input, Scalar exponent) {
  cast_for(CastPolicy::kFloat32, {&input});
  const KernelContext context = ops::check_same_device("pow", {{"input", input}});
  check_not_bool("pow", "input", input);
  convert(input, dtype_with(input, exponent));
  TANDEM_CHECK(ValueError, is_floating_point(input.dtype()) || exponent.to_int() >= 0,
               ops::operand_error("pow", str("an integer to the power ", exponent.to_int(), " is no integer"),
                                  {{"input", input}}, {}, "make the exponent a floating number"));
  Tensor out = empty_preserving_layout(input, input.dtype());
  const auto loop = make_loop<2>(out.shape(), out.num_elements(), {&out, &input});
  TANDEM_KERNEL(context, pow, out.dtype(), loop, exponent, input.data_ptr(), out.data_ptr());
  if (auto* node = record<PowScalarNode>("pow", out, input)) {
    node->input.save(input);
    node->exponent = exponent.to_double();
  }
  return out;
}

Tensor pow(Tensor input, Tensor exponent) {
  cast_for(CastPolicy::kFloat32, {&input, &exponent});
  const KernelContext context = ops::check_same_device("pow", {{"input", input}, {"exponent", exponent}});
  ops::promote_operands(input, exponent);
  check_not_bool("pow", "input", input);
  const Shape shape = ops::broadcast_shape("pow", {{"input", input}, {"exponent", exponent}});
  Tensor out = shape == input.shape() ? empty_preserving_layout(input, input.dtype()) : empty(shape, input.options());
  const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &input, &exponent});
  TANDEM_KERNEL(context, pow, out.dtype(), loop, input.data_ptr(), exponent.data_ptr(), out.data_ptr());
  if (!is_floating_point(out.dtype())) return out;
  if (auto* node = record<PowNode>("pow", out, input, exponent)) {
    node->input.save(input);
    node->exponent.save(exponent);
    if (exponent.requires_grad()) node->output.save(out);
    node->input_shape = input.shape();
    node->exponent_shape = exponent.shape();
  }
  return out;
}

// --- clamp ---------------------------------------------------------------------------------------

namespace {

struct Bounds {
  std::optional<Scalar> low, high;
};

Tensor clamp_backward(const Tensor& grad, const Tensor& input, const Bounds& bounds);

/// Linear in grad, flat in input.
struct ClampBackwardNode : Node {
  SavedTensor input{*this, "input"};
  Bounds bounds;
  TensorList backward(BackwardContext& context) override {
    return {clamp_backward(context.grad(), input.get(), bounds)};
  }
};

/// The gradient of clamp, an operation of its own.
Tensor clamp_backward(const Tensor& grad, const Tensor& input, const Bounds& bounds) {
  const KernelContext context = ops::check_same_device("clamp_backward", {{"grad", grad}, {"input", input}});
  Tensor out = empty_preserving_layout(input, input.dtype());
  const auto loop = make_loop<3>(out.shape(), out.num_elements(), {&out, &grad, &input});
  TANDEM_KERNEL(context, clamp_backward, out.dtype(), loop, bounds.low, bounds.high, grad.data_ptr(), input.data_ptr(),
                out.data_ptr());
  if (auto* node = record<ClampBackwardNode>("clamp_backward", out, grad)) {
    node->input.save(input.detach());
    node->bounds = bounds;
  }
  return out;
}

struct ClampNode : Node {
  SavedTensor input{*this, "input"};
  Bounds bounds;
  TensorList backward(BackwardContext& context) override {
    return {clamp_backward(context.grad(), input.get(), bounds)};
  }
};

}  // namespace

Tensor clamp(Tensor input, std::optional<Scalar> min, std::optional<Scalar> max) {
  cast_for(CastPolicy::kWidest, {&input});
  const KernelContext context = ops::check_same_device("clamp", {{"input", input}});
  check_not_bool("clamp", "input", input);
  TANDEM_CHECK(ValueError, min || max, "clamp: at least one of min and max is needed");
  TANDEM_CHECK(ValueError, !min || !std::isnan(min->to_double()), "clamp: min is NaN");
  TANDEM_CHECK(ValueError, !max || !std::isnan(max->to_double()), "clamp: max is NaN");
  if (min) convert(input, dtype_with(input, *min));
  if (max) convert(input, dtype_with(input, *max));
  Tensor out = empty_preserving_layout(input, input.dtype());
  const auto loop = make_loop<2>(out.shape(), out.num_elements(), {&out, &input});
  TANDEM_KERNEL(context, clamp, out.dtype(), loop, min, max, input.data_ptr(), out.data_ptr());
  if (auto* node = record<ClampNode>("clamp", out, input)) {
    node->input.save(input);
    node->bounds = {min, max};
  }
  return out;
}

Tensor Tensor::sqrt() const { return tandem::sqrt(*this); }
Tensor Tensor::pow(Scalar exponent) const { return tandem::pow(*this, exponent); }

}}  // namespace tandem::v0

#include <tandem/ops/conv.h>

#include <string>

#include <tandem/base/trace.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/conv/conv_kernels.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/ops/reduce.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace ops { namespace {

/// A float32 copy of a half tensor, for the CPU kernels.
Tensor widened(const Tensor& tensor) {
  const Tensor copy = empty_preserving_layout(tensor, kFloat32);
  primitives::copy(tensor, copy);
  return copy;
}

Shape input_shape(const ConvGeometry& g) { return {g.batch, g.channels, g.size.height, g.size.width}; }
Shape weight_shape(const ConvGeometry& g) {
  return {g.out_channels, g.group_channels(), g.kernel.height, g.kernel.width};
}
Shape output_shape(const ConvGeometry& g) { return {g.batch, g.out_channels, g.out.height, g.out.width}; }

/// Allocates the workspace of a pass (undefined for 0 bytes) and adds its operations to the trace.
Tensor prepare(const KernelContext& context, ConvPass pass, DType dtype, const ConvGeometry& geometry) {
  trace_work(2 * geometry.work());
  const int64_t bytes = TANDEM_KERNEL(context, conv_workspace_bytes, dtype, pass, geometry);
  return scratch_memory(bytes, context.device);
}

/// conv2d, unrecorded.
Tensor forward(const KernelContext& context, ConvGeometry geometry, const Tensor& input_argument,
               const Tensor& weight_argument, const Tensor& bias_argument, bool relu) {
  const DType dtype = input_argument.dtype();
  geometry.has_bias = bias_argument.defined();
  const Tensor out = empty_channels_last(output_shape(geometry), input_argument.options());
  if (is_half(dtype) && context.device.is_cpu()) {
    primitives::copy(forward(context, geometry, widened(input_argument), widened(weight_argument),
                             bias_argument.defined() ? widened(bias_argument) : Tensor(), relu),
                     out);
    return out;
  }
  const Tensor input = channels_last(input_argument), weight = row_major(weight_argument);
  const Tensor bias = bias_argument.defined() ? row_major(bias_argument) : Tensor();
  const Tensor scratch = prepare(context, ConvPass::kForward, dtype, geometry);
  TANDEM_KERNEL(context, conv_forward, dtype, geometry, input.data_ptr(), weight.data_ptr(), data_or_null(bias), relu,
                data_or_null(scratch), out.data_ptr());
  return out;
}

/// The gradient of the input, unrecorded.
Tensor input_gradient(const ConvGeometry& geometry, const Tensor& grad_argument, const Tensor& weight_argument) {
  const DType dtype = grad_argument.dtype();
  const Tensor out = empty_channels_last(input_shape(geometry), grad_argument.options());
  const KernelContext context = kernel_context(out.device());
  if (is_half(dtype) && context.device.is_cpu()) {
    primitives::copy(input_gradient(geometry, widened(grad_argument), widened(weight_argument)), out);
    return out;
  }
  const Tensor grad = channels_last(grad_argument), weight = row_major(weight_argument);
  const Tensor scratch = prepare(context, ConvPass::kBackwardInput, dtype, geometry);
  TANDEM_KERNEL(context, conv_backward_input, dtype, geometry, grad.data_ptr(), weight.data_ptr(),
                data_or_null(scratch), out.data_ptr());
  return out;
}

/// The gradient of the weight, unrecorded, written into `slot`; returns its tensor.
Tensor weight_gradient(const ConvGeometry& geometry, const Tensor& input_argument, const Tensor& grad_argument,
                       BackwardContext::GradBuffer slot) {
  const DType dtype = grad_argument.dtype();
  const Tensor out = slot.tensor;
  const KernelContext context = kernel_context(out.device());
  if (is_half(dtype) && context.device.is_cpu()) {
    const Tensor wide = slot.accumulate ? widened(out) : empty(out.shape(), {kFloat32, out.device()});
    weight_gradient(geometry, widened(input_argument), widened(grad_argument), {wide, slot.accumulate});
    primitives::copy(wide, out);
    return out;
  }
  const Tensor input = channels_last(input_argument), grad = channels_last(grad_argument);
  const Tensor scratch = prepare(context, ConvPass::kBackwardWeight, dtype, geometry);
  TANDEM_KERNEL(context, conv_backward_weight, dtype, geometry, input.data_ptr(), grad.data_ptr(),
                slot.accumulate ? 1 : 0, data_or_null(scratch), out.data_ptr());
  return out;
}

/// The memory for the gradient of input i: the leaf's slot, or a new row-major tensor.
BackwardContext::GradBuffer slot_or_new(BackwardContext& context, int i, const Shape& shape) {
  BackwardContext::GradBuffer buffer = context.grad_buffer(i);
  if (!buffer.tensor.defined()) buffer = {empty(shape, context.grad().options()), false};
  return buffer;
}

Conv2dOptions options_of(const ConvGeometry& g) { return {g.stride, g.padding, g.dilation, g.groups}; }

// The gradients of input and weight as operations. These two and conv2d are the three derivatives of one function that
// is linear in input, weight and output gradient, so the gradients of each operation are the other two.
Tensor conv2d_input_gradient(const ConvGeometry& geometry, const Tensor& grad, const Tensor& weight);
Tensor conv2d_weight_gradient(const ConvGeometry& geometry, const Tensor& input, const Tensor& grad);

Tensor conv2d_input_gradient(const ConvGeometry& geometry, const Tensor& grad, const Tensor& weight) {
  const Tensor out = input_gradient(geometry, grad, weight);

  struct InputGradientNode : Node {
    SavedTensor grad{*this, "grad"}, weight{*this, "weight"};
    ConvGeometry geometry;

    TensorList backward(BackwardContext& context) override {
      TensorList grads(2);
      if (context.needs(0)) grads[0] = conv2d(context.grad(), weight.get(), {}, options_of(geometry));
      if (context.needs(1)) grads[1] = conv2d_weight_gradient(geometry, context.grad(), grad.get());
      return grads;
    }
  };
  if (auto* node = autograd::record<InputGradientNode>("conv2d_backward_input", out, grad, weight)) {
    node->grad.save(grad);
    node->weight.save(weight);
    node->geometry = geometry;
  }
  return out;
}

Tensor conv2d_weight_gradient(const ConvGeometry& geometry, const Tensor& input, const Tensor& grad) {
  const Tensor out =
      weight_gradient(geometry, input, grad, {empty(weight_shape(geometry), grad.options()), /*accumulate=*/false});

  struct WeightGradientNode : Node {
    SavedTensor input{*this, "input"}, grad{*this, "grad"};
    ConvGeometry geometry;

    TensorList backward(BackwardContext& context) override {
      TensorList grads(2);
      if (context.needs(0)) grads[0] = conv2d_input_gradient(geometry, grad.get(), context.grad());
      if (context.needs(1)) grads[1] = conv2d(input.get(), context.grad(), {}, options_of(geometry));
      return grads;
    }
  };
  if (auto* node = autograd::record<WeightGradientNode>("conv2d_backward_weight", out, input, grad)) {
    node->input.save(input);
    node->grad.save(grad);
    node->geometry = geometry;
  }
  return out;
}

/// Sum over batch, height and width, recorded.
Tensor channel_sums(const Tensor& grad) { return sum(grad, {0, 2, 3}); }

/// channel_sums, unrecorded, written into the slot of input 2.
Tensor bias_gradient(BackwardContext& context, const ConvGeometry& geometry) {
  const Tensor grad = channels_last(context.grad());
  const auto [slot, accumulate] = slot_or_new(context, 2, {geometry.out_channels});
  const KernelContext kernels = kernel_context(slot.device());
  const int64_t rows = geometry.out_pixels(), cols = geometry.out_channels;
  const Tensor scratch =
      scratch_memory(TANDEM_KERNEL(kernels, sum_rows_workspace_bytes, slot.dtype(), rows, cols), slot.device());
  TANDEM_KERNEL(kernels, sum_rows, slot.dtype(), slot.dtype(), rows, cols, grad.data_ptr(), accumulate ? 1 : 0,
                data_or_null(scratch), slot.data_ptr());
  return slot;
}

/// The gradients of input and weight for the gradient `grad` of a convolution's output.
struct ConvNodeBase : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"};
  ConvGeometry geometry;

  void save(const Tensor& input_argument, const Tensor& weight_argument, const ConvGeometry& sizes) {
    if (weight_argument.requires_grad()) input.save(input_argument);
    if (input_argument.requires_grad()) weight.save(weight_argument);
    geometry = sizes;
  }

  void operand_gradients(BackwardContext& context, const Tensor& grad, TensorList& grads) {
    if (context.create_graph()) {
      if (context.needs(0)) grads[0] = conv2d_input_gradient(geometry, grad, weight.get());
      if (context.needs(1)) grads[1] = conv2d_weight_gradient(geometry, input.get(), grad);
      return;
    }
    if (context.needs(1)) {  // first, because its communication can overlap the gradient of the input
      grads[1] = weight_gradient(geometry, input.get(), grad, slot_or_new(context, 1, weight_shape(geometry)));
      context.notify_ready(1, grads[1]);
    }
    if (context.needs(0)) grads[0] = input_gradient(geometry, grad, weight.get());
  }
};

/// Number of results along one side; throws if it is below 1 or sizes overflow.
int64_t out_size(const char* op, const char* side, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                 int64_t dilation, Operands operands) {
  int64_t padded = 0, extent = 0;
  TANDEM_CHECK(ShapeError,
               !__builtin_mul_overflow(padding, 2, &padded) && !__builtin_add_overflow(padded, size, &padded) &&
                   !__builtin_mul_overflow(dilation, kernel - 1, &extent) &&
                   !__builtin_add_overflow(extent, 1, &extent),
               operand_error(op, str("the padded ", side, " or the filters' ", side, " overflows int64"), operands));
  TANDEM_CHECK(ShapeError, extent <= padded,
               operand_error(op,
                             str("filters of ", side, " ", extent, " do not fit into an input of ", side, " ", padded,
                                 ", padding included"),
                             operands));
  return (padded - extent) / stride + 1;
}

void check_option(const char* op, const char* name, Size2d value, int64_t least) {
  TANDEM_CHECK(ValueError, value.height >= least && value.width >= least, op, ": ", name, " must be at least ", least,
               ", it is ", value);
}

/// Checks and forward of conv2d and conv2d_relu; the arguments are replaced by their casts under autocast.
Tensor checked_forward(const char* op, Tensor& input, Tensor& weight, Tensor& bias, const Conv2dOptions& options,
                       bool relu, ConvGeometry& geometry) {
  cast_for(CastPolicy::kLowPrecision, {&input, &weight, &bias});
  auto check = [&](Operands operands) {
    KernelContext context = check_same_device(op, operands);
    check_same_dtype(op, operands);
    check_floating(op, *operands.begin());
    TANDEM_CHECK(ShapeError, input.dim() == 4,
                 operand_error(op, "input must have 4 dimensions, [batch, channels, height, width]", operands));
    TANDEM_CHECK(ShapeError, weight.dim() == 4,
                 operand_error(op, "weight must have 4 dimensions, [out, in / groups, height, width]", operands));
    check_option(op, "stride", options.stride, 1);
    check_option(op, "padding", options.padding, 0);
    check_option(op, "dilation", options.dilation, 1);
    TANDEM_CHECK(ValueError, options.groups >= 1, op, ": groups must be at least 1, it is ", options.groups);
    TANDEM_CHECK(ShapeError, weight.size(2) > 0 && weight.size(3) > 0,
                 operand_error(op, "the kernel size of weight must be at least 1", operands));
    TANDEM_CHECK(ShapeError, input.size(1) % options.groups == 0 && weight.size(0) % options.groups == 0,
                 operand_error(op,
                               str(input.size(1), " channels of the input and ", weight.size(0),
                                   " filters are not divisible into ", options.groups, " groups"),
                               operands));
    TANDEM_CHECK(ShapeError, input.size(1) / options.groups == weight.size(1),
                 operand_error(op,
                               str("weight must have ", input.size(1) / options.groups, " channels, as many as ",
                                   options.groups == 1 ? "the input" : "a group of the input"),
                               operands));
    TANDEM_CHECK(ShapeError, !bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
                 operand_error(op, str("bias must have shape [", weight.size(0), "]"), operands));
    geometry = {.batch = input.size(0),
                .channels = input.size(1),
                .size = {input.size(2), input.size(3)},
                .out_channels = weight.size(0),
                .kernel = {weight.size(2), weight.size(3)},
                .stride = options.stride,
                .padding = options.padding,
                .dilation = options.dilation,
                .groups = options.groups};
    const ConvGeometry& g = geometry;
    geometry.out = {out_size(op, "height", g.size.height, g.kernel.height, g.stride.height, g.padding.height,
                             g.dilation.height, operands),
                    out_size(op, "width", g.size.width, g.kernel.width, g.stride.width, g.padding.width,
                             g.dilation.width, operands)};
    return context;
  };
  const KernelContext context = bias.defined() ? check({{"input", input}, {"weight", weight}, {"bias", bias}})
                                               : check({{"input", input}, {"weight", weight}});
  return forward(context, geometry, input, weight, bias, relu);
}

}}  // namespace ops

using namespace ops;

Tensor conv2d(const Tensor& input_argument, const Tensor& weight_argument, const Tensor& bias_argument,
              Conv2dOptions options) {
  Tensor input = input_argument, weight = weight_argument, bias = bias_argument;
  ConvGeometry geometry;
  const Tensor out = checked_forward("conv2d", input, weight, bias, options, false, geometry);

  struct ConvNode : ConvNodeBase {
    TensorList backward(BackwardContext& context) override {
      TensorList grads(num_inputs());
      if (num_inputs() == 3 && context.needs(2)) {
        grads[2] = context.create_graph() ? channel_sums(context.grad()) : bias_gradient(context, geometry);
        context.notify_ready(2, grads[2]);
      }
      operand_gradients(context, context.grad(), grads);
      return grads;
    }
  };
  auto* node = bias.defined() ? autograd::record<ConvNode>("conv2d", out, input, weight, bias)
                              : autograd::record<ConvNode>("conv2d", out, input, weight);
  if (node != nullptr) node->save(input, weight, geometry);
  return out;
}

Tensor conv2d_relu(const Tensor& input_argument, const Tensor& weight_argument, const Tensor& bias_argument,
                   Conv2dOptions options) {
  Tensor input = input_argument, weight = weight_argument, bias = bias_argument;
  ConvGeometry geometry;
  const Tensor out = checked_forward("conv2d_relu", input, weight, bias, options, true, geometry);

  struct ConvReluNode : ConvNodeBase {
    SavedTensor output{*this, "output"};

    TensorList backward(BackwardContext& context) override {
      TensorList grads(num_inputs());
      const bool needs_bias = num_inputs() == 3 && context.needs(2);
      const Tensor result = output.get();
      if (context.create_graph()) {
        const Tensor masked = ops::relu_backward(context.grad(), result.detach());
        operand_gradients(context, masked, grads);
        if (needs_bias) grads[2] = channel_sums(masked);
        return grads;
      }
      const Tensor grad = channels_last(context.grad());
      const Tensor masked = empty_channels_last(result.shape(), result.options());
      BackwardContext::GradBuffer bias_slot;
      if (needs_bias) bias_slot = slot_or_new(context, 2, {geometry.out_channels});
      const KernelContext kernels = kernel_context(masked.device());
      const int64_t rows = geometry.out_pixels(), cols = geometry.out_channels;
      const Tensor scratch =
          scratch_memory(TANDEM_KERNEL(kernels, sum_rows_workspace_bytes, masked.dtype(), rows, cols), masked.device());
      TANDEM_KERNEL(kernels, mask_and_sum_rows, masked.dtype(), masked.dtype(), rows, cols, grad.data_ptr(),
                    result.data_ptr(), bias_slot.accumulate ? 1 : 0, masked.data_ptr(), data_or_null(scratch),
                    data_or_null(bias_slot.tensor));
      if (needs_bias) {
        grads[2] = bias_slot.tensor;
        context.notify_ready(2, grads[2]);
      }
      operand_gradients(context, masked, grads);
      return grads;
    }
  };
  auto* node = bias.defined() ? autograd::record<ConvReluNode>("conv2d_relu", out, input, weight, bias)
                              : autograd::record<ConvReluNode>("conv2d_relu", out, input, weight);
  if (node != nullptr) {
    node->save(input, weight, geometry);
    node->output.save(out);
  }
  return out;
}

}}  // namespace tandem::v0

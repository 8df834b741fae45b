#include <tandem/ops/conv.h>

#include <algorithm>
#include <limits>
#include <string>

#include <tandem/base/trace.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/conv/conv_kernels.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/matmul/product.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace ops { namespace {

Shape input_shape(const ConvGeometry& g) { return {g.batch, g.channels, g.size.height, g.size.width}; }
Shape weight_shape(const ConvGeometry& g) {
  return {g.out_channels, g.group_channels(), g.kernel.height, g.kernel.width};
}
Shape output_shape(const ConvGeometry& g) { return {g.batch, g.out_channels, g.out.height, g.out.width}; }

/// The dtype in which the kernel computes a pass.
DType conv_dtype(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry) {
  return context.device.is_cpu() && has_half_conv(dtype, pass, geometry) ? dtype : kernel_dtype(context, dtype);
}

/// Allocates the workspace of a pass (undefined for 0 bytes) and adds its operations to the trace.
Tensor prepare(const KernelContext& context, ConvPass pass, DType dtype, const ConvGeometry& geometry) {
  trace_work(2 * geometry.work());
  const int64_t bytes = TANDEM_KERNEL(context, conv_workspace_bytes, dtype, pass, geometry);
  return scratch_memory(bytes, context.device);
}

/// conv2d, or with `is_transposed` the gradient of its input for the gradient `input_argument` of its output, plus a
/// bias; unrecorded.
Tensor convolved(bool is_transposed, ConvGeometry geometry, const Tensor& input_argument, const Tensor& weight_argument,
                 const Tensor& bias_argument = {}, bool relu = false) {
  geometry.has_bias = bias_argument.defined();
  const Shape shape = is_transposed ? input_shape(geometry) : output_shape(geometry);
  const Tensor out = empty_channels_last(shape, input_argument.options());
  const KernelContext context = kernel_context(out.device());
  const ConvPass pass = is_transposed ? ConvPass::kBackwardInput : ConvPass::kForward;
  const DType dtype = conv_dtype(context, out.dtype(), pass, geometry);
  const Tensor input = channels_last(converted(input_argument, dtype));
  const Tensor weight = row_major(converted(weight_argument, dtype)), bias = row_major(converted(bias_argument, dtype));
  const Tensor result = out.dtype() == dtype ? out : empty_preserving_layout(out, dtype);
  const Tensor scratch = prepare(context, pass, dtype, geometry);
  if (is_transposed) {
    TANDEM_KERNEL(context, conv_backward_input, dtype, geometry, input.data_ptr(), weight.data_ptr(),
                  data_or_null(bias), data_or_null(scratch), result.data_ptr());
  } else {
    TANDEM_KERNEL(context, conv_forward, dtype, geometry, input.data_ptr(), weight.data_ptr(), data_or_null(bias), relu,
                  data_or_null(scratch), result.data_ptr());
  }
  if (!result.is_same(out)) primitives::copy(result, out);
  return out;
}

/// The gradient of the weight, unrecorded, written into `slot`; returns its tensor.
Tensor weight_gradient(const ConvGeometry& geometry, const Tensor& input_argument, const Tensor& grad_argument,
                       BackwardContext::GradBuffer slot) {
  const Tensor out = slot.tensor;
  const KernelContext context = kernel_context(out.device());
  const DType dtype = conv_dtype(context, grad_argument.dtype(), ConvPass::kBackwardWeight, geometry);
  const Tensor input = channels_last(converted(input_argument, dtype)),
               grad = channels_last(converted(grad_argument, dtype));
  const bool is_input = slot.accumulate || out.dtype() == dtype;
  const Tensor result = is_input ? converted(out, dtype) : empty_preserving_layout(out, dtype);
  const Tensor scratch = prepare(context, ConvPass::kBackwardWeight, dtype, geometry);
  TANDEM_KERNEL(context, conv_backward_weight, dtype, geometry, input.data_ptr(), grad.data_ptr(),
                slot.accumulate ? 1 : 0, data_or_null(scratch), result.data_ptr());
  if (!result.is_same(out)) primitives::copy(result, out);
  return out;
}

// The three derivatives of one function that is linear in input, weight and output gradient, recorded: the gradients of
// each are the other two.

/// conv2d, or its transpose: the gradient of the input, with the gradient of the output as `input`.
Tensor convolve(const ConvGeometry& geometry, bool is_transposed, const Tensor& input, const Tensor& weight);
Tensor conv2d_weight_gradient(const ConvGeometry& geometry, const Tensor& input, const Tensor& grad);

/// Sum over batch, height and width, recorded.
Tensor channel_sums(const Tensor& grad) { return sum(grad, {0, 2, 3}); }

/// The channels of each pixel as a row.
Matrix pixels_of(const Tensor& images) {
  const int64_t channels = images.size(1);
  return {channels_last(images), images.size(0) * images.size(2) * images.size(3), channels, channels, 1};
}

/// A convolution or transposed convolution.
struct ConvNode : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"};
  ConvGeometry geometry;
  bool is_transposed = false;

  TensorList backward(BackwardContext& context) override {
    TensorList grads(num_inputs());
    if (num_inputs() == 3 && context.needs(2)) {
      const Tensor& grad = context.grad();
      grads[2] =
          context.create_graph() ? channel_sums(grad) : sum_rows_gradient(context, 2, grad.dtype(), pixels_of(grad));
      context.notify_ready(2, grads[2]);
    }
    operand_gradients(context, context.grad(), grads);
    return grads;
  }

  /// The gradients of input and weight for the gradient `grad` of the result.
  void operand_gradients(BackwardContext& context, const Tensor& grad, TensorList& grads) {
    if (context.needs(1)) {  // first, because its communication can overlap the gradient of the input
      const Tensor& saved = input.get();
      const Tensor &from = is_transposed ? grad : saved, &to = is_transposed ? saved : grad;
      grads[1] = context.create_graph() ? conv2d_weight_gradient(geometry, from, to)
                                        : weight_gradient(geometry, from, to,
                                                          context.grad_buffer(1, weight_shape(geometry), grad.dtype()));
      context.notify_ready(1, grads[1]);
    }
    if (!context.needs(0)) return;
    if (context.create_graph()) {
      grads[0] = convolve(geometry, !is_transposed, grad, weight.get());
    } else {
      grads[0] = convolved(!is_transposed, geometry, grad, weight.get());
    }
  }
};

/// Records a convolution as an N, a ConvNode.
template <class N>
N* record_conv(const char* op, const ConvGeometry& geometry, bool is_transposed, const Tensor& out, const Tensor& input,
               const Tensor& weight, const Tensor& bias = {}) {
  N* node =
      bias.defined() ? autograd::record<N>(op, out, input, weight, bias) : autograd::record<N>(op, out, input, weight);
  if (node == nullptr) return node;
  if (weight.requires_grad()) node->input.save(input);
  if (input.requires_grad()) node->weight.save(weight);
  node->geometry = geometry;
  node->is_transposed = is_transposed;
  return node;
}

Tensor convolve(const ConvGeometry& geometry, bool is_transposed, const Tensor& input, const Tensor& weight) {
  const Tensor out = convolved(is_transposed, geometry, input, weight);
  record_conv<ConvNode>(is_transposed ? "conv2d_backward_input" : "conv2d", geometry, is_transposed, out, input,
                        weight);
  return out;
}

Tensor conv2d_weight_gradient(const ConvGeometry& geometry, const Tensor& input, const Tensor& grad) {
  const Tensor out =
      weight_gradient(geometry, input, grad, {empty(weight_shape(geometry), grad.options()), /*accumulate=*/false});
  const auto gradients = [geometry](BackwardContext& context, const SavedTensor& x, const SavedTensor& g) {
    return TensorList{
        context.needs(0) ? convolve(geometry, /*is_transposed=*/true, g.get(), context.grad()) : Tensor(),
        context.needs(1) ? convolve(geometry, /*is_transposed=*/false, x.get(), context.grad()) : Tensor()};
  };
  record_gradient("conv2d_backward_weight", out, {&input, &grad}, {{"input", input}, {"grad", grad}}, gradients);
  return out;
}

/// conv2d_relu.
struct ConvReluNode : ConvNode {
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
    operand_gradients(
        context,
        activation_gradient(context, FusedActivation::kRelu, pixels_of(context.grad()), result, result.dtype(), grads),
        grads);
    return grads;
  }
};

/// A call of a public function. With one spatial dimension, options are widths, of images of height 1.
struct Convolution {
  const char* op;
  int64_t sides = 2;  ///< spatial dimensions
  bool is_transposed = false;
  bool relu = false;
  Size2d stride = 1;
  ConvPadding padding = 0;
  Size2d output_padding = 0;
  Size2d dilation = 1;
  int64_t groups = 1;

  std::string text(Size2d option) const { return sides == 1 ? str(option.width) : str(option); }
  void check_option(const char* name, Size2d value, int64_t least) const {
    TANDEM_CHECK(ValueError, value.height >= least && value.width >= least, op, ": ", name, " is ", text(value),
                 ", expected at least ", least);
  }
  void check_options() const;
  ConvGeometry check(const Call& call, const Tensor& input, const Tensor& weight, const Tensor& bias) const;
  Tensor run(Tensor input, Tensor weight, Tensor bias) const;
};

/// Throws ValueError for an option out of range.
void Convolution::check_options() const {
  check_option("stride", stride, 1);
  check_option("padding", padding.size(), 0);
  check_option("dilation", dilation, 1);
  check_option("output_padding", output_padding, 0);
  TANDEM_CHECK(ValueError, groups >= 1, op, ": groups is ", groups, ", expected at least 1");
  TANDEM_CHECK(ValueError, !padding.is_same() || stride == Size2d(1), op, ": stride is ", text(stride),
               ", expected 1 if padding is kSame");
  TANDEM_CHECK(ValueError,
               output_padding.height < std::max(stride.height, dilation.height) &&
                   output_padding.width < std::max(stride.width, dilation.width),
               op, ": output_padding is ", text(output_padding), ", expected less than stride ", text(stride),
               " or dilation ", text(dilation));
}

/// The geometry of the convolution, or of the one whose transpose is called. Throws ShapeError and ValueError.
ConvGeometry Convolution::check(const Call& call, const Tensor& input, const Tensor& weight, const Tensor& bias) const {
  const char* const sizes = sides == 1 ? "length]" : "height, width]";
  call.require(input.dim() == sides + 2 || input.dim() == sides + 1, "input must have ", sides + 2,
               " dimensions, [batch, channels, ", sizes, ", or ", sides + 1, " without batch");
  call.require(weight.dim() == sides + 2, "weight must have ", sides + 2, " dimensions, ",
               is_transposed ? "[in, out / groups, " : "[out, in / groups, ", sizes);
  check_options();
  const int64_t channels = input.size(-sides - 1);
  const Size2d kernel(sides == 1 ? 1 : weight.size(2), weight.size(-1));
  call.require(kernel.height > 0 && kernel.width > 0, "the kernel size of weight must be at least 1");
  if (is_transposed) {
    call.require(channels % groups == 0, channels, " channels of the input are not divisible into ", groups, " groups");
    call.require(weight.size(0) == channels, "weight must have ", channels,
                 " filters, as many as the input has channels");
  } else {
    call.require(channels % groups == 0 && weight.size(0) % groups == 0, channels, " channels of the input and ",
                 weight.size(0), " filters are not divisible into ", groups, " groups");
    call.require(channels / groups == weight.size(1), "weight must have ", channels / groups, " channels, as many as ",
                 groups == 1 ? "the input" : "a group of the input");
  }
  const int64_t results = is_transposed ? weight.size(1) * groups : weight.size(0);
  call.require(!bias.defined() || (bias.dim() == 1 && bias.size(0) == results), "bias must have shape [", results, "]");

  const Size2d size(sides == 1 ? 1 : input.size(-2), input.size(-1));
  ConvGeometry g{.batch = input.dim() == sides + 2 ? input.size(0) : 1,
                 .channels = is_transposed ? results : channels,
                 .size = size,
                 .out_channels = is_transposed ? channels : results,
                 .out = size,
                 .kernel = kernel,
                 .stride = stride,
                 .padding = padding.size(),
                 .dilation = dilation,
                 .groups = groups};
  // Sets the size of the result along one side, and the padding for kSame. 128 bits, so that nothing overflows.
  const auto set_side = [&](const char* side, int64_t Size2d::*member) {
    using Wide = __int128;
    constexpr Wide kMax = std::numeric_limits<int64_t>::max();
    const Wide extent = Wide{g.dilation.*member} * (g.kernel.*member - 1) + 1;
    const Wide zeros = padding.is_same() ? extent - 1 : 2 * Wide{g.padding.*member};
    if (is_transposed) {
      const Wide least = Wide{size.*member - 1} * (g.stride.*member) - zeros + extent + output_padding.*member;
      call.require(size.*member >= 1, "the ", side, " of input must be at least 1");
      call.require(least <= kMax, "the ", side, " of the result overflows int64");
      call.require(least >= 1, "the ", side, " of the result would be ", static_cast<int64_t>(std::max(least, -kMax)),
                   ", expected at least 1");
      g.size.*member = static_cast<int64_t>(least);
      return;
    }
    const Wide padded = size.*member + zeros;
    call.require(padded <= kMax && extent <= kMax, "the padded ", side, " or the filters' ", side, " overflows int64");
    call.require(extent <= padded, "filters of ", side, " ", static_cast<int64_t>(extent),
                 " do not fit into an input of ", side, " ", static_cast<int64_t>(padded), ", padding included");
    g.padding.*member = static_cast<int64_t>(zeros / 2);
    g.out.*member = static_cast<int64_t>((padded - extent) / (g.stride.*member)) + 1;
  };
  if (sides == 2) set_side("height", &Size2d::height);
  set_side(sides == 1 ? "length" : "width", &Size2d::width);
  return g;
}

Tensor Convolution::run(Tensor input, Tensor weight, Tensor bias) const {
  const Call call(op, CastPolicy::kLowPrecision, {{"input", &input}, {"weight", &weight}, {"bias", &bias, kOptional}},
                  DTypes::kSameFloating);
  const ConvGeometry geometry = check(call, input, weight, bias);
  const bool has_batch = input.dim() == sides + 2;
  if (!has_batch) input = unsqueeze(input, 0);
  if (sides == 1) {
    input = unsqueeze(input, 2);
    weight = unsqueeze(weight, 2);
  }
  Tensor out = convolved(is_transposed, geometry, input, weight, bias, relu);
  if (relu) {
    if (auto* node = record_conv<ConvReluNode>(op, geometry, is_transposed, out, input, weight, bias)) {
      node->output.save(out);
    }
  } else {
    record_conv<ConvNode>(op, geometry, is_transposed, out, input, weight, bias);
  }
  if (sides == 1) out = squeeze(out, 2);
  return has_batch ? out : squeeze(out, 0);
}

Convolution convolution_of(const char* op, const Conv2dOptions& options, bool relu) {
  return {.op = op,
          .relu = relu,
          .stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation,
          .groups = options.groups};
}

}}  // namespace ops

using ops::Convolution;

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, Conv2dOptions options) {
  return ops::convolution_of("conv2d", options, /*relu=*/false).run(input, weight, bias);
}

Tensor conv2d_relu(const Tensor& input, const Tensor& weight, const Tensor& bias, Conv2dOptions options) {
  return ops::convolution_of("conv2d_relu", options, /*relu=*/true).run(input, weight, bias);
}

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, Conv1dOptions options) {
  const Size2d padding = options.padding.size();
  TANDEM_CHECK(ValueError, padding.height == padding.width, "conv1d: padding is ", padding, ", expected one number");
  return Convolution{.op = "conv1d",
                     .sides = 1,
                     .stride = {1, options.stride},
                     .padding = options.padding.is_same() ? options.padding : ConvPadding(0, padding.width),
                     .dilation = {1, options.dilation},
                     .groups = options.groups}
      .run(input, weight, bias);
}

Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias, ConvTranspose2dOptions options) {
  return Convolution{.op = "conv_transpose2d",
                     .is_transposed = true,
                     .stride = options.stride,
                     .padding = options.padding,
                     .output_padding = options.output_padding,
                     .dilation = options.dilation,
                     .groups = options.groups}
      .run(input, weight, bias);
}

Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias, ConvTranspose1dOptions options) {
  return Convolution{.op = "conv_transpose1d",
                     .sides = 1,
                     .is_transposed = true,
                     .stride = {1, options.stride},
                     .padding = {0, options.padding},
                     .output_padding = {0, options.output_padding},
                     .dilation = {1, options.dilation},
                     .groups = options.groups}
      .run(input, weight, bias);
}

}}  // namespace tandem::v0

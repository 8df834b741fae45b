#include <tandem/ops/pool.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <tandem/ops/common/common.h>
#include <tandem/ops/pool/pool_kernels.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// Limit for kernel sizes, strides, paddings and image sides, so that sums and products of two of them do not overflow.
constexpr int64_t kMaxSide = std::numeric_limits<int32_t>::max();

[[nodiscard]] KernelContext check_image(const char* op, const Tensor& input) {
  KernelContext context = check_same_device(op, {{"input", input}});
  check_floating(op, {"input", input});
  TANDEM_CHECK(ShapeError, input.dim() == 4, operand_error(op, "input must be [N, C, H, W]", {{"input", input}}));
  TANDEM_CHECK(ShapeError, input.shape()[2] > 0 && input.shape()[3] > 0,
               operand_error(op, "the image is empty", {{"input", input}}));
  TANDEM_CHECK(ShapeError, input.shape()[2] <= kMaxSide && input.shape()[3] <= kMaxSide,
               operand_error(op, str("the image has a side above ", kMaxSide), {{"input", input}}));
  return context;
}

void check_between(const char* op, const char* name, Size2d size, int64_t least) {
  TANDEM_CHECK(ValueError, size.height >= least && size.width >= least, op, ": ", name, " ", size, " is below ", least);
  TANDEM_CHECK(ValueError, size.height <= kMaxSide && size.width <= kMaxSide, op, ": ", name, " ", size, " is above ",
               kMaxSide);
}

/// Number of windows along one axis; `axis` is "height" or "width".
int64_t count_windows(const char* op, const char* axis, const Tensor& input, int64_t image, int64_t kernel,
                      int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t extent = dilation * (kernel - 1) + 1;
  const int64_t room = image + 2 * padding - extent;
  TANDEM_CHECK(
      ShapeError, room >= 0,
      operand_error(
          op, str("the window's ", axis, " ", extent, " exceeds the padded image's ", axis, " ", image + 2 * padding),
          {{"input", input}}));
  int64_t windows = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (windows - 1) * stride >= image + padding) --windows;
  return windows;
}

void check_window(const char* op, Size2d kernel, Size2d stride, Size2d padding) {
  check_between(op, "kernel_size", kernel, 1);
  check_between(op, "stride", stride, 1);
  check_between(op, "padding", padding, 0);
  TANDEM_CHECK(ValueError, 2 * padding.height <= kernel.height && 2 * padding.width <= kernel.width, op, ": padding ",
               padding, " is more than half of kernel_size ", kernel);
}

/// The tensor in the requested memory order: channels-last or row-major.
Tensor in_order(const Tensor& tensor, bool channels_last) {
  return channels_last ? ops::channels_last(tensor) : row_major(tensor);
}
Tensor empty_in_order(const Shape& shape, const Tensor& like, bool channels_last) {
  return channels_last ? empty_channels_last(shape, like.options()) : empty(shape, like.options());
}

/// Whether channels are the innermost loop. If both memory orders are the same (one channel, or one pixel), the longer
/// of the two dimensions is innermost.
bool has_inner_channels(const Tensor& input) {
  return is_channels_last(input) && !(input.is_contiguous() && input.shape()[1] == 1);
}

// --- max -----------------------------------------------------------------------------------------

Shape image_shape(const MaxPoolShape& s) { return {s.batch, s.channels, s.height.image, s.width.image}; }
Shape windows_shape(const MaxPoolShape& s) { return {s.batch, s.channels, s.height.windows, s.width.windows}; }

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, const MaxPoolShape& shape);

/// The elements of `input` that were the largest of their windows; linear in input.
Tensor take_largest(const Tensor& input, const Tensor& indices, const MaxPoolShape& shape) {
  const Tensor dense = in_order(input, shape.channels_last);
  const Tensor out = empty_in_order(windows_shape(shape), input, shape.channels_last);
  TANDEM_KERNEL(kernel_context(input.device()), take_at, input.dtype(), shape, dense.data_ptr(), indices.data_ptr(),
                out.data_ptr());

  struct TakeLargestNode : Node {
    SavedTensor indices{*this, "indices"};
    MaxPoolShape shape;
    TensorList backward(BackwardContext& context) override {
      return {max_pool_backward(context.grad(), indices.get(), shape)};
    }
  };
  if (auto* node = autograd::record<TakeLargestNode>("max_pool2d_backward", out, input)) {
    node->indices.save(indices);
    node->shape = shape;
  }
  return out;
}

/// The gradient of max_pool2d, linear in grad.
Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, const MaxPoolShape& shape) {
  const Tensor dense = in_order(grad, shape.channels_last);
  const Tensor out = empty_in_order(image_shape(shape), grad, shape.channels_last);
  TANDEM_KERNEL(kernel_context(grad.device()), max_pool_backward, grad.dtype(), shape, dense.data_ptr(),
                indices.data_ptr(), out.data_ptr());

  struct MaxPoolBackwardNode : Node {
    SavedTensor indices{*this, "indices"};
    MaxPoolShape shape;
    TensorList backward(BackwardContext& context) override {
      return {take_largest(context.grad(), indices.get(), shape)};
    }
  };
  if (auto* node = autograd::record<MaxPoolBackwardNode>("max_pool2d_backward", out, grad)) {
    node->indices.save(indices);
    node->shape = shape;
  }
  return out;
}

struct MaxPoolNode : Node {
  SavedTensor indices{*this, "indices"};
  MaxPoolShape shape;
  TensorList backward(BackwardContext& context) override {
    return {max_pool_backward(context.grad(), indices.get(), shape)};
  }
};

}  // namespace

Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options) {
  const KernelContext context = check_image("max_pool2d", input);
  const Size2d stride = options.stride.value_or(kernel_size), padding = options.padding, dilation = options.dilation;
  check_window("max_pool2d", kernel_size, stride, padding);
  check_between("max_pool2d", "dilation", dilation, 1);
  TANDEM_CHECK(ValueError, kernel_size.height <= kMaxSide / kernel_size.width, "max_pool2d: kernel_size ", kernel_size,
               " has more than ", kMaxSide, " elements");
  const auto axis = [&](const char* name, int64_t image, int64_t Size2d::*side) {
    const int64_t windows = count_windows("max_pool2d", name, input, image, kernel_size.*side, stride.*side,
                                          padding.*side, dilation.*side, options.ceil_mode);
    return MaxPoolAxis{image, windows, kernel_size.*side, stride.*side, padding.*side, dilation.*side};
  };
  const MaxPoolShape shape = {input.shape()[0], input.shape()[1], axis("height", input.shape()[2], &Size2d::height),
                              axis("width", input.shape()[3], &Size2d::width), has_inner_channels(input)};
  const bool records = autograd::should_record(input);
  const Tensor dense = in_order(input, shape.channels_last);
  const Tensor out = empty_in_order(windows_shape(shape), input, shape.channels_last);
  const Tensor indices = records ? empty(windows_shape(shape), {index_dtype(shape.kernel_elements()), input.device()})
                                 : Tensor();  // in the memory order of `out`
  TANDEM_KERNEL(context, max_pool, input.dtype(), shape, dense.data_ptr(), out.data_ptr(),
                records ? indices.data_ptr() : nullptr);
  if (auto* node = autograd::record<MaxPoolNode>("max_pool2d", out, input)) {
    node->indices.save(indices);
    node->shape = shape;
  }
  return out;
}

// --- mean ----------------------------------------------------------------------------------------

namespace {

/// Owns the arrays of an AvgPoolTable, on the device. Those of windows, or of the image, are omitted if there are no
/// elements: one side may be long and another 0.
class MeanTable {
 public:
  MeanTable() = default;
  MeanTable(const AvgPoolAxis& axis, Device device, bool has_windows, bool has_image) : axis_(axis) {
    const auto list = [&](bool needed, int64_t n, int64_t (AvgPoolAxis::*f)(int64_t) const) {
      const Tensor values = empty({needed ? n : 0}, {kInt64, device});
      int64_t* const out = values.data<int64_t>();
      for (int64_t i = 0; i < values.num_elements(); ++i) out[i] = (axis.*f)(i);
      return values;
    };
    begin_ = list(has_windows, axis.windows, &AvgPoolAxis::begin);
    end_ = list(has_windows, axis.windows, &AvgPoolAxis::end);
    size_ = list(has_windows, axis.windows, &AvgPoolAxis::size);
    first_ = list(has_image, axis.image, &AvgPoolAxis::first);
    last_ = list(has_image, axis.image, &AvgPoolAxis::last);
  }

  AvgPoolTable table() const {
    const auto data = [](const Tensor& list) { return list.defined() ? list.data<int64_t>() : nullptr; };
    return {axis_.image, axis_.windows, data(begin_), data(end_), data(size_), data(first_), data(last_)};
  }

 private:
  AvgPoolAxis axis_;
  Tensor begin_, end_, size_, first_, last_;
};

/// The windows of an operation.
struct MeanPlan {
  AvgPoolShape<AvgPoolAxis> shape;
  MeanTable height, width;  // empty on GPUs

  AvgPoolWindows windows() const {
    return {shape, {shape.batch, shape.channels, height.table(), width.table(), shape.channels_last}};
  }
  Shape image_shape() const { return {shape.batch, shape.channels, shape.height.image, shape.width.image}; }
  Shape windows_shape() const { return {shape.batch, shape.channels, shape.height.windows, shape.width.windows}; }
};

Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan);

/// The gradient of `op`; linear in grad.
Tensor mean_backward(const char* op, const Tensor& grad, const MeanPlan& plan) {
  const Tensor dense = in_order(grad, plan.shape.channels_last);
  const Tensor out = empty_in_order(plan.image_shape(), grad, plan.shape.channels_last);
  const KernelContext context = kernel_context(grad.device());
  if (out.num_elements() > 0) {
    TANDEM_KERNEL(context, avg_pool_backward, grad.dtype(), plan.windows(), dense.data_ptr(), out.data_ptr());
  }

  struct MeanBackwardNode : Node {
    MeanPlan plan;
    TensorList backward(BackwardContext& context) override { return {mean_of_windows(name(), context.grad(), plan)}; }
  };
  if (auto* node = autograd::record<MeanBackwardNode>(op, out, grad)) node->plan = plan;
  return out;
}

/// The forward of average pooling, recorded as `op`.
Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan) {
  const Tensor dense = in_order(input, plan.shape.channels_last);
  const Tensor out = empty_in_order(plan.windows_shape(), input, plan.shape.channels_last);
  const KernelContext context = kernel_context(input.device());
  if (out.num_elements() > 0) {
    TANDEM_KERNEL(context, avg_pool, input.dtype(), plan.windows(), dense.data_ptr(), out.data_ptr());
  }

  struct MeanNode : Node {
    MeanPlan plan;
    TensorList backward(BackwardContext& context) override { return {mean_backward(name(), context.grad(), plan)}; }
  };
  if (auto* node = autograd::record<MeanNode>(op, out, input)) node->plan = plan;
  return out;
}

Tensor mean_pool(const char* op, const Tensor& input, const AvgPoolAxis& height, const AvgPoolAxis& width) {
  MeanPlan plan = {{input.shape()[0], input.shape()[1], height, width, has_inner_channels(input)}, {}, {}};
  if (input.device().is_cpu()) {
    const bool has_windows = num_elements(plan.windows_shape()) > 0, has_image = input.num_elements() > 0;
    plan.height = MeanTable(height, input.device(), has_windows, has_image);
    plan.width = MeanTable(width, input.device(), has_windows, has_image);
  }
  return mean_of_windows(op, input, plan);
}

}  // namespace

Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options) {
  const KernelContext context = check_image("avg_pool2d", input);
  const Size2d stride = options.stride.value_or(kernel_size), padding = options.padding;
  check_window("avg_pool2d", kernel_size, stride, padding);
  const auto axis = [&](const char* name, int64_t image, int64_t Size2d::*side) {
    const int64_t windows = count_windows("avg_pool2d", name, input, image, kernel_size.*side, stride.*side,
                                          padding.*side, 1, options.ceil_mode);
    return AvgPoolAxis{image, windows, kernel_size.*side, stride.*side, padding.*side, options.count_include_pad};
  };
  return mean_pool("avg_pool2d", input, axis("height", input.shape()[2], &Size2d::height),
                   axis("width", input.shape()[3], &Size2d::width));
}

Tensor adaptive_avg_pool2d(const Tensor& input, Size2d output_size) {
  const KernelContext context = check_image("adaptive_avg_pool2d", input);
  check_between("adaptive_avg_pool2d", "output_size", output_size, 1);
  // Before the tables are allocated, so that a too large result is a ShapeError.
  num_elements({input.shape()[0], input.shape()[1], output_size.height, output_size.width});
  return mean_pool("adaptive_avg_pool2d", input, AvgPoolAxis{input.shape()[2], output_size.height},
                   AvgPoolAxis{input.shape()[3], output_size.width});
}

}}  // namespace tandem::v0

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

/// What a side of a window, a stride, a padding ... has at most, so that no sum or product of two of them overflows.
constexpr int64_t kMaxSide = std::numeric_limits<int32_t>::max();

[[nodiscard]] KernelContext check_image(const char* op, const Tensor& input) {
  KernelContext context = check_same_device(op, {{"input", input}});
  check_floating(op, {"input", input});
  TANDEM_CHECK(ShapeError, input.dim() == 4, operand_error(op, "input must be [N, C, H, W]", {{"input", input}}));
  TANDEM_CHECK(ShapeError, input.shape()[2] > 0 && input.shape()[3] > 0,
               operand_error(op, "the image is empty", {{"input", input}}));
  TANDEM_CHECK(ShapeError, input.shape()[2] <= kMaxSide && input.shape()[3] <= kMaxSide,
               operand_error(op, "the image is too large", {{"input", input}}));
  return context;
}

void check_between(const char* op, const char* name, Size2d size, int64_t least) {
  TANDEM_CHECK(ValueError, size.height >= least && size.width >= least, op, ": ", name, " ", size, " is below ", least);
  TANDEM_CHECK(ValueError, size.height <= kMaxSide && size.width <= kMaxSide, op, ": ", name, " ", size, " is above ",
               kMaxSide);
}

/// Windows along one axis; `axis` is "height" or "width".
int64_t count_windows(const char* op, const char* axis, const Tensor& input, int64_t image, int64_t kernel,
                      int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t extent = dilation * (kernel - 1) + 1;
  const int64_t room = image + 2 * padding - extent;
  TANDEM_CHECK(ShapeError, room >= 0,
               operand_error(op,
                             str("a window covers ", extent, " of the ", axis, ", the image with its padding has ",
                                 image + 2 * padding),
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

/// The memory order in which an operation on `tensor` works, and the tensor in it.
Tensor in_order(const Tensor& tensor, bool channels_last) {
  return channels_last ? ops::channels_last(tensor) : row_major(tensor);
}
Tensor empty_in_order(const Shape& shape, const Tensor& like, bool channels_last) {
  return channels_last ? empty_channels_last(shape, like.options()) : empty(shape, like.options());
}

/// Whether the work on `input` runs over channels.  Where both orders are the same memory (one channel, or one pixel), the longer
/// of the two runs.
bool walks_channels(const Tensor& input) {
  return is_channels_last(input) && !(input.is_contiguous() && input.shape()[1] == 1);
}

// --- max -----------------------------------------------------------------------------------------

Shape image_shape(const MaxPoolShape& s) { return {s.batch, s.channels, s.height.image, s.width.image}; }
Shape windows_shape(const MaxPoolShape& s) { return {s.batch, s.channels, s.height.windows, s.width.windows}; }

Tensor max_pool_backward(const Tensor& grad, const Tensor& places, const MaxPoolShape& shape);

/// The elements of `input` that were the largest of their windows: linear in input.
Tensor take_largest(const Tensor& input, const Tensor& places, const MaxPoolShape& shape) {
  const Tensor dense = in_order(input, shape.channels_last);
  const Tensor out = empty_in_order(windows_shape(shape), input, shape.channels_last);
  TANDEM_KERNEL(kernel_context(input.device()), take_places, input.dtype(), shape, dense.data_ptr(), places.data_ptr(),
                out.data_ptr());

  struct TakeLargestNode : Node {
    SavedTensor places{*this, "places"};
    MaxPoolShape shape;
    TensorList backward(BackwardContext& context) override {
      return {max_pool_backward(context.grad(), places.get(), shape)};
    }
  };
  if (auto* node = autograd::record<TakeLargestNode>("max_pool2d_backward", out, input)) {
    node->places.save(places);
    node->shape = shape;
  }
  return out;
}

/// The gradient of max_pool2d, linear in grad.
Tensor max_pool_backward(const Tensor& grad, const Tensor& places, const MaxPoolShape& shape) {
  const Tensor dense = in_order(grad, shape.channels_last);
  const Tensor out = empty_in_order(image_shape(shape), grad, shape.channels_last);
  TANDEM_KERNEL(kernel_context(grad.device()), max_pool_backward, grad.dtype(), shape, dense.data_ptr(),
                places.data_ptr(), out.data_ptr());

  struct MaxPoolBackwardNode : Node {
    SavedTensor places{*this, "places"};
    MaxPoolShape shape;
    TensorList backward(BackwardContext& context) override {
      return {take_largest(context.grad(), places.get(), shape)};
    }
  };
  if (auto* node = autograd::record<MaxPoolBackwardNode>("max_pool2d_backward", out, grad)) {
    node->places.save(places);
    node->shape = shape;
  }
  return out;
}

struct MaxPoolNode : Node {
  SavedTensor places{*this, "places"};
  MaxPoolShape shape;
  TensorList backward(BackwardContext& context) override {
    return {max_pool_backward(context.grad(), places.get(), shape)};
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
                              axis("width", input.shape()[3], &Size2d::width), walks_channels(input)};
  const bool records = autograd::should_record(input);
  const Tensor dense = in_order(input, shape.channels_last);
  const Tensor out = empty_in_order(windows_shape(shape), input, shape.channels_last);
  const Tensor places = records ? empty(windows_shape(shape), {place_dtype(shape.kernel_elements()), input.device()})
                                : Tensor();  // in the order of `out`
  TANDEM_KERNEL(context, max_pool, input.dtype(), shape, dense.data_ptr(), out.data_ptr(),
                records ? places.data_ptr() : nullptr);
  if (auto* node = autograd::record<MaxPoolNode>("max_pool2d", out, input)) {
    node->places.save(places);
    node->shape = shape;
  }
  return out;
}

// --- mean ----------------------------------------------------------------------------------------

namespace {

/// The lists of an axis.
class MeanLists {
 public:
  MeanLists() = default;
  explicit MeanLists(const AvgPoolAxis& axis)
      : axis_(axis),
        begin_(list(axis.windows, [&](int64_t o) { return axis.begin(o); })),
        end_(list(axis.windows, [&](int64_t o) { return axis.end(o); })),
        size_(list(axis.windows, [&](int64_t o) { return axis.size(o); })),
        first_(list(axis.image, [&](int64_t i) { return axis.first(i); })),
        last_(list(axis.image, [&](int64_t i) { return axis.last(i); })) {}

  AvgPoolLists lists() const {
    return {axis_.image, axis_.windows, begin_.data(), end_.data(), size_.data(), first_.data(), last_.data()};
  }

 private:
  template <class F>
  static std::vector<int64_t> list(int64_t n, F f) {
    std::vector<int64_t> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = f(i);
    return values;
  }

  AvgPoolAxis axis_;
  std::vector<int64_t> begin_, end_, size_, first_, last_;
};

/// The windows of an operation, without the tensor they lie on.
struct MeanPlan {
  AvgPoolShape<AvgPoolAxis> shape;
  MeanLists height, width;  // of a CPU

  AvgPoolShape<AvgPoolLists> listed() const {
    return {shape.batch, shape.channels, height.lists(), width.lists(), shape.channels_last};
  }
  Shape image_shape() const { return {shape.batch, shape.channels, shape.height.image, shape.width.image}; }
  Shape windows_shape() const { return {shape.batch, shape.channels, shape.height.windows, shape.width.windows}; }
};

Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan);

/// The gradient of `op`, linear in grad.
Tensor mean_backward(const char* op, const Tensor& grad, const MeanPlan& plan) {
  const Tensor dense = in_order(grad, plan.shape.channels_last);
  const Tensor out = empty_in_order(plan.image_shape(), grad, plan.shape.channels_last);
  const KernelContext context = kernel_context(grad.device());
  if (context.device.is_cpu()) {
    cpu::avg_pool_backward(context, grad.dtype(), plan.listed(), dense.data_ptr(), out.data_ptr());
#ifdef TANDEM_WITH_CUDA
  } else {
    cuda::avg_pool_backward(context, grad.dtype(), plan.shape, dense.data_ptr(), out.data_ptr());
#endif
  }

  struct MeanBackwardNode : Node {
    MeanPlan plan;
    TensorList backward(BackwardContext& context) override { return {mean_of_windows(name(), context.grad(), plan)}; }
  };
  if (auto* node = autograd::record<MeanBackwardNode>(op, out, grad)) node->plan = plan;
  return out;
}

/// Forward, recorded as `op`.
Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan) {
  const Tensor dense = in_order(input, plan.shape.channels_last);
  const Tensor out = empty_in_order(plan.windows_shape(), input, plan.shape.channels_last);
  const KernelContext context = kernel_context(input.device());
  if (context.device.is_cpu()) {
    cpu::avg_pool(context, input.dtype(), plan.listed(), dense.data_ptr(), out.data_ptr());
#ifdef TANDEM_WITH_CUDA
  } else {
    cuda::avg_pool(context, input.dtype(), plan.shape, dense.data_ptr(), out.data_ptr());
#endif
  }

  struct MeanNode : Node {
    MeanPlan plan;
    TensorList backward(BackwardContext& context) override { return {mean_backward(name(), context.grad(), plan)}; }
  };
  if (auto* node = autograd::record<MeanNode>(op, out, input)) node->plan = plan;
  return out;
}

Tensor mean_pool(const char* op, const Tensor& input, const AvgPoolAxis& height, const AvgPoolAxis& width) {
  MeanPlan plan = {{input.shape()[0], input.shape()[1], height, width, walks_channels(input)}, {}, {}};
  if (input.device().is_cpu()) {
    plan.height = MeanLists(height);
    plan.width = MeanLists(width);
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
  // Before the windows are listed: a result that is too large is an error of its shape.
  num_elements({input.shape()[0], input.shape()[1], output_size.height, output_size.width});
  return mean_pool("adaptive_avg_pool2d", input, AvgPoolAxis{input.shape()[2], output_size.height},
                   AvgPoolAxis{input.shape()[3], output_size.width});
}

}}  // namespace tandem::v0

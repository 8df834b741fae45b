#include <tandem/ops/pool.h>

#include <limits>

#include <tandem/ops/common/call.h>
#include <tandem/ops/pool/pool_arguments.h>
#include <tandem/ops/pool/pool_kernels.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

/// Limit for kernel sizes, strides, paddings and image sides, so that sums and products of two of them do not overflow.
constexpr int64_t kMaxSide = std::numeric_limits<int32_t>::max();

std::string text_of(Size2d sides, bool is_signal) { return is_signal ? str(sides.width) : str(sides); }

}  // namespace

ImageForm ops::check_images(const char* op, const Tensor& input, bool is_signal) {
  check_floating(op, {"input", input});
  const int64_t dims = is_signal ? 3 : 4;  // with N
  check_input(op, input, input.dim() == dims || input.dim() == dims - 1, "input must be ",
              is_signal ? "[N, C, L] or [C, L]" : "[N, C, H, W] or [C, H, W]");
  for (int64_t d = is_signal ? -1 : -2; d < 0; ++d) {
    check_input(op, input, input.size(d) > 0, "the image is empty");
    check_input(op, input, input.size(d) <= kMaxSide, "the image has a side above ", kMaxSide);
  }
  return {is_signal, input.dim() == dims};
}

void ops::check_sides(const char* op, const char* name, Size2d sides, int64_t least, bool is_signal) {
  TANDEM_CHECK(ValueError, sides.height >= least && sides.width >= least, op, ": ", name, " is ",
               text_of(sides, is_signal), ", expected at least ", least);
  TANDEM_CHECK(ValueError, sides.height <= kMaxSide && sides.width <= kMaxSide, op, ": ", name, " is ",
               text_of(sides, is_signal), ", expected at most ", kMaxSide);
}

namespace {

/// The windows of max and average pooling.
struct Window {
  Size2d kernel;
  Size2d stride;
  Size2d padding;
  Size2d dilation;
  bool ceil_mode;
};

/// The window of these options over images, and over signals as images of height 1.
template <class Options>
Window window_of(Size2d kernel, const Options& options, Size2d dilation = 1) {
  return {kernel, options.stride.value_or(kernel), options.padding, dilation, options.ceil_mode};
}
template <class Options>
Window window_of(int64_t kernel, const Options& options, int64_t dilation = 1) {
  return {{1, kernel}, {1, options.stride.value_or(kernel)}, {0, options.padding}, {1, dilation}, options.ceil_mode};
}

void check_window(const char* op, const Window& window, bool is_signal) {
  check_sides(op, "kernel_size", window.kernel, 1, is_signal);
  check_sides(op, "stride", window.stride, 1, is_signal);
  check_sides(op, "padding", window.padding, 0, is_signal);
  check_sides(op, "dilation", window.dilation, 1, is_signal);
  TANDEM_CHECK(ValueError,
               2 * window.padding.height <= window.kernel.height && 2 * window.padding.width <= window.kernel.width, op,
               ": padding ", text_of(window.padding, is_signal), " is more than half of kernel_size ",
               text_of(window.kernel, is_signal));
}

/// Number of windows along one axis; `axis` is "height", "width" or "length".
int64_t count_windows(const char* op, const char* axis, const Tensor& input, int64_t image, int64_t kernel,
                      int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t extent = dilation * (kernel - 1) + 1;
  const int64_t room = image + 2 * padding - extent;
  check_input(op, input, room >= 0, "the window's ", axis, " ", extent, " exceeds the padded image's ", axis, " ",
              image + 2 * padding);
  int64_t windows = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (windows - 1) * stride >= image + padding) --windows;
  return windows;
}

struct MaxPoolPlan {
  MaxPoolShape shape = {};
  ImageForm form;

  Shape image_shape() const { return {shape.batch, shape.channels, shape.height.image, shape.width.image}; }
  Shape windows_shape() const { return {shape.batch, shape.channels, shape.height.windows, shape.width.windows}; }
  const char* backward_name() const { return form.is_signal ? "max_pool1d_backward" : "max_pool2d_backward"; }
};

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, const MaxPoolPlan& plan);

/// The elements of `input` that were the largest of their windows; linear in input.
Tensor take_largest(const Tensor& input, const Tensor& indices, const MaxPoolPlan& plan) {
  const Tensor dense = in_order(plan.form.images(input), plan.shape.channels_last);
  const Tensor windows = empty_in_order(plan.windows_shape(), input.options(), plan.shape.channels_last);
  TANDEM_KERNEL(kernel_context(input.device()), take_at, input.dtype(), plan.shape, dense.data_ptr(),
                indices.data_ptr(), windows.data_ptr());
  const Tensor out = plan.form.restore(windows);
  record_gradient(plan.backward_name(), out, {&input}, {{"indices", indices}},
                  [plan](const Tensor& g, const Tensor& saved) { return max_pool_backward(g, saved, plan); });
  return out;
}

/// The gradient of max pooling, linear in grad.
Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, const MaxPoolPlan& plan) {
  const Tensor dense = in_order(plan.form.images(grad), plan.shape.channels_last);
  const Tensor images = empty_in_order(plan.image_shape(), grad.options(), plan.shape.channels_last);
  TANDEM_KERNEL(kernel_context(grad.device()), max_pool_backward, grad.dtype(), plan.shape, dense.data_ptr(),
                indices.data_ptr(), images.data_ptr());
  const Tensor out = plan.form.restore(images);
  record_gradient(plan.backward_name(), out, {&grad}, {{"indices", indices}},
                  [plan](const Tensor& g, const Tensor& saved) { return take_largest(g, saved, plan); });
  return out;
}

ValuesIndices max_pool(const char* op, const Tensor& input, bool is_signal, const Window& window, bool with_indices) {
  const Call call(op, {{"input", input}});
  const ImageForm form = check_images(op, input, is_signal);
  check_window(op, window, is_signal);
  TANDEM_CHECK(ValueError, window.kernel.height <= kMaxSide / window.kernel.width, op, ": kernel_size ", window.kernel,
               " has more than ", kMaxSide, " elements");
  const Tensor images = form.images(input);
  const auto axis = [&](const char* name, int64_t image, int64_t Size2d::*side) {
    const int64_t windows = count_windows(op, name, input, image, window.kernel.*side, window.stride.*side,
                                          window.padding.*side, window.dilation.*side, window.ceil_mode);
    return MaxPoolAxis{
        image, windows, window.kernel.*side, window.stride.*side, window.padding.*side, window.dilation.*side};
  };
  const MaxPoolShape shape = {images.size(0), images.size(1), axis("height", images.size(2), &Size2d::height),
                              axis(is_signal ? "length" : "width", images.size(3), &Size2d::width),
                              has_inner_channels(images)};
  const MaxPoolPlan plan = {shape, form};
  const bool needs_indices = with_indices || autograd::should_record(input);
  const Tensor dense = in_order(images, shape.channels_last);
  const Tensor windows = empty_in_order(plan.windows_shape(), input.options(), shape.channels_last);
  // In the memory order of `windows`.
  const Tensor indices =
      needs_indices ? empty(plan.windows_shape(), {index_dtype(shape.kernel_elements()), input.device()}) : Tensor();
  TANDEM_KERNEL(call, max_pool, input.dtype(), shape, dense.data_ptr(), windows.data_ptr(), data_or_null(indices));
  ValuesIndices result = {form.restore(windows), {}};
  record_gradient(op, result.values, {&input}, {{"indices", indices}},
                  [plan](const Tensor& g, const Tensor& saved) { return max_pool_backward(g, saved, plan); });
  if (with_indices) {
    const Tensor flat = empty_in_order(plan.windows_shape(), {kInt64, input.device()}, shape.channels_last);
    TANDEM_KERNEL(call, flat_indices, shape, indices.data_ptr(), flat.data<int64_t>());
    result.indices = form.restore(flat);
  }
  return result;
}

}  // namespace

Tensor max_pool2d(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options) {
  return max_pool("max_pool2d", input, false, window_of(kernel_size, options, options.dilation), false).values;
}
Tensor max_pool1d(const Tensor& input, int64_t kernel_size, const MaxPool1dOptions& options) {
  return max_pool("max_pool1d", input, true, window_of(kernel_size, options, options.dilation), false).values;
}
ValuesIndices max_pool2d_with_indices(const Tensor& input, Size2d kernel_size, const MaxPool2dOptions& options) {
  return max_pool("max_pool2d_with_indices", input, false, window_of(kernel_size, options, options.dilation), true);
}
ValuesIndices max_pool1d_with_indices(const Tensor& input, int64_t kernel_size, const MaxPool1dOptions& options) {
  return max_pool("max_pool1d_with_indices", input, true, window_of(kernel_size, options, options.dilation), true);
}

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
      for (int64_t i = 0; i < values.numel(); ++i) out[i] = (axis.*f)(i);
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
  ImageForm form;
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
  const Tensor dense = in_order(plan.form.images(grad), plan.shape.channels_last);
  const Tensor images = empty_in_order(plan.image_shape(), grad.options(), plan.shape.channels_last);
  const KernelContext context = kernel_context(grad.device());
  if (images.numel() > 0) {
    TANDEM_KERNEL(context, avg_pool_backward, grad.dtype(), plan.windows(), dense.data_ptr(), images.data_ptr());
  }
  const Tensor out = plan.form.restore(images);
  record_gradient(op, out, {&grad}, [op, plan](const Tensor& g) { return mean_of_windows(op, g, plan); });
  return out;
}

/// The forward of average pooling, recorded as `op`.
Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan) {
  const Tensor dense = in_order(plan.form.images(input), plan.shape.channels_last);
  const Tensor windows = empty_in_order(plan.windows_shape(), input.options(), plan.shape.channels_last);
  const KernelContext context = kernel_context(input.device());
  if (windows.numel() > 0) {
    TANDEM_KERNEL(context, avg_pool, input.dtype(), plan.windows(), dense.data_ptr(), windows.data_ptr());
  }
  const Tensor out = plan.form.restore(windows);
  record_gradient(op, out, {&input}, [op, plan](const Tensor& g) { return mean_backward(op, g, plan); });
  return out;
}

/// axis(name, size of the image, side) makes the windows of an axis.
template <class Axis>
Tensor mean_pool(const char* op, const Tensor& input, const ImageForm& form, const Axis& axis) {
  const Tensor images = form.images(input);
  const AvgPoolAxis height = axis("height", images.size(2), &Size2d::height);
  const AvgPoolAxis width = axis(form.is_signal ? "length" : "width", images.size(3), &Size2d::width);
  MeanPlan plan = {{images.size(0), images.size(1), height, width, has_inner_channels(images)}, form, {}, {}};
  // Before the tables are allocated, so that a too large result is a ShapeError.
  const bool has_windows = num_elements(plan.windows_shape()) > 0, has_image = input.numel() > 0;
  if (input.device().is_cpu()) {
    plan.height = MeanTable(height, input.device(), has_windows, has_image);
    plan.width = MeanTable(width, input.device(), has_windows, has_image);
  }
  return mean_of_windows(op, input, plan);
}

Tensor avg_pool(const char* op, const Tensor& input, bool is_signal, const Window& window, bool count_include_pad,
                std::optional<int64_t> divisor) {
  const Call call(op, {{"input", input}});
  const ImageForm form = check_images(op, input, is_signal);
  check_window(op, window, is_signal);
  TANDEM_CHECK(ValueError, divisor.value_or(1) != 0, op, ": divisor_override is 0, expected another number");
  return mean_pool(op, input, form, [&](const char* name, int64_t image, int64_t Size2d::*side) {
    const int64_t windows = count_windows(op, name, input, image, window.kernel.*side, window.stride.*side,
                                          window.padding.*side, 1, window.ceil_mode);
    AvgPoolAxis axis = {
        image, windows, window.kernel.*side, window.stride.*side, window.padding.*side, count_include_pad};
    if (divisor) axis.divisor = side == &Size2d::height ? *divisor : 1;  // the divisor is the product of both axes
    return axis;
  });
}

Tensor adaptive_avg_pool(const char* op, const Tensor& input, bool is_signal, OutputSize2d output_size) {
  const Call call(op, {{"input", input}});
  const ImageForm form = check_images(op, input, is_signal);
  const Size2d size = {output_size.height.value_or(input.size(-2)), output_size.width.value_or(input.size(-1))};
  check_sides(op, "output_size", size, 1, is_signal);
  return mean_pool(op, input, form, [&](const char*, int64_t image, int64_t Size2d::*side) {
    return AvgPoolAxis{image, size.*side};
  });
}

}  // namespace

Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options) {
  return avg_pool("avg_pool2d", input, false, window_of(kernel_size, options), options.count_include_pad,
                  options.divisor_override);
}
Tensor avg_pool1d(const Tensor& input, int64_t kernel_size, const AvgPool1dOptions& options) {
  return avg_pool("avg_pool1d", input, true, window_of(kernel_size, options), options.count_include_pad, {});
}
Tensor adaptive_avg_pool2d(const Tensor& input, OutputSize2d output_size) {
  return adaptive_avg_pool("adaptive_avg_pool2d", input, false, output_size);
}
Tensor adaptive_avg_pool1d(const Tensor& input, int64_t output_size) {
  return adaptive_avg_pool("adaptive_avg_pool1d", input, true, {1, output_size});
}

}}  // namespace tandem::v0

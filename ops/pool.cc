#include <tandem/ops/pool.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <tandem/ops/common.h>
#include <tandem/ops/pool_kernels.h>

namespace tandem::inline v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::Saved;

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
  cpu::take_places({input.device()}, input.dtype(), shape, dense.data_ptr(), places.data_ptr(), out.data_ptr());

  struct TakeLargestNode : Node {
    Saved places{*this, "places"};
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
  cpu::max_pool_backward({grad.device()}, grad.dtype(), shape, dense.data_ptr(), places.data_ptr(), out.data_ptr());

  struct MaxPoolBackwardNode : Node {
    Saved places{*this, "places"};
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
  Saved places{*this, "places"};
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
  const Tensor places = records
                            ? empty(windows_shape(shape), {cpu::place_dtype(shape.kernel_elements()), input.device()})
                            : Tensor();  // in the order of `out`
  cpu::max_pool(context, input.dtype(), shape, dense.data_ptr(), out.data_ptr(), records ? places.data_ptr() : nullptr);
  if (auto* node = autograd::record<MaxPoolNode>("max_pool2d", out, input)) {
    node->places.save(places);
    node->shape = shape;
  }
  return out;
}

// --- mean ----------------------------------------------------------------------------------------

namespace {

/// The windows along one axis, as AvgPoolAxis shows them to kernels.
class MeanWindows {
 public:
  MeanWindows() = default;
  MeanWindows(int64_t image, int64_t windows)
      : image_(image), begin_(static_cast<size_t>(windows)), end_(begin_), size_(begin_) {}

  void set(int64_t window, int64_t begin, int64_t end, int64_t size) {
    const size_t o = static_cast<size_t>(window);
    begin_[o] = begin;
    end_[o] = end;
    size_[o] = size;
  }
  /// To be called when all windows are set.
  void index_images() {
    first_.resize(static_cast<size_t>(image_));
    last_ = first_;
    size_t first = 0, last = 0;
    for (int64_t i = 0; i < image_; ++i) {
      while (first < end_.size() && end_[first] <= i) ++first;
      while (last < begin_.size() && begin_[last] <= i) ++last;
      first_[static_cast<size_t>(i)] = static_cast<int64_t>(first);
      last_[static_cast<size_t>(i)] = static_cast<int64_t>(last);
    }
  }
  int64_t image() const { return image_; }
  int64_t windows() const { return static_cast<int64_t>(begin_.size()); }
  AvgPoolAxis axis() const {
    return {image_, windows(), begin_.data(), end_.data(), size_.data(), first_.data(), last_.data()};
  }

 private:
  int64_t image_ = 0;
  std::vector<int64_t> begin_, end_, size_, first_, last_;
};

/// The windows of an operation, without the tensor they lie on.
struct MeanPlan {
  MeanWindows height, width;
  int64_t batch = 0, channels = 0;
  bool channels_last = false;

  AvgPoolShape shape() const { return {batch, channels, height.axis(), width.axis(), channels_last}; }
  Shape image_shape() const { return {batch, channels, height.image(), width.image()}; }
  Shape windows_shape() const { return {batch, channels, height.windows(), width.windows()}; }
};

Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan);

/// The gradient of `op`, linear in grad.
Tensor mean_backward(const char* op, const Tensor& grad, const MeanPlan& plan) {
  const Tensor dense = in_order(grad, plan.channels_last);
  const Tensor out = empty_in_order(plan.image_shape(), grad, plan.channels_last);
  cpu::avg_pool_backward({grad.device()}, grad.dtype(), plan.shape(), dense.data_ptr(), out.data_ptr());

  struct MeanBackwardNode : Node {
    MeanPlan plan;
    TensorList backward(BackwardContext& context) override { return {mean_of_windows(name(), context.grad(), plan)}; }
  };
  if (auto* node = autograd::record<MeanBackwardNode>(op, out, grad)) node->plan = plan;
  return out;
}

/// Forward, recorded as `op`.
Tensor mean_of_windows(const char* op, const Tensor& input, const MeanPlan& plan) {
  const Tensor dense = in_order(input, plan.channels_last);
  const Tensor out = empty_in_order(plan.windows_shape(), input, plan.channels_last);
  cpu::avg_pool({input.device()}, input.dtype(), plan.shape(), dense.data_ptr(), out.data_ptr());

  struct MeanNode : Node {
    MeanPlan plan;
    TensorList backward(BackwardContext& context) override { return {mean_backward(name(), context.grad(), plan)}; }
  };
  if (auto* node = autograd::record<MeanNode>(op, out, input)) node->plan = plan;
  return out;
}

Tensor mean_pool(const char* op, const Tensor& input, MeanWindows height, MeanWindows width) {
  height.index_images();
  width.index_images();
  return mean_of_windows(
      op, input, {std::move(height), std::move(width), input.shape()[0], input.shape()[1], walks_channels(input)});
}

}  // namespace

Tensor avg_pool2d(const Tensor& input, Size2d kernel_size, const AvgPool2dOptions& options) {
  const KernelContext context = check_image("avg_pool2d", input);
  const Size2d stride = options.stride.value_or(kernel_size), padding = options.padding;
  check_window("avg_pool2d", kernel_size, stride, padding);
  const auto axis = [&](const char* name, int64_t image, int64_t Size2d::*side) {
    MeanWindows windows(image, count_windows("avg_pool2d", name, input, image, kernel_size.*side, stride.*side,
                                             padding.*side, 1, options.ceil_mode));
    for (int64_t o = 0; o < windows.windows(); ++o) {
      const int64_t begin = o * (stride.*side) - padding.*side;
      const int64_t end = std::min(begin + kernel_size.*side, image + padding.*side);
      const int64_t inside_begin = std::max<int64_t>(begin, 0), inside_end = std::min(end, image);
      windows.set(o, inside_begin, inside_end, options.count_include_pad ? end - begin : inside_end - inside_begin);
    }
    return windows;
  };
  return mean_pool("avg_pool2d", input, axis("height", input.shape()[2], &Size2d::height),
                   axis("width", input.shape()[3], &Size2d::width));
}

Tensor adaptive_avg_pool2d(const Tensor& input, Size2d output_size) {
  const KernelContext context = check_image("adaptive_avg_pool2d", input);
  check_between("adaptive_avg_pool2d", "output_size", output_size, 1);
  // Before the windows are listed: a result that is too large is an error of its shape.
  num_elements({input.shape()[0], input.shape()[1], output_size.height, output_size.width});
  const auto axis = [](int64_t image, int64_t windows) {
    MeanWindows result(image, windows);
    for (int64_t o = 0; o < windows; ++o) {
      const int64_t begin = o * image / windows, end = ((o + 1) * image + windows - 1) / windows;
      result.set(o, begin, end, end - begin);
    }
    return result;
  };
  return mean_pool("adaptive_avg_pool2d", input, axis(input.shape()[2], output_size.height),
                   axis(input.shape()[3], output_size.width));
}

}  // namespace tandem::inline v0

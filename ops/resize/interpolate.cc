#include <tandem/ops/resize.h>

#include <cmath>
#include <limits>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/images.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/resize/resize_functions.h>
#include <tandem/ops/resize/resize_kernels.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

constexpr int64_t kMaxSide = std::numeric_limits<int32_t>::max();
constexpr const char* kModeNames[] = {"kNearest", "kNearestExact", "kLinear", "kBilinear", "kBicubic", "kArea"};

/// Owns the arrays of a ResizeTable, on the CPU.
class TableMemory {
 public:
  TableMemory() = default;
  /// C: the accumulation type.
  template <class C>
  static TableMemory of(const ResizeAxis& axis, Device device) {
    TableMemory memory;
    memory.axis_ = axis;
    memory.begin_ = empty({axis.num_results() + 1}, {kInt64, device});
    memory.index_ = empty({axis.out * axis.num_taps()}, {kInt32, device});
    memory.weights_ = empty({axis.out * axis.num_taps()}, {dtype_of<C>(), device});
    int64_t* const begin = memory.begin_.data<int64_t>();
    int32_t* const index = memory.index_.data<int32_t>();
    C* const weights = memory.weights_.data<C>();
    int64_t count = 0;
    for (int64_t i = 0; i < axis.num_results(); ++i) {
      begin[i] = count;
      functions::for_taps<C>(axis, i, [&](int64_t source, C weight) {
        index[count] = static_cast<int32_t>(source);
        weights[count++] = weight;
      });
    }
    begin[axis.num_results()] = count;
    return memory;
  }

  ResizeTable table() const {
    if (!begin_.defined()) return {};
    return {axis_.num_sources(),    axis_.num_results(),    axis_.transposed ? 0 : axis_.num_taps(),
            begin_.data<int64_t>(), index_.data<int32_t>(), weights_.data_ptr()};
  }

 private:
  ResizeAxis axis_;
  Tensor begin_, index_, weights_;
};

/// The resizing of images, or its transpose.
struct ResizePlan {
  ResizeShape<ResizeAxis> shape = {};
  ImageForm form;

  Shape result_shape() const {
    return {shape.batch, shape.channels, shape.height.num_results(), shape.width.num_results()};
  }
  ResizePlan transposed() const {
    ResizePlan plan = *this;
    for (ResizeAxis* axis : {&plan.shape.height, &plan.shape.width}) axis->transposed = !axis->transposed;
    return plan;
  }
};

/// The map of the plan, recorded as `op`; linear in input.
Tensor resized(const char* op, const Tensor& input, const ResizePlan& plan) {
  const ResizeShape<ResizeAxis>& shape = plan.shape;
  const Tensor dense = in_order(plan.form.images(input), shape.channels_last);
  const Tensor images = empty_in_order(plan.result_shape(), input.options(), shape.channels_last);
  const KernelContext context = kernel_context(input.device());
  if (images.numel() > 0) {
    TableMemory height, width;
    if (context.device.is_cpu()) {
      visit_floating_dtype(input.dtype(), [&]<class T>() {
        height = TableMemory::of<Accumulator<T>>(shape.height, input.device());
        width = TableMemory::of<Accumulator<T>>(shape.width, input.device());
      });
    }
    const ResizeMap map = {shape, {shape.batch, shape.channels, height.table(), width.table(), shape.channels_last}};
    TANDEM_KERNEL(context, resize, input.dtype(), map, dense.data_ptr(), images.data_ptr());
  }
  const Tensor out = plan.form.restore(images);
  record_gradient(op, out, {&input}, [op, plan](const Tensor& grad) { return resized(op, grad, plan.transposed()); });
  return out;
}

/// The number for axis i of a list of one number, or of one per axis.
template <class List>
auto number_of(const List& list, size_t i) {
  return list.size() == 1 ? list[0] : list[i];
}

/// Sizes of the result.
Shape output_size(const Tensor& input, const InterpolateOptions& options, size_t axes) {
  const bool has_size = !options.size.empty();
  check_input<ValueError>("interpolate", input, has_size != !options.scale_factor.empty(),
                          "exactly one of size and scale_factor must be given");
  const size_t count = has_size ? options.size.size() : options.scale_factor.size();
  check_input<ValueError>("interpolate", input, count == 1 || count == axes, has_size ? "size" : "scale_factor",
                          " has ", count, " numbers, expected one, or one for each of ", axes, " axes");
  Shape sizes;
  for (size_t i = 0; i < axes; ++i) {
    const double factor = has_size ? 0 : number_of(options.scale_factor, i);
    const double size = has_size ? static_cast<double>(number_of(options.size, i))
                                 : std::floor(static_cast<double>(input.shape()[i + 2]) * factor);
    check_input<ValueError>("interpolate", input, size >= 1 && size <= static_cast<double>(kMaxSide),
                            "the result's size ", size, " of axis ", i, " is not in [1, ", kMaxSide, "]");
    sizes.push_back(static_cast<int64_t>(size));
  }
  return sizes;
}

ResizeKind kind_of(InterpolateMode mode) {
  switch (mode) {
    case InterpolateMode::kNearest: return ResizeKind::kNearest;
    case InterpolateMode::kNearestExact: return ResizeKind::kNearestExact;
    case InterpolateMode::kBicubic: return ResizeKind::kCubic;
    default: return ResizeKind::kLinear;
  }
}

/// scale_factor: 0 if coordinates use the sizes. C: the type of coordinates.
template <class C>
ResizeAxis axis_of(int64_t in, int64_t out, double scale_factor, const InterpolateOptions& options) {
  C scale = scale_factor > 0 ? static_cast<C>(1 / scale_factor) : static_cast<C>(in) / static_cast<C>(out);
  if (options.align_corners) scale = out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
  return {in, out, static_cast<double>(scale), kind_of(options.mode), options.align_corners, false};
}

}  // namespace

Tensor interpolate(const Tensor& input, const InterpolateOptions& options) {
  const Call call("interpolate", {{"input", input}}, DTypes::kFloating);
  const InterpolateMode mode = options.mode;
  const bool only_signals = mode == InterpolateMode::kLinear;
  const bool only_images = mode == InterpolateMode::kBilinear || mode == InterpolateMode::kBicubic;
  const bool is_signal = input.dim() == 3;
  call.require(is_signal ? !only_images : input.dim() == 4 && !only_signals, "input must be ",
               only_signals  ? "[N, C, L]"
               : only_images ? "[N, C, H, W]"
                             : "[N, C, L] or [N, C, H, W]",
               " in mode ", kModeNames[static_cast<int>(mode)]);
  call.require<ValueError>(!options.align_corners || only_signals || only_images, "mode ",
                           kModeNames[static_cast<int>(mode)], " does not have align_corners");
  const size_t axes = is_signal ? 1 : 2;
  for (size_t i = 2; i < 2 + axes; ++i) {
    call.require(input.shape()[i] > 0 && input.shape()[i] <= kMaxSide, "the image has a side that is not in [1, ",
                 kMaxSide, "]");
  }
  const Shape sizes = output_size(input, options, axes);
  if (mode == InterpolateMode::kArea) {
    return is_signal ? adaptive_avg_pool1d(input, sizes[0]) : adaptive_avg_pool2d(input, {sizes[0], sizes[1]});
  }
  const auto axis = [&](size_t i) {
    const double factor =
        options.scale_factor.empty() || options.recompute_scale_factor ? 0 : number_of(options.scale_factor, i);
    const int64_t in = input.shape()[i + 2];
    return input.dtype() == kFloat64 ? axis_of<double>(in, sizes[i], factor, options)
                                     : axis_of<float>(in, sizes[i], factor, options);
  };
  ResizePlan plan;
  plan.form.is_signal = is_signal;
  plan.shape = {input.size(0), input.size(1), is_signal ? ResizeAxis() : axis(0), axis(axes - 1),
                has_inner_channels(plan.form.images(input))};
  return resized("interpolate", input, plan);
}

}}  // namespace tandem::v0

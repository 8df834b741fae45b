// adaptive_max_pool and max_unpool, composed of operations on indices.
#include <algorithm>

#include <tandem/base/math.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/math.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/pool/pool_arguments.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

/// The maximum and its index in dimension `dim` for each of n windows that cover the dimension.
ValuesIndices max_of_windows(const Tensor& input, int64_t dim, int64_t n) {
  const int64_t size = input.size(dim);
  Shape column(static_cast<size_t>(input.dim() - dim), 1);  // broadcasts along the dimension
  column[0] = n;
  const Tensor begin = floor_divide(mul(arange(0, n, 1, input.device()), size), n);
  ValuesIndices result;
  if (size % n == 0) {
    result = max(unflatten(input, dim, {n, size / n}), dim + 1);
  } else {
    // Short windows repeat their last element, which is not the first largest then.
    const int64_t longest = std::min(size, size / n + 2);
    const Tensor end = floor_divide(add(mul(arange(1, n + 1, 1, input.device()), size), n - 1), n);
    const Tensor elements = add(unsqueeze(begin, 1), arange(0, longest, 1, input.device()));
    const Tensor index = minimum(elements, unsqueeze(sub(end, 1), 1));
    result = max(unflatten(index_select(input, dim, flatten(index)), dim, index.shape()), dim + 1);
  }
  result.indices = add(result.indices, view(begin, column));
  return result;
}

/// `tensor` with the dimensions of an image, or of a signal, as one.
Tensor flat(const Tensor& tensor, bool is_signal) { return flatten(tensor, is_signal ? -1 : -2); }

ValuesIndices adaptive_max_pool(const char* op, const Tensor& input, bool is_signal, OutputSize2d output_size) {
  const Call call(op, {{"input", input}});
  const ImageForm form = check_images(op, input, is_signal);
  const Size2d size = {output_size.height.value_or(input.size(-2)), output_size.width.value_or(input.size(-1))};
  check_sides(op, "output_size", size, 1, is_signal);
  ValuesIndices result;
  {
    const NoGradGuard no_grad;
    const Tensor images = form.images(input);
    const ValuesIndices columns = max_of_windows(images, 3, size.width),
                        rows = max_of_windows(columns.values, 2, size.height);
    const Tensor indices = add(mul(rows.indices, images.size(3)), gather(columns.indices, 2, rows.indices));
    result = {form.restore(rows.values), form.restore(indices)};
  }
  const auto gradient = [shape = input.shape(), is_signal](const Tensor& grad, const Tensor& indices) {
    Shape planes = shape;
    if (!is_signal) {
      planes.erase(planes.size() - 1);
      planes.back() = shape[planes.size() - 1] * shape.back();
    }
    return reshape(
        gather_backward(flat(grad, is_signal), planes.dim() - 1, row_major(flat(indices, is_signal)), planes), shape);
  };
  record_gradient(op, result.values, {&input}, {{"indices", result.indices}}, gradient);
  return result;
}

}  // namespace

Tensor adaptive_max_pool2d(const Tensor& input, OutputSize2d output_size) {
  return adaptive_max_pool("adaptive_max_pool2d", input, false, output_size).values;
}
Tensor adaptive_max_pool1d(const Tensor& input, int64_t output_size) {
  return adaptive_max_pool("adaptive_max_pool1d", input, true, {1, output_size}).values;
}
ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& input, OutputSize2d output_size) {
  return adaptive_max_pool("adaptive_max_pool2d_with_indices", input, false, output_size);
}
ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& input, int64_t output_size) {
  return adaptive_max_pool("adaptive_max_pool1d_with_indices", input, true, {1, output_size});
}

namespace {

/// The height of options is not read for signals.
Tensor max_unpool(const char* op, const Tensor& input, const Tensor& indices, bool is_signal, Size2d kernel,
                  Size2d stride, Size2d padding, std::optional<Size2d> output_size) {
  const Call call(op, {{"input", input}, {"indices", indices}});
  check_images(op, input, is_signal);
  call.require<DTypeError>(indices.dtype() == kInt64, "indices must be int64");
  call.require(indices.shape() == input.shape(), "indices must have the shape of input");
  check_sides(op, "kernel_size", kernel, 1, is_signal);
  check_sides(op, "stride", stride, 1, is_signal);
  check_sides(op, "padding", padding, 0, is_signal);
  Shape shape = input.shape();
  const auto set_size = [&](size_t d, int64_t Size2d::*side) {
    const int64_t usual = saturating_add(saturating_mul(shape[d] - 1, stride.*side), kernel.*side - 2 * padding.*side);
    const int64_t size = output_size ? *output_size.*side : usual;
    TANDEM_CHECK(ValueError, size >= 1 && size > usual - stride.*side && size < saturating_add(usual, stride.*side), op,
                 ": output_size of dimension ", d, " is ", size, ", expected ",
                 std::max<int64_t>(usual - stride.*side + 1, 1), " to ", saturating_add(usual, stride.*side - 1));
    shape[d] = size;
  };
  if (!is_signal) set_size(shape.size() - 2, &Size2d::height);
  set_size(shape.size() - 1, &Size2d::width);
  const Tensor out = zeros(shape, input.options()), planes = flat(out, is_signal);
  check_index_bounds(op, "index", call, row_major(indices), planes.size(-1));
  const Tensor result = reshape(scatter(planes, -1, flat(indices, is_signal), flat(input, is_signal)), shape);
  result.impl().is_view = false;  // the result of scatter has no other use
  return result;
}

}  // namespace

Tensor max_unpool2d(const Tensor& input, const Tensor& indices, Size2d kernel_size, const MaxUnpool2dOptions& options) {
  return max_unpool("max_unpool2d", input, indices, false, kernel_size, options.stride.value_or(kernel_size),
                    options.padding, options.output_size);
}
Tensor max_unpool1d(const Tensor& input, const Tensor& indices, int64_t kernel_size,
                    const MaxUnpool1dOptions& options) {
  std::optional<Size2d> output_size;
  if (options.output_size) output_size = Size2d(1, *options.output_size);
  return max_unpool("max_unpool1d", input, indices, true, {1, kernel_size}, {1, options.stride.value_or(kernel_size)},
                    {0, options.padding}, output_size);
}

}}  // namespace tandem::v0

#include <tandem/base/math.h>
#include <tandem/ops/view.h>

#include <algorithm>
#include <optional>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view/view_of.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using ops::check_defined;
using ops::view_of;

namespace {

/// Node of views that change only the shape: the elements and their order are the same.
struct ViewNode : Node {
  Shape input_shape;
  TensorList backward(BackwardContext& context) override { return {reshape(context.grad(), input_shape)}; }
};

Tensor recorded_view(const char* op, const Tensor& input, const Shape& shape, const Shape& strides) {
  Tensor out = view_of(input, shape, strides, input.impl().offset);
  if (auto* node = record<ViewNode>(op, out, input)) node->input_shape = input.shape();
  return out;
}

/// `shape` with -1 replaced by the inferred size. Throws ShapeError if the number of elements does not fit.
Shape infer_shape(const char* op, const Tensor& input, const Shape& shape) {
  int64_t known = 1;
  int64_t unknown = -1;
  bool fits = true;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1 && unknown < 0) {
      unknown = static_cast<int64_t>(d);
    } else {
      fits = fits && shape[d] >= 0 && !__builtin_mul_overflow(known, shape[d], &known);
    }
  }
  const int64_t n = input.numel();
  Shape result = shape;
  if (fits && unknown >= 0 && known > 0 && n % known == 0) {
    result[static_cast<size_t>(unknown)] = n / known;
  } else {
    fits = fits && unknown < 0 && known == n;
  }
  ops::check_input(op, input, fits, n, " elements do not fit shape ", shape);
  static_cast<void>(num_elements(result));  // checks for overflow: sizes next to a 0 may be large
  return result;
}

/// Strides with which `input` can be viewed as `shape` without a copy; nullopt if that is impossible.
///
/// Runs of dimensions that are contiguous with each other can be divided arbitrarily; a dimension of `shape` must not
/// span two runs. Both shapes are traversed from the end, one run at a time.
std::optional<Shape> view_strides(const Tensor& input, const Shape& shape) {
  if (input.is_contiguous() || input.numel() == 0) return row_major_strides(shape);
  const Shape& sizes = input.shape();
  const Shape& steps = input.strides();
  Shape strides(shape.size(), 1);
  size_t left = shape.size();  // dimensions of `shape` that have no stride yet
  for (size_t d = sizes.size(); d > 0;) {
    if (sizes[d - 1] == 1) {
      --d;
      continue;
    }
    const int64_t step = steps[d - 1];
    int64_t run = 1;
    while (d > 0 && (sizes[d - 1] == 1 || steps[d - 1] == step * run)) {
      run *= sizes[d - 1];
      --d;
    }
    int64_t placed = 1;
    while (left > 0 && (placed < run || shape[left - 1] == 1)) {
      strides[left - 1] = step * placed;
      placed *= shape[left - 1];
      --left;
    }
    if (placed != run) return std::nullopt;
  }
  return strides;
}

std::string strides_error(const Tensor& input, const Shape& shape) {
  const Tensor image = input.dim() == 3 ? input.detach().unsqueeze(2) : input;
  std::string sizes = to_string(shape);
  sizes.front() = '{';
  sizes.back() = '}';
  const std::string problem =
      str("the strides ", input.strides(), " do not permit shape ", shape, " without a copy",
          ops::is_channels_last(image) ? ", because input is channels-last, as results of convolutions are" : "");
  return ops::operand_error("view", problem, {{"input", input}}, {}, str("use reshape(", sizes, "), which copies"));
}

Tensor reshape_as(const char* op, const Tensor& input, const Shape& shape) {
  const auto strides = view_strides(input, shape);
  if (strides) return recorded_view(op, input, shape, *strides);
  return recorded_view(op, clone(input), shape, row_major_strides(shape));
}

}  // namespace

Tensor view(const Tensor& input, const Shape& shape) {
  check_defined("view", input);
  const Shape full = infer_shape("view", input, shape);
  const auto strides = view_strides(input, full);
  TANDEM_CHECK(ShapeError, strides, strides_error(input, shape));
  return recorded_view("view", input, full, *strides);
}

Tensor reshape(const Tensor& input, const Shape& shape) {
  check_defined("reshape", input);
  return reshape_as("reshape", input, infer_shape("reshape", input, shape));
}

Tensor flatten(const Tensor& input, int64_t start_dim, int64_t end_dim) {
  check_defined("flatten", input);
  const int64_t start = wrap_dim("flatten", start_dim, input.dim());
  const int64_t end = wrap_dim("flatten", end_dim, input.dim());
  ops::check_input("flatten", input, start <= end, "start_dim ", start_dim, " is after end_dim ", end_dim);
  Shape shape;
  int64_t joined = 1;
  for (int64_t d = 0; d < input.dim(); ++d) {
    const int64_t size = input.shape()[static_cast<size_t>(d)];
    if (d < start || d > end) shape.push_back(size);
    if (d >= start && d <= end) joined *= size;
    if (d == end) shape.push_back(joined);
  }
  if (input.dim() == 0) shape.push_back(1);
  return reshape_as("flatten", input, shape);
}

Tensor squeeze(const Tensor& input) {
  check_defined("squeeze", input);
  Shape shape;
  Shape strides;
  for (size_t d = 0; d < input.shape().size(); ++d) {
    if (input.shape()[d] == 1) continue;
    shape.push_back(input.shape()[d]);
    strides.push_back(input.strides()[d]);
  }
  return recorded_view("squeeze", input, shape, strides);
}

Tensor squeeze(const Tensor& input, int64_t dim) {
  check_defined("squeeze", input);
  const size_t d = static_cast<size_t>(wrap_dim("squeeze", dim, input.dim()));
  Shape shape = input.shape();
  Shape strides = input.strides();
  if (d < shape.size() && shape[d] == 1) {
    shape.erase(d);
    strides.erase(d);
  }
  return recorded_view("squeeze", input, shape, strides);
}

Tensor unsqueeze(const Tensor& input, int64_t dim) {
  check_defined("unsqueeze", input);
  const size_t d = static_cast<size_t>(wrap_dim("unsqueeze", dim, input.dim() + 1));
  Shape shape = input.shape();
  Shape strides = input.strides();
  strides.insert(d, d < shape.size() ? shape[d] * strides[d] : 1);
  shape.insert(d, 1);
  return recorded_view("unsqueeze", input, shape, strides);
}

namespace {

struct PermuteNode : Node {
  Shape inverse;
  TensorList backward(BackwardContext& context) override { return {permute(context.grad(), inverse)}; }
};

/// `dims` is a permutation.
Tensor recorded_permute(const char* op, const Tensor& input, const Shape& dims) {
  Shape shape = input.shape();
  Shape strides = input.strides();
  Shape inverse = dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    const size_t from = static_cast<size_t>(dims[d]);
    shape[d] = input.shape()[from];
    strides[d] = input.strides()[from];
    inverse[from] = static_cast<int64_t>(d);
  }
  Tensor out = view_of(input, shape, strides, input.impl().offset);
  if (auto* node = record<PermuteNode>(op, out, input)) node->inverse = inverse;
  return out;
}

Tensor exchange(const char* op, const Tensor& input, size_t dim0, size_t dim1) {
  Shape dims;
  for (int64_t d = 0; d < input.dim(); ++d) dims.push_back(d);
  if (!dims.empty()) std::swap(dims[dim0], dims[dim1]);
  return recorded_permute(op, input, dims);
}

}  // namespace

Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1) {
  check_defined("transpose", input);
  const int64_t first = wrap_dim("transpose", dim0, input.dim());
  const int64_t second = wrap_dim("transpose", dim1, input.dim());
  return exchange("transpose", input, static_cast<size_t>(first), static_cast<size_t>(second));
}

Tensor t(const Tensor& input) {
  check_defined("t", input);
  ops::check_input("t", input, input.dim() <= 2, "input must have at most two dimensions");
  return exchange("t", input, 0, input.dim() < 2 ? 0 : 1);
}

Tensor permute(const Tensor& input, const Shape& dims) {
  check_defined("permute", input);
  Shape wrapped;
  for (int64_t dim : dims) wrapped.push_back(wrap_dim("permute", dim, input.dim()));
  Shape sorted = wrapped;
  std::sort(sorted.begin(), sorted.end());
  bool each_once = dims.dim() == input.dim();
  for (size_t d = 0; each_once && d < sorted.size(); ++d) each_once = sorted[d] == static_cast<int64_t>(d);
  ops::check_input("permute", input, each_once, "dims ", dims, " do not name each dimension once");
  return recorded_permute("permute", input, wrapped);
}

namespace {

/// A slice of dimension `dim` of a tensor of `shape`.
struct Range {
  Shape shape;
  int64_t dim = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t step = 1;
};

/// The part of `input` given by `range`.
Tensor part_of(const Tensor& input, const Range& range) {
  const size_t d = static_cast<size_t>(range.dim);
  Shape shape = input.shape();
  Shape strides = input.strides();
  const int64_t offset = input.impl().offset + (range.count > 0 && input.numel() > 0 ? range.begin * strides[d] : 0);
  shape[d] = range.count;
  strides[d] *= range.step;
  return view_of(input, shape, strides, offset);
}

/// The gradient of slice as an operation: zeros of range.shape with `grad` at the position of the slice.
Tensor slice_backward(const Tensor& grad, const Range& range) {
  Tensor out = zeros(range.shape, grad.options());
  primitives::copy(grad, part_of(out, range));
  ops::record_gradient("slice_backward", out, {&grad}, [range](const Tensor& g) {
    return slice(g, range.dim, range.begin, range.begin + range.count * range.step, range.step);
  });
  return out;
}

struct SliceNode : Node {
  Range range;
  bool selects = false;  ///< the dimension is removed
  TensorList backward(BackwardContext& context) override {
    return {slice_backward(selects ? unsqueeze(context.grad(), range.dim) : context.grad(), range)};
  }
};

}  // namespace

Tensor slice(const Tensor& input, int64_t dim, int64_t begin, int64_t end, int64_t step) {
  const int64_t d = ops::existing_dim("slice", input, dim);
  ops::check_input<ValueError>("slice", input, step >= 1, "step is ", step, ", must be at least 1");
  const int64_t size = input.size(d);
  const auto clamp = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t first = clamp(begin);
  const int64_t length = std::max<int64_t>(clamp(end) - first, 0);
  step = std::min(
      step, std::max<int64_t>(size, 1));  // a larger step selects the same elements, but its products could overflow
  const Range range{input.shape(), d, first, length / step + (length % step != 0), step};
  Tensor out = part_of(input, range);
  if (auto* node = record<SliceNode>("slice", out, input)) node->range = range;
  return out;
}

Tensor select(const Tensor& input, int64_t dim, int64_t index) {
  const int64_t d = ops::existing_dim("select", input, dim);
  const int64_t size = input.size(d);
  ops::check_input<IndexError>("select", input, index >= -size && index < size, "index ", index,
                               " is out of range for dimension ", d, " of size ", size);
  const Range range{input.shape(), d, index < 0 ? index + size : index, 1, 1};
  const Tensor part = part_of(input, range);
  Shape shape = part.shape();
  Shape strides = part.strides();
  shape.erase(static_cast<size_t>(d));
  strides.erase(static_cast<size_t>(d));
  Tensor out = view_of(input, shape, strides, part.impl().offset);
  if (auto* node = record<SliceNode>("select", out, input)) {
    node->range = range;
    node->selects = true;
  }
  return out;
}

namespace {

/// `count` consecutive slices of dimension d, of which slice i has length_of(i) elements; together they are the
/// dimension.
template <class F>
std::vector<Tensor> slices(const char* op, const Tensor& input, int64_t d, int64_t count, F length_of) {
  std::vector<Tensor> parts = ops::list_of_views(op, count);
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Range range{input.shape(), d, begin, length_of(i), 1};
    parts.push_back(part_of(input, range));
    if (auto* node = record<SliceNode>(op, parts.back(), input)) node->range = range;
    begin += range.count;
  }
  return parts;
}

/// Slices of `split_size` elements, the last of the rest; `if_empty` empty ones of a dimension of size 0.
std::vector<Tensor> equal_slices(const char* op, const Tensor& input, int64_t d, int64_t split_size, int64_t if_empty) {
  const int64_t size = input.size(d);
  return slices(op, input, d, size == 0 ? if_empty : ceil_div(size, split_size),
                [=](int64_t i) { return std::min(split_size, size - i * split_size); });
}

}  // namespace

std::vector<Tensor> split(const Tensor& input, int64_t split_size, int64_t dim) {
  const int64_t d = ops::existing_dim("split", input, dim);
  ops::check_input<ValueError>("split", input, split_size >= 1, "split_size is ", split_size, ", must be at least 1");
  return equal_slices("split", input, d, split_size, 1);
}

std::vector<Tensor> split(const Tensor& input, const Shape& split_sizes, int64_t dim) {
  const int64_t d = ops::existing_dim("split", input, dim);
  int64_t total = 0;
  for (const int64_t size : split_sizes) {
    ops::check_input<ValueError>("split", input, size >= 0, "split_sizes ", split_sizes, " contain a negative size");
    total = saturating_add(total, size);
  }
  ops::check_input("split", input, total == input.size(d), "split_sizes ", split_sizes, " do not add up to dimension ",
                   d, " of size ", input.size(d));
  return slices("split", input, d, split_sizes.dim(), [&](int64_t i) { return split_sizes[static_cast<size_t>(i)]; });
}

std::vector<Tensor> chunk(const Tensor& input, int64_t chunks, int64_t dim) {
  const int64_t d = ops::existing_dim("chunk", input, dim);
  ops::check_input<ValueError>("chunk", input, chunks >= 1, "chunks is ", chunks, ", must be at least 1");
  return equal_slices("chunk", input, d, ceil_div(input.size(d), chunks), chunks);
}

namespace {

struct ExpandNode : Node {
  Shape input_shape;
  TensorList backward(BackwardContext& context) override { return {ops::sum_to_shape(context.grad(), input_shape)}; }
};

}  // namespace

Tensor expand(const Tensor& input, const Shape& shape) {
  check_defined("expand", input);
  bool fits = shape.size() >= input.shape().size();
  const size_t added = fits ? shape.size() - input.shape().size() : 0;
  Shape sizes = shape;
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    const int64_t size = d < added ? 1 : input.shape()[d - added];
    if (shape[d] == -1 && d >= added) sizes[d] = size;
    fits = sizes[d] >= 0 && (size == 1 || size == sizes[d]);
  }
  ops::check_input("expand", input, fits, "input does not expand to ", shape);
  Tensor out = view_of(input, sizes, ops::broadcast_strides(input, sizes), input.impl().offset);
  if (auto* node = record<ExpandNode>("expand", out, input)) node->input_shape = input.shape();
  return out;
}

namespace {

struct CatNode : Node {
  int64_t dim = 0;
  std::vector<int64_t> ends;         ///< end of each tensor along dim
  std::vector<bool> is_placeholder;  ///< of shape [0], unlike the others: its gradient is zero
  TensorList backward(BackwardContext& context) override {
    TensorList grads(ends.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      const int64_t begin = i == 0 ? 0 : ends[i - 1];
      if (!context.needs(static_cast<int>(i)) || is_placeholder[i]) continue;
      grads[i] = slice(context.grad(), dim, begin, ends[i]);
    }
    return grads;
  }
};

/// Throws, naming both tensors by number, unless `other` can be concatenated with `first`.
void check_cat_pair(const char* first_name, const Tensor& first, const Tensor& other, size_t number, int64_t dim) {
  bool fits = other.dim() == first.dim();
  for (int64_t d = 0; fits && d < first.dim(); ++d) fits = d == dim || other.size(d) == first.size(d);
  if (fits) return;
  const std::string name = str("tensors[", number, "]");
  throw ShapeError(with_module_scope(ops::operand_error("cat", str("sizes differ in a dimension other than ", dim),
                                                        {{first_name, first}, {name.c_str(), other}})));
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  TANDEM_CHECK(ValueError, !tensors.empty(), "cat: no tensors");
  const KernelContext context = ops::check_same_device_list("cat", tensors);
  size_t model = 0;  // the first tensor that is not a placeholder of shape [0]
  while (model + 1 < tensors.size() && tensors[model].shape() == Shape{0}) ++model;
  const Tensor& first = tensors[model];
  const std::string name = str("tensors[", model, "]");
  TANDEM_CHECK(ShapeError, first.dim() > 0,
               ops::operand_error("cat", "tensors must have at least one dimension", {{name.c_str(), first}}));
  const int64_t d = wrap_dim("cat", dim, first.dim());
  DType dtype = first.dtype();
  Shape shape = first.shape();
  shape[static_cast<size_t>(d)] = 0;
  std::vector<int64_t> ends;
  for (size_t i = 0; i < tensors.size(); ++i) {
    dtype = promote(dtype, tensors[i].dtype());
    if (tensors[i].shape() != Shape{0}) {
      check_cat_pair(name.c_str(), first, tensors[i], i, d);
      shape[static_cast<size_t>(d)] += tensors[i].size(d);
    }
    ends.push_back(shape[static_cast<size_t>(d)]);
  }
  std::vector<Tensor> parts = tensors;
  for (Tensor& part : parts) part = to(part, dtype);
  Tensor out = empty(shape, {dtype, first.device()});
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : ends[i - 1];
    if (ends[i] > begin) primitives::copy(parts[i], part_of(out, {shape, d, begin, ends[i] - begin, 1}));
  }
  if (auto* node = autograd::record_list<CatNode>("cat", out, parts)) {
    node->dim = d;
    node->ends = std::move(ends);
    for (const Tensor& part : parts) node->is_placeholder.push_back(part.shape() == Shape{0} && first.dim() != 1);
  }
  return out;
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  TANDEM_CHECK(ValueError, !tensors.empty(), "stack: no tensors");
  const Tensor& first = tensors.front();
  const KernelContext context = ops::check_same_device_list("stack", tensors);
  const int64_t d = wrap_dim("stack", dim, first.dim() + 1);
  DType dtype = first.dtype();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].shape() != first.shape()) {
      const std::string name = str("tensors[", i, "]");
      throw ShapeError(with_module_scope(
          ops::operand_error("stack", "shapes differ", {{"tensors[0]", first}, {name.c_str(), tensors[i]}})));
    }
    dtype = promote(dtype, tensors[i].dtype());
  }
  std::vector<Tensor> parts = tensors;
  for (Tensor& part : parts) part = to(part, dtype);
  Shape shape = first.shape();
  shape.insert(static_cast<size_t>(d), static_cast<int64_t>(parts.size()));
  Tensor out = empty(shape, {dtype, first.device()});
  for (size_t i = 0; i < parts.size() && out.numel() > 0; ++i) {
    Shape one = shape;
    one[static_cast<size_t>(d)] = 1;
    Shape strides = parts[i].strides();
    strides.insert(static_cast<size_t>(d), 1);
    primitives::copy(make_view(parts[i].storage(), dtype, one, strides, parts[i].impl().offset),
                     part_of(out, {shape, d, static_cast<int64_t>(i), 1, 1}));
  }
  ops::record_gradients("stack", out, parts, [d, count = parts.size()](BackwardContext& backward) {
    TensorList grads(count);
    for (size_t i = 0; i < count; ++i) {
      if (backward.needs(static_cast<int>(i))) grads[i] = select(backward.grad(), d, static_cast<int64_t>(i));
    }
    return grads;
  });
  return out;
}

Tensor Tensor::view(const Shape& shape) const { return tandem::view(*this, shape); }
Tensor Tensor::reshape(const Shape& shape) const { return tandem::reshape(*this, shape); }
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const { return tandem::flatten(*this, start_dim, end_dim); }
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const { return tandem::transpose(*this, dim0, dim1); }
Tensor Tensor::t() const { return tandem::t(*this); }
Tensor Tensor::permute(const Shape& dims) const { return tandem::permute(*this, dims); }
Tensor Tensor::slice(int64_t dim, int64_t begin, int64_t end, int64_t step) const {
  return tandem::slice(*this, dim, begin, end, step);
}
Tensor Tensor::select(int64_t dim, int64_t index) const { return tandem::select(*this, dim, index); }
Tensor Tensor::operator[](int64_t index) && {
  Tensor result = select(0, index);
  impl_ = {};  // an assignment to the result then knows whether another tensor shares the memory
  return result;
}
std::vector<Tensor> Tensor::split(int64_t split_size, int64_t dim) const {
  return tandem::split(*this, split_size, dim);
}
std::vector<Tensor> Tensor::split_with_sizes(const Shape& split_sizes, int64_t dim) const {
  return tandem::split(*this, split_sizes, dim);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const { return tandem::chunk(*this, chunks, dim); }
Tensor Tensor::expand(const Shape& shape) const { return tandem::expand(*this, shape); }
Tensor Tensor::squeeze() const { return tandem::squeeze(*this); }
Tensor Tensor::squeeze(int64_t dim) const { return tandem::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(int64_t dim) const { return tandem::unsqueeze(*this, dim); }

}}  // namespace tandem::v0

#include <tandem/ops/index.h>

#include <algorithm>

#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/index/index_kernels.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::check_index_bounds;
using ops::row_major;

namespace {

/// A shape as [outer, size, inner] around one dimension; a 0-dim tensor has one element.
struct Extents {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};

Extents block_of(const Shape& shape, int64_t dim) {
  Extents block;
  for (int64_t d = 0; d < shape.dim(); ++d) {
    (d < dim ? block.outer : d == dim ? block.size : block.inner) *= shape[static_cast<size_t>(d)];
  }
  return block;
}

void check_int64(const char* op, const char* name, const Tensor& index, ops::Operands operands) {
  TANDEM_CHECK(DTypeError, index.dtype() == kInt64, ops::operand_error(op, str(name, " must be int64"), operands));
}

/// The dtype of the sums of a floating dtype.
DType sum_dtype(DType dtype) { return size_of(dtype) == 2 ? kFloat32 : dtype; }

/// Scratch memory; undefined for 0 bytes.
Tensor scratch(int64_t num_bytes, Device device) {
  return num_bytes > 0 ? empty({num_bytes}, {kUInt8, device}) : Tensor();
}
void* data_of(const Tensor& workspace) { return workspace.defined() ? workspace.data_ptr() : nullptr; }

/// `sums` rounded to `dtype`, unrecorded.
Tensor rounded(const Tensor& sums, DType dtype) {
  if (sums.dtype() == dtype) return sums;
  Tensor out = empty(sums.shape(), {dtype, sums.device()});
  primitives::copy(sums, out);
  return out;
}

}  // namespace

// --- gather --------------------------------------------------------------------------------------

namespace {

/// gather without checks and recording; index is row-major.
Tensor run_gather(const KernelContext& context, const Tensor& input, int64_t dim, const Tensor& index) {
  const Extents block = block_of(index.shape(), dim);
  Tensor memory = input;
  for (int64_t d = 0; d < input.dim(); ++d) {  // only the part of input that index can address
    if (d != dim && index.size(d) != input.size(d)) memory = slice(memory, d, 0, index.size(d));
  }
  memory = row_major(memory);
  Tensor out = empty(index.shape(), input.options());
  const int64_t size = input.dim() == 0 ? 1 : input.size(dim);
  TANDEM_KERNEL(context, gather, size_of(input.dtype()), block.outer, block.size, block.inner, size,
                index.data<int64_t>(), memory.data_ptr(), out.data_ptr());
  return out;
}

Tensor gather_backward(const Tensor& grad, int64_t dim, const Tensor& index, const Shape& input_shape);

struct GatherBackwardNode : Node {
  SavedTensor index{*this, "index"};
  int64_t dim = 0;
  TensorList backward(BackwardContext& context) override { return {gather(context.grad(), dim, index.get())}; }
};

/// The gradient of gather as an operation: adds each element of grad at the position it was gathered from.
Tensor gather_backward(const Tensor& grad, int64_t dim, const Tensor& index, const Shape& input_shape) {
  const KernelContext context = ops::check_same_device("gather_backward", {{"grad", grad}, {"index", index}});
  const Extents block = block_of(index.shape(), dim);
  Shape reached = index.shape();
  if (!reached.empty()) reached[static_cast<size_t>(dim)] = input_shape[static_cast<size_t>(dim)];
  const Tensor sums = empty(reached, {sum_dtype(grad.dtype()), grad.device()});
  const Tensor memory = row_major(grad);
  const Tensor workspace = scratch(
      TANDEM_KERNEL(context, gather_backward_workspace_bytes, block.outer, block.size, block.inner), grad.device());
  TANDEM_KERNEL(context, gather_backward, grad.dtype(), block.outer, block.size, block.inner,
                block_of(reached, dim).size, index.data<int64_t>(), memory.data_ptr(), data_of(workspace),
                sums.data_ptr());
  Tensor out = rounded(sums, grad.dtype());
  if (reached != input_shape) {
    const NoGradGuard no_grad;
    const Tensor whole = zeros(input_shape, grad.options());
    Tensor part = whole;
    for (int64_t d = 0; d < part.dim(); ++d) part = slice(part, d, 0, reached[static_cast<size_t>(d)]);
    primitives::copy(out, part);
    out = whole;
  }
  if (auto* node = record<GatherBackwardNode>("gather_backward", out, grad)) {
    node->index.save(index);
    node->dim = dim;
  }
  return out;
}

/// Node of gather, and of topk's values.
struct GatherNode : Node {
  SavedTensor index{*this, "index"};
  int64_t dim = 0;
  Shape input_shape;
  TensorList backward(BackwardContext& context) override {
    return {gather_backward(context.grad(), dim, index.get(), input_shape)};
  }
};

void record_gather(const char* op, const Tensor& out, const Tensor& input, int64_t dim, const Tensor& index) {
  if (auto* node = record<GatherNode>(op, out, input)) {
    node->index.save(index);
    node->dim = dim;
    node->input_shape = input.shape();
  }
}

}  // namespace

Tensor gather(const Tensor& input, int64_t dim, const Tensor& index_argument) {
  const ops::Operands operands = {{"input", input}, {"index", index_argument}};
  const KernelContext context = ops::check_same_device("gather", operands);
  check_int64("gather", "index", index_argument, operands);
  const int64_t d = wrap_dim("gather", dim, input.dim());
  bool fits = index_argument.dim() == input.dim();
  for (int64_t i = 0; fits && i < input.dim(); ++i) fits = i == d || index_argument.size(i) <= input.size(i);
  TANDEM_CHECK(
      ShapeError, fits,
      ops::operand_error(
          "gather", str("index must have as many dimensions as input, and sizes up to input's except in dimension ", d),
          operands));
  const Tensor index = row_major(index_argument.detach());
  check_index_bounds("gather", "index", context, index, input.dim() == 0 ? 1 : input.size(d));
  Tensor out = run_gather(context, input.detach(), d, index);
  record_gather("gather", out, input, d, index);
  return out;
}

// --- index_select --------------------------------------------------------------------------------

namespace {

Tensor index_select_backward(const Tensor& grad, int64_t dim, const Tensor& index, int64_t size);

struct IndexSelectBackwardNode : Node {
  SavedTensor index{*this, "index"};
  int64_t dim = 0;
  TensorList backward(BackwardContext& context) override { return {index_select(context.grad(), dim, index.get())}; }
};

/// The gradient of index_select as an operation.
Tensor index_select_backward(const Tensor& grad, int64_t dim, const Tensor& index, int64_t size) {
  const KernelContext context = ops::check_same_device("index_select_backward", {{"grad", grad}, {"index", index}});
  Shape shape = grad.shape();
  shape[static_cast<size_t>(dim)] = size;
  const Extents block = block_of(grad.shape(), dim);
  const Tensor sums = empty(shape, {sum_dtype(grad.dtype()), grad.device()});
  const Tensor memory = row_major(grad);
  const Tensor workspace =
      scratch(TANDEM_KERNEL(context, index_select_backward_workspace_bytes, block.size, size), grad.device());
  TANDEM_KERNEL(context, index_select_backward, grad.dtype(), block.outer, block.size, block.inner, size,
                index.data<int64_t>(), memory.data_ptr(), data_of(workspace), sums.data_ptr());
  Tensor out = rounded(sums, grad.dtype());
  if (auto* node = record<IndexSelectBackwardNode>("index_select_backward", out, grad)) {
    node->index.save(index);
    node->dim = dim;
  }
  return out;
}

struct IndexSelectNode : Node {
  SavedTensor index{*this, "index"};
  int64_t dim = 0;
  int64_t size = 0;
  TensorList backward(BackwardContext& context) override {
    return {index_select_backward(context.grad(), dim, index.get(), size)};
  }
};

}  // namespace

Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index_argument) {
  const ops::Operands operands = {{"input", input}, {"index", index_argument}};
  const KernelContext context = ops::check_same_device("index_select", operands);
  check_int64("index_select", "index", index_argument, operands);
  TANDEM_CHECK(ShapeError, index_argument.dim() == 1,
               ops::operand_error("index_select", "index must have one dimension", operands));
  TANDEM_CHECK(IndexError, input.dim() > 0, ops::operand_error("index_select", "input has no dimensions", operands));
  const int64_t d = wrap_dim("index_select", dim, input.dim());
  const Tensor index = row_major(index_argument.detach());
  check_index_bounds("index_select", "index", context, index, input.size(d));
  Shape shape = input.shape();
  shape[static_cast<size_t>(d)] = index.num_elements();
  const Extents block = block_of(shape, d);
  Tensor out = empty(shape, input.options());
  const Tensor memory = row_major(input);
  TANDEM_KERNEL(context, index_select, block.inner * size_of(input.dtype()), block.outer, block.size, input.size(d),
                index.data<int64_t>(), memory.data_ptr(), out.data_ptr());
  if (auto* node = record<IndexSelectNode>("index_select", out, input)) {
    node->index.save(index);
    node->dim = d;
    node->size = input.size(d);
  }
  return out;
}

// --- one_hot, topk -------------------------------------------------------------------------------

Tensor one_hot(const Tensor& labels_argument, int64_t num_classes) {
  const KernelContext context = ops::check_same_device("one_hot", {{"labels", labels_argument}});
  check_int64("one_hot", "labels", labels_argument, {{"labels", labels_argument}});
  TANDEM_CHECK(ValueError, num_classes >= 1,
               ops::operand_error("one_hot", str("num_classes is ", num_classes, ", must be at least 1"),
                                  {{"labels", labels_argument}}));
  const Tensor labels = row_major(labels_argument);
  check_index_bounds("one_hot", "label", context, labels, num_classes);
  Shape shape = labels.shape();
  shape.push_back(num_classes);
  Tensor out = empty(shape, {kInt64, labels.device()});
  TANDEM_KERNEL(context, one_hot, labels.num_elements(), num_classes, labels.data<int64_t>(), out.data<int64_t>());
  return out;
}

TopK topk(const Tensor& input, int64_t k, int64_t dim, bool largest) {
  const KernelContext context = ops::check_same_device("topk", {{"input", input}});
  const int64_t d = wrap_dim("topk", dim, input.dim());
  const int64_t size = input.dim() == 0 ? 1 : input.size(d);
  TANDEM_CHECK(ValueError, k >= 0 && k <= size,
               ops::operand_error("topk", str("k is ", k, ", must be in [0, ", size, "], the size of dimension ", d),
                                  {{"input", input}}));
  Tensor values, indices;
  {
    const NoGradGuard no_grad;
    const Tensor rows = row_major(transpose(input, d, -1));  // moves the dimension last, as the kernel requires
    Shape shape = rows.shape();
    if (!shape.empty()) shape.back() = k;
    values = empty(shape, input.options());
    indices = empty(shape, {kInt64, input.device()});
    const int64_t num_rows = size == 0 ? 0 : rows.num_elements() / size;
    TANDEM_KERNEL(context, topk, input.dtype(), num_rows, size, k, largest, rows.data_ptr(), values.data_ptr(),
                  indices.data<int64_t>());
    values = row_major(transpose(values, d, -1));
    indices = row_major(transpose(indices, d, -1));
  }
  record_gather("topk", values, input, d, indices);
  return {values, indices};
}

// --- masked_fill, tril ---------------------------------------------------------------------------

namespace {

struct MaskedFillNode : Node {
  SavedTensor mask{*this, "mask"};
  Shape input_shape;
  TensorList backward(BackwardContext& context) override {
    return {ops::sum_to_shape(masked_fill(context.grad(), mask.get(), 0), input_shape)};
  }
};

}  // namespace

namespace {

void check_masked_fill(const char* op, const char* name, const Tensor& input, const Tensor& mask, Scalar value) {
  const ops::Operands operands = {{name, input}, {"mask", mask}};
  TANDEM_CHECK(DTypeError, mask.dtype() == kBool, ops::operand_error(op, "mask must be bool", operands));
  TANDEM_CHECK(DTypeError, ops::dtype_with(input, value) == input.dtype(),
               ops::operand_error(op,
                                  str("the value is a ", value.dtype() == kFloat64 ? "floating number" : "number",
                                      ", which ", name, " cannot hold"),
                                  operands));
  check_fits(op, "value", value, input.dtype());
}

void run_masked_fill(const KernelContext& context, const Tensor& input, const Tensor& mask, Scalar value,
                     const Tensor& out) {
  const auto loop = ops::make_loop<4>(out.shape(), out.num_elements(), {&out, &mask, nullptr, &input});
  const ops::Element number(value, input.dtype());
  TANDEM_KERNEL(context, where, size_of(input.dtype()), loop, mask.data_ptr(), number.source(), input.data_ptr(),
                out.data_ptr());
}

void record_masked_fill(const char* op, const Tensor& out, const Tensor& input, const Tensor& mask) {
  if (auto* node = record<MaskedFillNode>(op, out, input)) {
    node->mask.save(mask);
    node->input_shape = input.shape();
  }
}

}  // namespace

Tensor masked_fill(const Tensor& input, const Tensor& mask, Scalar value) {
  const ops::Operands operands = {{"input", input}, {"mask", mask}};
  const KernelContext context = ops::check_same_device("masked_fill", operands);
  check_masked_fill("masked_fill", "input", input, mask, value);
  const Shape shape = ops::broadcast_shape("masked_fill", operands);
  Tensor out = shape == input.shape() ? empty_preserving_layout(input, input.dtype()) : empty(shape, input.options());
  run_masked_fill(context, input, mask, value, out);
  record_masked_fill("masked_fill", out, input, mask);
  return out;
}

const Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  const ops::Operands operands = {{"self", *this}, {"mask", mask}};
  const KernelContext context = ops::check_same_device("masked_fill_", operands);
  check_masked_fill("masked_fill_", "self", *this, mask, value);
  ops::check_in_place("masked_fill_", *this, dtype());
  TANDEM_CHECK(ShapeError, ops::broadcast_shape("masked_fill_", operands) == shape(),
               ops::operand_error("masked_fill_", "mask does not broadcast to the shape of self", operands));
  const Tensor condition = mask.storage() == storage() ? tandem::clone(mask) : mask;
  ops::begin_in_place("masked_fill_", *this);
  record_masked_fill("masked_fill_", *this, *this, condition);
  run_masked_fill(context, *this, condition, value, *this);
  autograd::end_in_place("masked_fill_", *this);
  return *this;
}

namespace {

struct TrilNode : Node {
  int64_t diagonal = 0;
  TensorList backward(BackwardContext& context) override { return {tril(context.grad(), diagonal)}; }
};

}  // namespace

Tensor tril(const Tensor& input, int64_t diagonal) {
  const KernelContext context = ops::check_same_device("tril", {{"input", input}});
  TANDEM_CHECK(ShapeError, input.dim() >= 2,
               ops::operand_error("tril", "input must have at least two dimensions", {{"input", input}}));
  const int64_t rows = input.size(-2), columns = input.size(-1);
  Tensor out = empty_like(input);
  const Tensor memory = row_major(input);
  TANDEM_KERNEL(context, tril, size_of(input.dtype()), input.num_elements() / std::max<int64_t>(rows * columns, 1),
                rows, columns, diagonal, memory.data_ptr(), out.data_ptr());
  if (auto* node = record<TrilNode>("tril", out, input)) node->diagonal = diagonal;
  return out;
}

Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return tandem::masked_fill(*this, mask, value); }

}}  // namespace tandem::v0

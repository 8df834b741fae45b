#include <tandem/ops/index.h>

#include <algorithm>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/index/index_kernels.h>
#include <tandem/ops/index/scatter.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using ops::check_index_bounds;
using ops::record_gradient;
using ops::row_major;

namespace {

void check_int64(const char* op, const char* name, const Tensor& index, ops::OperandSpan operands) {
  TANDEM_CHECK(DTypeError, index.dtype() == kInt64, ops::operand_error(op, str(name, " must be int64"), operands));
}

}  // namespace

namespace {

/// gather without checks and recording; index is row-major.
Tensor run_gather(const KernelContext& context, const Tensor& input, int64_t dim, const Tensor& index) {
  if (index.numel() == 0) return empty(index.shape(), input.options());
  const Extents block = extents_around(index.shape(), dim);
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

}  // namespace

void ops::record_gather(const char* op, const Tensor& out, const Tensor& input, int64_t dim, const Tensor& index) {
  record_gradient(op, out, {&input}, {{"index", index}},
                  [dim, shape = input.shape()](const Tensor& grad, const Tensor& positions) {
                    return gather_backward(reshape(grad, positions.shape()), dim, positions, shape);
                  });
}

Tensor gather(const Tensor& input, int64_t dim, const Tensor& index_tensor) {
  const ops::Call call("gather", {{"input", input}, {"index", index_tensor}});
  const int64_t d = wrap_dim("gather", dim, input.dim());
  bool fits = index_tensor.dim() == input.dim();
  for (int64_t i = 0; fits && i < input.dim(); ++i) fits = i == d || index_tensor.size(i) <= input.size(i);
  call.require(fits,
               "index must have as many dimensions as input, and no size larger than input's except in dimension ", d);
  const Tensor index = ops::index_argument("gather", "index", index_tensor, call.operands);
  check_index_bounds("gather", "index", call, index, input.dim() == 0 ? 1 : input.size(d));
  Tensor out = run_gather(call, input.detach(), d, index);
  ops::record_gather("gather", out, input, d, index);
  return out;
}

Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index_tensor) {
  const ops::Call call("index_select", {{"input", input}, {"index", index_tensor}});
  call.require(index_tensor.dim() == 1, "index must have one dimension");
  call.require<IndexError>(input.dim() > 0, "input has no dimensions");
  const int64_t d = wrap_dim("index_select", dim, input.dim());
  const Tensor index = ops::index_argument("index_select", "index", index_tensor, call.operands);
  check_index_bounds("index_select", "index", call, index, input.size(d));
  Shape shape = input.shape();
  shape[static_cast<size_t>(d)] = index.numel();
  const Extents block = extents_around(shape, d);
  Tensor out = empty(shape, input.options());
  const Tensor memory = row_major(input);
  if (out.numel() > 0) {
    TANDEM_KERNEL(call, index_select, block.inner * size_of(input.dtype()), block.outer, block.size, input.size(d),
                  index.data<int64_t>(), memory.data_ptr(), out.data_ptr());
  }
  record_gradient("index_select", out, {&input}, {{"index", index}},
                  [d, input_shape = input.shape()](const Tensor& grad, const Tensor& positions) {
                    return ops::index_select_backward(grad, d, positions, input_shape);
                  });
  return out;
}

Tensor one_hot(const Tensor& labels_argument, int64_t num_classes) {
  const ops::Call call("one_hot", {{"labels", labels_argument}});
  check_int64("one_hot", "labels", labels_argument, call.operands);
  call.require<ValueError>(num_classes >= 1, "num_classes is ", num_classes, ", must be at least 1");
  const Tensor labels = row_major(labels_argument);
  check_index_bounds("one_hot", "label", call, labels, num_classes);
  Shape shape = labels.shape();
  shape.push_back(num_classes);
  Tensor out = empty(shape, {kInt64, labels.device()});
  TANDEM_KERNEL(call, one_hot, labels.numel(), num_classes, labels.data<int64_t>(), out.data<int64_t>());
  return out;
}

ValuesIndices topk(const Tensor& input, int64_t k, int64_t dim, bool largest, bool) {
  const ops::Call call("topk", {{"input", input}});
  const int64_t d = wrap_dim("topk", dim, input.dim());
  const int64_t size = input.dim() == 0 ? 1 : input.size(d);
  call.require<ValueError>(k >= 0 && k <= size, "k is ", k, ", must be in [0, ", size, "], the size of dimension ", d);
  Tensor values, indices;
  {
    const NoGradGuard no_grad;
    const Tensor rows = row_major(transpose(input, d, -1));  // moves the dimension last, as the kernel requires
    Shape shape = rows.shape();
    if (!shape.empty()) shape.back() = k;
    values = empty(shape, input.options());
    indices = empty(shape, {kInt64, input.device()});
    const int64_t num_rows = size == 0 ? 0 : rows.numel() / size;
    TANDEM_KERNEL(call, topk, input.dtype(), num_rows, size, k, largest, rows.data_ptr(), values.data_ptr(),
                  indices.data<int64_t>());
    values = row_major(transpose(values, d, -1));
    indices = row_major(transpose(indices, d, -1));
  }
  ops::record_gather("topk", values, input, d, indices);
  return {values, indices};
}

namespace {

void check_masked_fill(const char* op, const char* name, const Tensor& input, const Tensor& mask, Scalar value) {
  const ops::Operands operands = {{name, input}, {"mask", mask}};
  TANDEM_CHECK(DTypeError, mask.dtype() == kBool, ops::operand_error(op, "mask must be bool", operands));
  ops::check_fill_value(op, name, operands, value);
}

void run_masked_fill(const KernelContext& context, const Tensor& input, const Tensor& mask, Scalar value,
                     const Tensor& out) {
  const auto loop = ops::make_loop<4>(out.shape(), out.numel(), {&out, &mask, nullptr, &input});
  const ops::Element number(value, input.dtype());
  TANDEM_KERNEL(context, where, size_of(input.dtype()), loop, mask.data_ptr(), number.source(), input.data_ptr(),
                out.data_ptr());
}

void record_masked_fill(const char* op, const Tensor& out, const Tensor& input, const Tensor& mask) {
  record_gradient(op, out, {&input}, {{"mask", mask}},
                  [shape = input.shape()](const Tensor& grad, const Tensor& saved) {
                    return ops::sum_to_shape(masked_fill(grad, saved, 0), shape);
                  });
}

}  // namespace

void ops::check_fill_value(const char* op, const char* name, OperandSpan operands, Scalar value) {
  const Tensor& input = operands.front().tensor;
  const char* const kind = value.dtype() == kFloat64 ? "floating number" : "number";
  TANDEM_CHECK(DTypeError, dtype_with(input, value) == input.dtype(),
               operand_error(op, str("the value is a ", kind, ", which ", name, " cannot represent"), operands));
  check_fits(op, "value", value, input.dtype());
}

Tensor masked_fill(const Tensor& input, const Tensor& mask, Scalar value) {
  const ops::Call call("masked_fill", {{"input", input}, {"mask", mask}});
  check_masked_fill("masked_fill", "input", input, mask, value);
  const Shape shape = ops::broadcast_shape("masked_fill", call.operands);
  Tensor out = shape == input.shape() ? empty_preserving_layout(input, input.dtype()) : empty(shape, input.options());
  run_masked_fill(call, input, mask, value, out);
  record_masked_fill("masked_fill", out, input, mask);
  return out;
}

const Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) const {
  const ops::Call call("masked_fill_", {{"self", *this}, {"mask", mask}});
  check_masked_fill("masked_fill_", "self", *this, mask, value);
  ops::check_in_place("masked_fill_", *this, dtype());
  call.require(ops::broadcast_shape("masked_fill_", call.operands) == shape(),
               "mask does not broadcast to the shape of self");
  const Tensor condition = mask.storage() == storage() ? tandem::clone(mask) : mask;
  ops::begin_in_place("masked_fill_", *this);
  record_masked_fill("masked_fill_", *this, *this, condition);
  run_masked_fill(call, *this, condition, value, *this);
  autograd::end_in_place("masked_fill_", *this);
  return *this;
}

namespace {

Tensor keep_triangle(const char* op, bool upper, const Tensor& input, int64_t diagonal) {
  const ops::Call call(op, {{"input", input}});
  call.require(input.dim() >= 2, "input must have at least two dimensions");
  const int64_t rows = input.size(-2), columns = input.size(-1);
  Tensor out = empty_like(input);
  const Tensor memory = row_major(input);
  TANDEM_KERNEL(call, triangle, upper, size_of(input.dtype()), input.numel() / std::max<int64_t>(rows * columns, 1),
                rows, columns, diagonal, memory.data_ptr(), out.data_ptr());
  record_gradient(op, out, {&input}, [upper, diagonal](const Tensor& grad) {
    return upper ? triu(grad, diagonal) : tril(grad, diagonal);
  });
  return out;
}

}  // namespace

Tensor tril(const Tensor& input, int64_t diagonal) { return keep_triangle("tril", false, input, diagonal); }
Tensor triu(const Tensor& input, int64_t diagonal) { return keep_triangle("triu", true, input, diagonal); }

Tensor nonzero(const Tensor& input) {
  const ops::Call call("nonzero", {{"input", input}});
  const Tensor mask = row_major(input.dtype() == kBool ? input : ne(input, 0));
  const int64_t n = mask.numel();
  const Tensor workspace = empty({TANDEM_KERNEL(call, nonzero_workspace_bytes, n)}, {kUInt8, input.device()});
  const Tensor count = empty({}, {kInt64, input.device()});
  TANDEM_KERNEL(call, count_nonzero, n, mask.data<bool>(), workspace.data_ptr(), count.data<int64_t>());
  Tensor out = empty({count.item<int64_t>(), input.dim()}, {kInt64, input.device()});
  TANDEM_KERNEL(call, nonzero, input.shape(), out.size(0), mask.data<bool>(), workspace.data_ptr(),
                out.data<int64_t>());
  return out;
}

std::vector<Tensor> where(const Tensor& condition) {
  const ops::Call call("where", {{"condition", condition}});
  return unbind(nonzero(condition.dim() == 0 ? condition.reshape({1}) : condition), 1);
}

Tensor take_along_dim(const Tensor& input, const Tensor& indices, std::optional<int64_t> dim) {
  const ops::Call call("take_along_dim", {{"input", input}, {"indices", indices}});
  const Tensor given = ops::index_argument("take_along_dim", "indices", indices, call.operands);
  const auto wrapped = [&](int64_t size) { return ops::wrap_index("take_along_dim", "index", call, given, size); };
  if (!dim) return gather(flatten(input), 0, flatten(wrapped(input.numel())));
  call.require(input.dim() == indices.dim(), "input and indices must have the same number of dimensions");
  const size_t d = static_cast<size_t>(wrap_dim("take_along_dim", *dim, input.dim()));
  const Tensor index = wrapped(input.dim() == 0 ? 1 : input.size(*dim));
  Shape from = input.shape(), at = indices.shape();
  for (size_t i = 0; i < from.size(); ++i) {
    if (i != d) from[i] = at[i] = from[i] == 1 ? at[i] : from[i];
  }
  return gather(expand(input, from), *dim, expand(index, at));
}

ValuesIndices Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted) const {
  return tandem::topk(*this, k, dim, largest, sorted);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return tandem::masked_fill(*this, mask, value); }
Tensor Tensor::gather(int64_t dim, const Tensor& index) const { return tandem::gather(*this, dim, index); }
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const { return tandem::index_select(*this, dim, index); }
Tensor Tensor::tril(int64_t diagonal) const { return tandem::tril(*this, diagonal); }
Tensor Tensor::triu(int64_t diagonal) const { return tandem::triu(*this, diagonal); }
Tensor Tensor::nonzero() const { return tandem::nonzero(*this); }

}}  // namespace tandem::v0

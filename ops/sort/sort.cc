#include <tandem/ops/sort.h>

#include <cmath>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/math.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/reduce/reduction.h>
#include <tandem/ops/scan.h>
#include <tandem/ops/sort/sort_kernels.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

namespace {

int64_t size_along(const Tensor& input, int64_t dim) { return input.dim() == 0 ? 1 : input.size(dim); }

/// sort without recording; `dim` is not negative.
ValuesIndices run_sort(const char* op, const KernelContext& context, const Tensor& input, int64_t dim,
                       bool descending) {
  const NoGradGuard no_grad;
  const int64_t n = size_along(input, dim);
  ops::check_input(op, input, n <= UINT32_MAX, "a dimension to sort has at most 2^32 - 1 elements");
  const Tensor rows = ops::row_major(transpose(input.detach(), dim, -1));
  Tensor values = empty(rows.shape(), input.options());
  Tensor indices = empty(rows.shape(), {kInt64, input.device()});
  if (rows.numel() > 0) {
    const int64_t num_rows = rows.numel() / n;
    const int64_t num_bytes = TANDEM_KERNEL(context, sort_workspace_bytes, input.dtype(), num_rows, n);
    const Tensor workspace = num_bytes > 0 ? empty({num_bytes}, {kUInt8, input.device()}) : Tensor();
    TANDEM_KERNEL(context, sort, input.dtype(), num_rows, n, descending, rows.data_ptr(),
                  num_bytes > 0 ? workspace.data_ptr() : nullptr, values.data_ptr(), indices.data<int64_t>());
  }
  if (dim >= input.dim() - 1) return {values, indices};
  return {clone(transpose(values, dim, -1)), clone(transpose(indices, dim, -1))};
}

/// The elements of `input` at `indices`, whose dimension `dim` has size 1 and is removed unless keepdim.
ValuesIndices selected(const char* op, const Tensor& input, int64_t dim, const Tensor& indices, bool keepdim) {
  ValuesIndices out;
  {
    const NoGradGuard no_grad;
    Shape shape = indices.shape();
    if (!keepdim && !shape.empty()) shape.erase(static_cast<size_t>(dim));
    const auto reshaped = [&](const Tensor& row_major) {  // not marked as a view, because no other tensor uses it
      return make_view(row_major.storage(), row_major.dtype(), shape, row_major_strides(shape), 0);
    };
    out.values = reshaped(gather(input.detach(), dim, indices));
    out.indices = reshaped(clone(indices));
  }
  ops::record_gather(op, out.values, input, dim, indices);
  return out;
}

}  // namespace

ValuesIndices sort(const Tensor& input, int64_t dim, bool descending) {
  const ops::Call call("sort", {{"input", input}});
  const int64_t d = wrap_dim("sort", dim, input.dim());
  ValuesIndices out = run_sort("sort", call, input, d, descending);
  ops::record_gather("sort", out.values, input, d, out.indices);
  return out;
}

Tensor argsort(const Tensor& input, int64_t dim, bool descending) {
  const ops::Call call("argsort", {{"input", input}});
  return run_sort("argsort", call, input, wrap_dim("argsort", dim, input.dim()), descending).indices;
}

ValuesIndices kthvalue(const Tensor& input, int64_t k, int64_t dim, bool keepdim) {
  const ops::Call call("kthvalue", {{"input", input}});
  const int64_t d = wrap_dim("kthvalue", dim, input.dim()), size = size_along(input, d);
  call.require<ValueError>(k >= 1 && k <= size, "k is ", k, ", must be in [1, ", size, "], for dimension ", d);
  const Tensor indices = run_sort("kthvalue", call, input, d, false).indices;
  const Tensor kth = input.dim() == 0 ? indices : contiguous(slice(indices, d, k - 1, k));
  return selected("kthvalue", input, d, kth, keepdim);
}

namespace {

ValuesIndices median_along(const char* op, bool skips_nan, const Tensor& input, int64_t dim, bool keepdim) {
  const ops::Call call(op, {{"input", input}});
  const int64_t d = wrap_dim(op, dim, input.dim()), size = size_along(input, d);
  call.require(size > 0, "dimension ", d, " is empty");
  Tensor indices = run_sort(op, call, input, d, false).indices;
  if (input.dim() > 0) {
    // NaNs are last: if there are any, the position of the first one is the number of numbers.
    const Tensor numbers = sum(eq(input.detach(), input.detach()), {d}, true);
    const Tensor middle = div(clamp(numbers, 1) - 1, 2, RoundingMode::kTrunc);
    indices = gather(indices, d, skips_nan ? middle : where(lt(numbers, size), numbers, middle));
  }
  return selected(op, input, d, indices, keepdim);
}

Tensor median_of_all(const char* op, bool skips_nan, const Tensor& input) {
  const ops::Call call(op, {{"input", input}});
  if (input.numel() == 0) {
    call.require(is_floating_point(input.dtype()), "input has no elements");
    return full({}, NAN, input.options());
  }
  Tensor out;
  {
    const NoGradGuard no_grad;
    out = median_along(op, skips_nan, reshape(input.detach(), {-1}), 0, false).values;
  }
  ops::record_even_gradient(op, out, input, {}, Shape(static_cast<size_t>(input.dim()), 1));
  return out;
}

}  // namespace

ValuesIndices median(const Tensor& input, int64_t dim, bool keepdim) {
  return median_along("median", false, input, dim, keepdim);
}
Tensor median(const Tensor& input) { return median_of_all("median", false, input); }
ValuesIndices nanmedian(const Tensor& input, int64_t dim, bool keepdim) {
  return median_along("nanmedian", true, input, dim, keepdim);
}
Tensor nanmedian(const Tensor& input) { return median_of_all("nanmedian", true, input); }

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right) {
  const ops::Call call("searchsorted", {{"sorted_sequence", sorted_sequence}, {"values", values}}, ops::DTypes::kSame);
  const bool is_shared = sorted_sequence.dim() == 1;
  bool fits = is_shared || (sorted_sequence.dim() > 1 && sorted_sequence.dim() == values.dim());
  for (int64_t i = 0; fits && i < sorted_sequence.dim() - 1; ++i) fits = sorted_sequence.size(i) == values.size(i);
  call.require(fits, "sorted_sequence must have one dimension, or values' sizes except in the last one");
  Tensor out = empty(values.shape(), {kInt64, values.device()});
  const Tensor sequence = ops::row_major(sorted_sequence), needles = ops::row_major(values);
  TANDEM_KERNEL(call, searchsorted, values.dtype(), sequence.size(-1), values.numel(), is_shared ? 0 : values.size(-1),
                right, sequence.data_ptr(), needles.data_ptr(), out.data<int64_t>());
  return out;
}

Tensor bucketize(const Tensor& input, const Tensor& boundaries, bool right) {
  const ops::Call call("bucketize", {{"input", input}, {"boundaries", boundaries}}, ops::DTypes::kSame);
  call.require(boundaries.dim() == 1, "boundaries must have one dimension");
  return searchsorted(boundaries, input, right);
}

Unique unique(const Tensor& input, bool, bool return_inverse, bool return_counts) {
  const ops::Call call("unique", {{"input", input}});
  const NoGradGuard no_grad;
  const int64_t n = input.numel();
  const auto [values, order] = run_sort("unique", call, reshape(input, {n}), 0, false);
  const TensorOptions indices{kInt64, input.device()};
  Tensor groups = zeros({n}, indices),
         starts = zeros({0}, indices);  // the group of each sorted element; where each begins
  if (n > 0) {
    const Tensor is_new = ne(slice(values, 0, 1, n), slice(values, 0, 0, n - 1));
    groups = cumsum(cat({zeros({1}, {kBool, input.device()}), is_new}), 0);
    starts = searchsorted(groups, arange(0, select(groups, 0, n - 1).item<int64_t>() + 1, 1, input.device()));
  }
  Unique out;
  out.output = index_select(values, 0, starts);
  if (return_inverse) out.inverse_indices = clone(reshape(index_select(groups, 0, argsort(order)), input.shape()));
  if (return_counts) {
    out.counts = sub(slice(cat({starts, full({1}, n, indices)}), 0, 1, starts.size(0) + 1), starts);
  }
  return out;
}

ValuesIndices Tensor::sort(int64_t dim, bool descending) const { return tandem::sort(*this, dim, descending); }
Tensor Tensor::argsort(int64_t dim, bool descending) const { return tandem::argsort(*this, dim, descending); }
ValuesIndices Tensor::kthvalue(int64_t k, int64_t dim, bool keepdim) const {
  return tandem::kthvalue(*this, k, dim, keepdim);
}
Tensor Tensor::median() const { return tandem::median(*this); }
ValuesIndices Tensor::median(int64_t dim, bool keepdim) const { return tandem::median(*this, dim, keepdim); }
Tensor Tensor::nanmedian() const { return tandem::nanmedian(*this); }
ValuesIndices Tensor::nanmedian(int64_t dim, bool keepdim) const { return tandem::nanmedian(*this, dim, keepdim); }

}}  // namespace tandem::v0

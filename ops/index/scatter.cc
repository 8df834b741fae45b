// scatter, scatter_reduce, index_add, index_copy, index_fill and their in-place forms.
#include <tandem/ops/index/scatter.h>

#include <cmath>
#include <limits>

#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/index/gather.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::copy_of;
using ops::index_argument;
using ops::operand_error;
using ops::Operands;
using ops::row_major;
using ops::scatter_into;
using ops::scatter_slices_into;

namespace {

/// The dtype in which values are accumulated: float32 for half types, int64 for integers and bool.
DType accumulation_dtype(DType dtype) {
  return visit_dtype(dtype, []<class T>() { return dtype_of<Accumulator<T>>(); });
}

/// Calls write(memory) for the contents of `out` as a row-major tensor of the dtype that kernels write, and stores
/// them.
template <class F>
void write_through(ScatterOp op, const Tensor& out, const F& write) {
  const DType dtype = op == ScatterOp::kAssign ? out.dtype() : accumulation_dtype(out.dtype());
  if (out.is_contiguous() && out.dtype() == dtype) return write(out);
  const Tensor memory = empty(out.shape(), {dtype, out.device()});
  primitives::copy(out, memory);
  write(memory);
  primitives::copy(memory, out);
}

/// `tensor` with memory that in-place writes to self do not change (recorded).
Tensor separate(const Tensor& tensor, const Tensor& self) {
  return tensor.storage() == self.storage() ? clone(tensor) : tensor;
}

}  // namespace

Tensor ops::index_argument(const char* op, const char* name, const Tensor& index, OperandSpan operands) {
  TANDEM_CHECK(DTypeError, index.dtype() == kInt64 || index.dtype() == kInt32,
               operand_error(op, str(name, " must be int32 or int64"), operands));
  return row_major(to(index.detach(), kInt64));
}

Tensor ops::copy_of(const Tensor& input) {
  Tensor copy = empty_like(input);
  primitives::copy(input, copy);
  return copy;
}

void ops::scatter_into(const KernelContext& context, ScatterOp op, const Tensor& out, int64_t dim, const Tensor& index,
                       const Tensor& src) {
  if (index.numel() == 0) return;
  const NoGradGuard no_grad;
  Tensor part = out;
  for (int64_t d = 0; d < part.dim(); ++d) {  // only the part that index can address
    if (d != dim && index.size(d) != part.size(d)) part = slice(part, d, 0, index.size(d));
  }
  const Extents block = extents_around(index.shape(), dim);
  const Tensor values = row_major(src);
  const Tensor workspace = scratch_memory(
      TANDEM_KERNEL(context, scatter_workspace_bytes, block.outer, block.size, block.inner), out.device());
  write_through(op, part, [&](const Tensor& memory) {
    TANDEM_KERNEL(context, scatter, op, src.dtype(), block.outer, block.size, block.inner,
                  extents_around(memory.shape(), dim).size, index.data<int64_t>(), values.data_ptr(),
                  data_or_null(workspace), memory.data_ptr());
  });
}

void ops::scatter_slices_into(const KernelContext& context, ScatterOp op, const Tensor& out, int64_t dim,
                              const Tensor& index, const Tensor& src) {
  if (src.numel() == 0) return;
  const Extents block = extents_around(src.shape(), dim);
  const int64_t size = extents_around(out.shape(), dim).size;
  const Tensor values = row_major(src);
  const Tensor workspace =
      scratch_memory(TANDEM_KERNEL(context, scatter_slices_workspace_bytes, block.size, size), out.device());
  write_through(op, out, [&](const Tensor& memory) {
    TANDEM_KERNEL(context, scatter_slices, op, src.dtype(), block.outer, block.size, block.inner, size,
                  index.data<int64_t>(), values.data_ptr(), data_or_null(workspace), memory.data_ptr());
  });
}

namespace {

/// Records an operation that assigns or adds (kAssign, kSum) to elements or slices that an index selects.
void record_scatter(const char* op, const Tensor& out, const Tensor& input, int64_t dim, const Tensor& index,
                    const Tensor& src, ScatterOp how, bool of_slices = false) {
  if (!is_floating_point(out.dtype())) return;
  const bool adds = how == ScatterOp::kSum;
  const auto gradients = [dim, adds, of_slices](BackwardContext& context, const SavedTensor& saved) {
    TensorList grads(2);
    const Tensor &grad = context.grad(), at = saved.get();
    const auto others = [&] { return of_slices ? index_fill(grad, dim, at, 0) : scatter(grad, dim, at, 0); };
    if (context.needs(0)) grads[0] = adds ? grad : others();
    if (context.needs(1)) grads[1] = of_slices ? index_select(grad, dim, at) : gather(grad, dim, at);
    return grads;
  };
  ops::record_gradient(op, out, {&input, &src}, {{"index", index}}, gradients);
}

/// Checks the arguments of scatter operations, replaces dim and index by the arguments of the kernel, and src by the
/// part that is written.
ops::Call prepare(const char* op, const char* name, const Tensor& input, int64_t& dim, Tensor& index, Tensor& src) {
  ops::Call call(op, {{name, input}, {"index", index}, {"src", src}});
  ops::check_same_dtype(op, {{name, input}, {"src", src}});
  dim = wrap_dim(op, dim, input.dim());
  bool fits = index.dim() == input.dim() && index.dim() == src.dim();
  for (int64_t d = 0; fits && d < input.dim(); ++d) {
    fits = index.size(d) <= src.size(d) && (d == dim || index.size(d) <= input.size(d));
  }
  call.require(fits, "index must have as many dimensions as ", name,
               " and src, no size larger than src's, and no size larger than ", name, "'s except in dimension ", dim);
  index = index_argument(op, "index", index, call.operands);
  ops::check_index_bounds(op, "index", call, index, extents_around(input.shape(), dim).size);
  for (int64_t d = 0; d < src.dim(); ++d) {
    if (index.size(d) != src.size(d)) src = slice(src, d, 0, index.size(d));
  }
  return call;
}

Tensor scatter(const char* op, ScatterOp how, Tensor input, int64_t dim, Tensor index, Tensor src) {
  cast_for(CastPolicy::kWidest, {&input, &src});
  const ops::Call call = prepare(op, "input", input, dim, index, src);
  Tensor out = copy_of(input);
  scatter_into(call, how, out, dim, index, src.detach());
  record_scatter(op, out, input, dim, index, src, how);
  return out;
}

const Tensor& scatter_in_place(const char* op, ScatterOp how, const Tensor& self, int64_t dim, Tensor index,
                               Tensor src) {
  const ops::Call call = prepare(op, "self", self, dim, index, src);
  ops::check_in_place(op, self, self.dtype());
  index = separate(index, self);
  src = separate(src, self);
  ops::begin_in_place(op, self, src);
  record_scatter(op, self, self, dim, index, src, how);
  scatter_into(call, how, self, dim, index, src.detach());
  autograd::end_in_place(op, self);
  return self;
}

/// A mask like `input` that is true at the elements that index selects.
Tensor scatter_mask(const char* op, const Tensor& input, int64_t dim, const Tensor& index_tensor, Scalar value) {
  const ops::Call call(op, {{"input", input}, {"index", index_tensor}});
  ops::check_fill_value(op, "input", call.operands, value);
  dim = wrap_dim(op, dim, input.dim());
  bool fits = index_tensor.dim() == input.dim();
  for (int64_t d = 0; fits && d < input.dim(); ++d) fits = d == dim || index_tensor.size(d) <= input.size(d);
  call.require(fits,
               "index must have as many dimensions as input, and no size larger than input's except "
               "in dimension ",
               dim);
  const Tensor index = index_argument(op, "index", index_tensor, call.operands);
  ops::check_index_bounds(op, "index", call, index, extents_around(input.shape(), dim).size);
  Tensor mask = zeros(input.shape(), {kBool, input.device()});
  scatter_into(call, ScatterOp::kAssign, mask, dim, index, ones(index.shape(), mask.options()));
  return mask;
}

}  // namespace

Tensor ops::gather_backward(const Tensor& grad, int64_t dim, const Tensor& index, const Shape& shape) {
  const Call call("gather_backward", {{"grad", grad}, {"index", index}});
  Tensor out = zeros(shape, grad.options());
  scatter_into(call, ScatterOp::kSum, out, dim, index, grad.detach());
  record_scatter("gather_backward", out, Tensor(), dim, index, grad, ScatterOp::kSum);
  return out;
}

Tensor scatter(Tensor input, int64_t dim, const Tensor& index, Tensor src) {
  return scatter("scatter", ScatterOp::kAssign, std::move(input), dim, index, std::move(src));
}
Tensor scatter_add(Tensor input, int64_t dim, const Tensor& index, Tensor src) {
  return scatter("scatter_add", ScatterOp::kSum, std::move(input), dim, index, std::move(src));
}
Tensor scatter(const Tensor& input, int64_t dim, const Tensor& index, Scalar value) {
  const Tensor mask = scatter_mask("scatter", input, dim, index, value);
  return masked_fill(input, mask, value);
}

const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& src) const {
  return scatter_in_place("scatter_", ScatterOp::kAssign, *this, dim, index, src);
}
const Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& src) const {
  return scatter_in_place("scatter_add_", ScatterOp::kSum, *this, dim, index, src);
}
const Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, Scalar value) const {
  const ops::Call call("scatter_", {{"self", *this}, {"index", index}});
  return ops::copy_in_place("scatter_", *this, scatter(*this, dim, index, value));
}

namespace {

/// The value that a reduction ignores.
Scalar identity_of(ScatterReduce reduce, DType dtype) {
  if (reduce == ScatterReduce::kProd) return 1;
  if (reduce == ScatterReduce::kSum || reduce == ScatterReduce::kMean) return 0;
  const bool largest = reduce == ScatterReduce::kAmin;
  if (is_floating_point(dtype)) return largest ? INFINITY : -INFINITY;
  return visit_dtype(dtype, [&]<class T>() -> Scalar {
    if constexpr (!std::is_integral_v<T>)
      return 0;
    else
      return largest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
  });
}

ScatterOp op_of(ScatterReduce reduce) {
  switch (reduce) {
    case ScatterReduce::kProd: return ScatterOp::kProd;
    case ScatterReduce::kAmax: return ScatterOp::kMax;
    case ScatterReduce::kAmin: return ScatterOp::kMin;
    default: return ScatterOp::kSum;
  }
}

/// How many values each element is the mean of; 1 for elements without values. Not recorded.
Tensor counts_of(const KernelContext& context, const Shape& shape, int64_t dim, const Tensor& index, bool include_self,
                 DType dtype) {
  const NoGradGuard no_grad;
  const TensorOptions options = {dtype, index.device()};
  const Tensor counts = full(shape, include_self ? 1 : 0, options);
  scatter_into(context, ScatterOp::kSum, counts, dim, index, ones(index.shape(), options));
  return include_self ? counts : masked_fill(counts, eq(counts, 0), 1);
}

/// Inputs: input, src.
struct ScatterReduceNode : Node {
  SavedTensor index{*this, "index"}, input{*this, "input"}, src{*this, "src"}, result{*this, "result"};
  int64_t dim = 0;
  ScatterReduce reduce = ScatterReduce::kSum;
  bool include_self = true;

  TensorList backward(BackwardContext& context) override {
    const Tensor& grad = context.grad();
    const Tensor at = index.get();
    TensorList grads(2);
    if (reduce == ScatterReduce::kProd) {
      if (context.needs(0)) grads[0] = product_of_others(grad, at);
      if (context.needs(1)) grads[1] = product_of_other_values(grad, at);
    } else if (reduce == ScatterReduce::kSum || reduce == ScatterReduce::kMean) {
      Tensor share = grad;
      if (reduce == ScatterReduce::kMean) {
        share = grad / counts_of(kernel_context(grad.device()), grad.shape(), dim, at, include_self, grad.dtype());
      }
      grads = {share, gather(share, dim, at)};
    } else {  // divided equally among equal extrema
      const Tensor extremum = result.get();
      Tensor from_self = to(eq(input.get(), extremum), grad.dtype());
      if (!include_self) from_self = scatter(from_self, dim, at, 0);
      const Tensor from_src = to(eq(src.get(), gather(extremum, dim, at)), grad.dtype());
      const Tensor share = grad / scatter_add(from_self, dim, at, from_src);
      grads = {share * from_self, gather(share, dim, at) * from_src};
    }
    if (!include_self && grads[0].defined()) grads[0] = scatter(grads[0], dim, at, 0);
    ops::clear_unneeded(context, grads);
    return grads;
  }

 private:
  // Zeros are replaced by 1 to find the product of the other factors.
  Tensor product_of_others(const Tensor& grad, const Tensor& at) const {
    const Tensor self = input.get(), nonzero = masked_fill(self, eq(self, 0), 1);
    return grad * scatter_reduce(nonzero, dim, at, src.get(), reduce, include_self) / nonzero;
  }
  // The first and the last zero of each element are left out in turn. With more zeros, second gradients are 0 too.
  Tensor product_of_other_values(const Tensor& grad, const Tensor& at) const {
    const Tensor values = src.get(), zero = eq(values, 0);
    const Tensor positions = arange(0, at.numel(), 1, at.device()).reshape(at.shape());
    Tensor out = gather(grad * result.get(), dim, at) / masked_fill(values, zero, 1);
    for (const ScatterReduce end : {ScatterReduce::kAmin, ScatterReduce::kAmax}) {
      const Tensor of_zeros = masked_fill(positions, eq(zero, 0), identity_of(end, kInt64));
      const Tensor ends = scatter_reduce(zeros(grad.shape(), positions.options()), dim, at, of_zeros, end, false);
      const Tensor left_out = bitwise_and(zero, eq(of_zeros, gather(ends, dim, at)));
      const Tensor rest = masked_fill(values, left_out, 1);
      const Tensor others = scatter_reduce(input.get(), dim, at, rest, reduce, include_self);
      out = where(left_out, gather(grad * others, dim, at), out);
    }
    return out;
  }
};

}  // namespace

Tensor scatter_reduce(Tensor input, int64_t dim, const Tensor& index_tensor, Tensor src, ScatterReduce reduce,
                      bool include_self) {
  cast_for(CastPolicy::kWidest, {&input, &src});
  Tensor index = index_tensor;
  const ops::Call call = prepare("scatter_reduce", "input", input, dim, index, src);
  TANDEM_CHECK(
      DTypeError, reduce != ScatterReduce::kMean || is_floating_point(input.dtype()),
      operand_error("scatter_reduce", "the mean of integers is not supported", {{"input", input}, {"src", src}}));
  Tensor out;
  {
    const NoGradGuard no_grad;
    const DType dtype = reduce == ScatterReduce::kMean ? accumulation_dtype(input.dtype()) : input.dtype();
    out = copy_of(to(input, dtype));  // a mean is rounded once
    if (!include_self) {
      const Tensor identity = full(index.shape(), identity_of(reduce, dtype), out.options());
      scatter_into(call, ScatterOp::kAssign, out, dim, index, identity);
    }
    scatter_into(call, op_of(reduce), out, dim, index, to(src, dtype));
    if (reduce == ScatterReduce::kMean) out = out / counts_of(call, out.shape(), dim, index, include_self, dtype);
    out = to(out, input.dtype());
  }
  if (auto* node = record<ScatterReduceNode>("scatter_reduce", out, input, src)) {
    node->index.save(index);
    node->dim = dim;
    node->reduce = reduce;
    node->include_self = include_self;
    if (reduce != ScatterReduce::kSum && reduce != ScatterReduce::kMean) {
      node->input.save(input);
      node->src.save(src);
      node->result.save(out);
    }
  }
  return out;
}

const Tensor& Tensor::scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& src, ScatterReduce reduce,
                                      bool include_self) const {
  const ops::Call call("scatter_reduce_", {{"self", *this}, {"index", index}, {"src", src}});
  const Tensor old = autograd::should_record(*this, src) ? clone() : *this;  // may be saved for backward
  return ops::copy_in_place("scatter_reduce_", *this, scatter_reduce(old, dim, index, src, reduce, include_self));
}

namespace {

/// Checks the arguments of index_add and index_copy and replaces them by the arguments of the kernel.
ops::Call prepare_slices(const char* op, const char* name, const Tensor& input, int64_t& dim, Tensor& index,
                         Tensor& source, Scalar alpha) {
  ops::Call call(op, {{name, input}, {"index", index}, {"source", source}});
  ops::check_same_dtype(op, {{name, input}, {"source", source}});
  dim = wrap_dim(op, dim, input.dim());
  Shape expected = input.shape();
  if (!expected.empty()) expected[static_cast<size_t>(dim)] = index.numel();
  call.require(index.dim() == 1 && !expected.empty() && source.shape() == expected,
               "index must have one dimension, and source the shape of ", name,
               " with the number of indices as the size of dimension ", dim);
  const bool scales = alpha.to_double() != 1;
  const char* const kind = alpha.dtype() == kFloat64 ? "floating number" : "number";
  call.require<DTypeError>(!scales || ops::dtype_with(source, alpha) == source.dtype(), "alpha is a ", kind,
                           ", which source cannot represent");
  index = index_argument(op, "index", index, call.operands);
  ops::check_index_bounds(op, "index", call, index, input.size(dim));
  if (scales) source = mul(source, alpha);
  return call;
}

Tensor write_slices(const char* op, ScatterOp how, Tensor input, int64_t dim, Tensor index, Tensor source,
                    Scalar alpha) {
  cast_for(CastPolicy::kWidest, {&input, &source});
  const ops::Call call = prepare_slices(op, "input", input, dim, index, source, alpha);
  Tensor out = copy_of(input);
  scatter_slices_into(call, how, out, dim, index, source);
  record_scatter(op, out, input, dim, index, source, how, true);
  return out;
}

const Tensor& write_slices_in_place(const char* op, ScatterOp how, const Tensor& self, int64_t dim, Tensor index,
                                    Tensor source, Scalar alpha) {
  const ops::Call call = prepare_slices(op, "self", self, dim, index, source, alpha);
  ops::check_in_place(op, self, self.dtype());
  index = separate(index, self);
  source = separate(source, self);
  ops::begin_in_place(op, self, source);
  record_scatter(op, self, self, dim, index, source, how, true);
  scatter_slices_into(call, how, self, dim, index, source);
  autograd::end_in_place(op, self);
  return self;
}

}  // namespace

Tensor ops::index_select_backward(const Tensor& grad, int64_t dim, const Tensor& index, const Shape& shape) {
  const Call call("index_select_backward", {{"grad", grad}, {"index", index}});
  Tensor out = zeros(shape, grad.options());
  scatter_slices_into(call, ScatterOp::kSum, out, dim, index, grad);
  record_scatter("index_select_backward", out, Tensor(), dim, index, grad, ScatterOp::kSum, true);
  return out;
}

Tensor index_add(Tensor input, int64_t dim, const Tensor& index, Tensor source, Scalar alpha) {
  return write_slices("index_add", ScatterOp::kSum, std::move(input), dim, index, std::move(source), alpha);
}
Tensor index_copy(Tensor input, int64_t dim, const Tensor& index, Tensor source) {
  return write_slices("index_copy", ScatterOp::kAssign, std::move(input), dim, index, std::move(source), 1);
}

Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index_tensor, Scalar value) {
  const ops::Call call("index_fill", {{"input", input}, {"index", index_tensor}});
  ops::check_fill_value("index_fill", "input", call.operands, value);
  const int64_t d = wrap_dim("index_fill", dim, input.dim());
  call.require(index_tensor.dim() == 1 && input.dim() > 0, "index must have one dimension, and input at least one");
  const Tensor index = index_argument("index_fill", "index", index_tensor, call.operands);
  ops::check_index_bounds("index_fill", "index", call, index, input.size(d));
  const Tensor mask = zeros({input.size(d)}, {kBool, input.device()});
  scatter_slices_into(call, ScatterOp::kAssign, mask, 0, index, ones(index.shape(), mask.options()));
  Shape shape(input.shape().size(), 1);
  shape[static_cast<size_t>(d)] = input.size(d);
  return masked_fill(input, mask.reshape(shape), value);
}

const Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) const {
  return write_slices_in_place("index_add_", ScatterOp::kSum, *this, dim, index, source, alpha);
}
const Tensor& Tensor::index_copy_(int64_t dim, const Tensor& index, const Tensor& source) const {
  return write_slices_in_place("index_copy_", ScatterOp::kAssign, *this, dim, index, source, 1);
}
const Tensor& Tensor::index_fill_(int64_t dim, const Tensor& index, Scalar value) const {
  const ops::Call call("index_fill_", {{"self", *this}, {"index", index}});
  return ops::copy_in_place("index_fill_", *this, index_fill(*this, dim, index, value));
}

}}  // namespace tandem::v0

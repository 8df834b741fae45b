// Indexing by lists of integers, slices and tensors, as NumPy's.
#include <deque>
#include <string>

#include <tandem/ops/common/call.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_loop.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index/bounds_check.h>
#include <tandem/ops/index/scatter.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using autograd::BackwardContext;
using autograd::Node;
using autograd::record;
using autograd::SavedTensor;
using ops::copy_of;
using ops::operand_error;
using ops::row_major;
using Indices = std::vector<TensorIndex>;

namespace {

using Kind = TensorIndex::Kind;

const Tensor* tensor_of(const TensorIndex& index) { return index.kind == Kind::kTensor ? &index.tensor : nullptr; }
bool is_mask(const Tensor& index) { return index.dtype() == kBool; }

/// check_same_device for `operands` and the tensors among the indices, which are named "indices[i]".
KernelContext check_operands(const char* op, const Indices& indices, std::vector<ops::Operand> operands) {
  std::deque<std::string> names;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (tensor_of(indices[i]) == nullptr) continue;
    operands.push_back({names.emplace_back(str("indices[", i, ']')).c_str(), *tensor_of(indices[i])});
  }
  KernelContext context = ops::check_same_device(op, operands);
  for (size_t i = 1; i < operands.size(); ++i) {
    const DType dtype = operands[i].tensor.dtype();
    TANDEM_CHECK(DTypeError, operands[i].name[0] != 'i' || dtype == kInt64 || dtype == kInt32 || dtype == kBool,
                 operand_error(op, "index tensors must be int32, int64 or bool", operands));
  }
  return context;
}

/// An index tensor of dimension dim of a view; a mask is one of dimensions dim, dim + 1, ...
struct Indexed {
  int64_t dim;
  Tensor index;
};

/// A tensor to which all indices except index tensors were applied, and the index tensors.
struct Selection {
  Tensor part;  ///< a view (recorded)
  std::vector<Indexed> tensors;
};

Selection select_view(const char* op, const Tensor& input, const Indices& indices) {
  int64_t num_indexed = 0, num_ellipses = 0;
  for (const TensorIndex& index : indices) {
    const Tensor* tensor = tensor_of(index);
    const bool is_plain = index.kind == Kind::kInteger || index.kind == Kind::kSlice;
    num_indexed += tensor == nullptr ? is_plain : is_mask(*tensor) ? tensor->dim() : 1;
    num_ellipses += index.kind == Kind::kEllipsis;
  }
  ops::check_input<IndexError>(op, input, num_indexed <= input.dim(), "the indices are for ", num_indexed,
                               " dimensions, more than input has");
  TANDEM_CHECK(IndexError, num_ellipses <= 1, op, ": more than one Ellipsis");
  Selection result{input, {}};
  Tensor& part = result.part;
  int64_t d = 0;
  for (const TensorIndex& index : indices) {
    if (index.kind == Kind::kInteger) {
      part = select(part, d, index.range.start);
    } else if (index.kind == Kind::kSlice) {
      part = slice(part, d++, index.range.start, index.range.stop, index.range.step);
    } else if (index.kind == Kind::kEllipsis) {
      d += input.dim() - num_indexed;
    } else if (const Tensor* tensor = tensor_of(index)) {
      const bool new_dim = is_mask(*tensor) && tensor->dim() == 0;
      if (new_dim) part = unsqueeze(part, d);
      result.tensors.push_back({d, new_dim ? tensor->detach().reshape({1}) : tensor->detach()});
      d += is_mask(*tensor) ? result.tensors.back().index.dim() : 1;
    } else {
      part = unsqueeze(part, d++);
    }
  }
  for (const auto& [dim, tensor] : result.tensors) {
    for (int64_t i = 0; is_mask(tensor) && i < tensor.dim(); ++i) {
      TANDEM_CHECK(ShapeError, tensor.size(i) == part.size(dim + i),
                   operand_error(op,
                                 str("the mask does not have the sizes of dimensions ", dim, " to ",
                                     dim + tensor.dim() - 1, " of the tensor that it indexes"),
                                 {{"tensor", part}, {"mask", tensor}}));
    }
  }
  return result;
}

/// The dimensions with index tensors as one dimension between others.
struct Plan {
  Shape order;         ///< permutation that makes the dimensions with index tensors adjacent
  Shape outer, inner;  ///< sizes of the dimensions before and after them
  int64_t size = 1;    ///< elements of the indexed dimensions
  Shape index_shape;   ///< of the index tensors, broadcast
  Tensor index;        ///< int64 [n]: positions in the indexed dimensions

  Shape around(const Shape& middle) const {
    Shape shape = outer;
    for (const int64_t size_of_dim : middle) shape.push_back(size_of_dim);
    for (const int64_t size_of_dim : inner) shape.push_back(size_of_dim);
    return shape;
  }
};

/// The plan for a selection with tensors. Not recorded.
Plan make_plan(const char* op, const KernelContext& context, const Selection& selection) {
  const NoGradGuard no_grad;
  std::vector<Indexed> indexed;  // masks as the coordinates of their true elements
  for (const auto& [dim, tensor] : selection.tensors) {
    if (!is_mask(tensor)) {
      indexed.push_back({dim, tensor});
      continue;
    }
    const Tensor coordinates = nonzero(tensor);
    for (int64_t i = 0; i < tensor.dim(); ++i) indexed.push_back({dim + i, select(coordinates, 1, i)});
  }
  Plan plan;
  const int64_t num_dims = selection.part.dim(), first = indexed.front().dim, last = indexed.back().dim;
  const bool adjacent = last - first + 1 == static_cast<int64_t>(indexed.size());
  std::vector<bool> has_tensor(static_cast<size_t>(num_dims));
  for (const auto& [dim, tensor] : indexed) has_tensor[static_cast<size_t>(dim)] = true;
  for (int64_t d = 0; d < num_dims; ++d) {
    if (has_tensor[static_cast<size_t>(d)]) continue;
    (adjacent && d < first ? plan.outer : plan.inner).push_back(selection.part.size(d));
    plan.order.push_back(d);
  }
  Tensor index;
  size_t at = plan.outer.size();
  for (const auto& [dim, tensor] : indexed) {
    plan.order.insert(at++, dim);
    const int64_t size = selection.part.size(dim);
    const Tensor own = ops::wrap_index(op, "index", context, row_major(to(tensor, kInt64)), size);
    if (index.defined()) {
      static_cast<void>(ops::broadcast_shape(op, {{"indices", index}, {"next indices", own}}));
      index = index * size + own;
    } else {
      index = own;
    }
    plan.size *= size;
  }
  plan.index_shape = index.shape();
  plan.index = index.reshape({index.numel()});
  return plan;
}

/// `part` with the indexed dimensions adjacent.
Tensor ordered(const Tensor& part, const Plan& plan) { return permute(part, plan.order); }

}  // namespace

Tensor index(const Tensor& input, const Indices& indices) {
  const KernelContext context = check_operands("index", indices, {{"input", input}});
  const Selection selection = select_view("index", input, indices);
  if (selection.tensors.empty()) return selection.part;
  const Plan plan = make_plan("index", context, selection);
  const Tensor rows = reshape(ordered(selection.part, plan), plan.around({plan.size}));
  return view(index_select(rows, plan.outer.dim(), plan.index), plan.around(plan.index_shape));
}

namespace {

/// Inputs: input, value.
struct IndexPutNode : Node {
  Indices indices;  ///< with undefined tensors, which are in `tensors`
  std::deque<SavedTensor> tensors;
  bool accumulate = false;
  Shape value_shape;

  TensorList backward(BackwardContext& context) override {
    Indices restored = indices;
    auto next = tensors.begin();
    for (TensorIndex& index : restored) {
      if (tensor_of(index) != nullptr) index.tensor = (next++)->get();
    }
    TensorList grads(2);
    if (context.needs(0)) grads[0] = accumulate ? context.grad() : index_put(context.grad(), restored, 0);
    if (context.needs(1)) grads[1] = ops::sum_to_shape(index(context.grad(), restored), value_shape);
    return grads;
  }
};

/// index_put and index_put_, for a result that is `self` or a copy of it.
Tensor put_at(const char* op, bool in_place, const Tensor& self, const Indices& indices, Tensor value,
              bool accumulate) {
  const KernelContext context = check_operands(op, indices, {{in_place ? "self" : "input", self}, {"value", value}});
  if (in_place) ops::check_in_place(op, self, self.dtype());
  value = to(value, self.dtype());
  Plan plan;
  bool fills_mask = false;
  Shape shape;
  {  // views of self must not exist when the change of self is recorded
    const NoGradGuard no_grad;
    const Selection selection = select_view(op, self, indices);
    const auto& tensors = selection.tensors;
    fills_mask =
        tensors.size() == 1 && is_mask(tensors[0].index) && value.numel() == 1 && value.dim() <= 1 && !accumulate;
    if (!tensors.empty() && !fills_mask) plan = make_plan(op, context, selection);
    shape = plan.index.defined() ? plan.around(plan.index_shape) : selection.part.shape();
    bool fits = value.dim() <= static_cast<int64_t>(shape.size());
    for (int64_t d = 1; fits && d <= value.dim(); ++d) {
      fits = value.size(-d) == 1 || value.size(-d) == shape[shape.size() - static_cast<size_t>(d)];
    }
    TANDEM_CHECK(ShapeError, fits || fills_mask,
                 operand_error(op, str("value does not broadcast to the selected elements, ", shape),
                               {{in_place ? "self" : "input", self}, {"value", value}}));
  }
  if (value.storage() == self.storage()) value = clone(value);
  if (in_place) ops::begin_in_place(op, self, value);
  Tensor out = in_place ? self : copy_of(self);
  if (auto* node = is_floating_point(self.dtype()) ? record<IndexPutNode>(op, out, self, value) : nullptr) {
    for (const TensorIndex& index : indices) {
      node->indices.push_back(index);
      if (tensor_of(index) == nullptr) continue;
      node->tensors.emplace_back(*node, "indices").save(*tensor_of(index));
      node->indices.back().tensor = Tensor();
    }
    node->accumulate = accumulate;
    node->value_shape = value.shape();
  }
  const NoGradGuard no_grad;
  const Selection selection = select_view(op, out, indices);
  const Tensor& part = selection.part;
  if (fills_mask) {
    const auto& [dim, mask] = selection.tensors[0];
    Shape sizes = mask.shape();
    sizes.resize(static_cast<size_t>(part.dim() - dim), 1);
    primitives::copy(where(mask.reshape(sizes), value.reshape({}), part), part);
  } else if (!plan.index.defined()) {
    const Tensor source = expand(value, shape);
    primitives::copy(accumulate ? part + source : source, part);
  } else {
    const Tensor rows = ordered(part, plan);
    const Tensor memory = row_major(rows);
    const ScatterOp how = accumulate ? ScatterOp::kSum : ScatterOp::kAssign;
    const Tensor source = row_major(expand(value, shape));
    ops::scatter_slices_into(context, how, view(memory, plan.around({plan.size})), plan.outer.dim(), plan.index,
                             view(source, plan.around({plan.index.numel()})));
    if (!memory.is_same(rows)) primitives::copy(memory, rows);
  }
  if (in_place) autograd::end_in_place(op, self);
  return out;
}

/// A number as a value of self's dtype.
Tensor number_for(const char* op, const char* name, const Tensor& self, const Indices& indices, Scalar value) {
  const KernelContext context = check_operands(op, indices, {{name, self}});
  check_fits(op, "value", value, self.dtype());
  return scalar_tensor(value, self.options());
}

}  // namespace

Tensor index_put(const Tensor& input, const Indices& indices, const Tensor& value, bool accumulate) {
  return put_at("index_put", false, input, indices, value, accumulate);
}
Tensor index_put(const Tensor& input, const Indices& indices, Scalar value, bool accumulate) {
  return index_put(input, indices, number_for("index_put", "input", input, indices, value), accumulate);
}

Tensor Tensor::index(const Indices& indices) const { return tandem::index(*this, indices); }
const Tensor& Tensor::index_put_(const Indices& indices, const Tensor& value, bool accumulate) const {
  put_at("index_put_", true, *this, indices, value, accumulate);
  return *this;
}
const Tensor& Tensor::index_put_(const Indices& indices, Scalar value, bool accumulate) const {
  return index_put_(indices, number_for("index_put_", "self", *this, indices, value), accumulate);
}

Tensor take(const Tensor& input, const Tensor& index) {
  const ops::Call call("take", {{"input", input}, {"index", index}});
  return tandem::index(flatten(input), {ops::index_argument("take", "index", index, call.operands)});
}

Tensor put(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate) {
  const ops::Call call("put", {{"input", input}, {"index", index}, {"source", source}});
  ops::check_same_dtype("put", {{"input", input}, {"source", source}});
  call.require(index.numel() == source.numel(), "index and source must have the same number of elements");
  const Tensor at = ops::index_argument("put", "index", index, call.operands);
  return view(index_put(flatten(input), {flatten(at)}, flatten(source), accumulate), input.shape());
}

Tensor masked_select(const Tensor& input, const Tensor& mask) {
  const ops::Call call("masked_select", {{"input", input}, {"mask", mask}});
  call.require<DTypeError>(is_mask(mask), "mask must be bool");
  const Shape shape = ops::broadcast_shape("masked_select", call.operands);
  return tandem::index(flatten(expand(input, shape)), {flatten(expand(mask, shape))});
}

Tensor masked_scatter(const Tensor& input, const Tensor& mask, const Tensor& source) {
  const ops::Call call("masked_scatter", {{"input", input}, {"mask", mask}, {"source", source}});
  call.require<DTypeError>(is_mask(mask), "mask must be bool");
  ops::check_same_dtype("masked_scatter", {{"input", input}, {"source", source}});
  const Shape shape = ops::broadcast_shape("masked_scatter", {{"input", input}, {"mask", mask}});
  const Tensor index = flatten(nonzero(flatten(expand(mask, shape))));
  call.require(index.numel() <= source.numel(), "mask has ", index.numel(), " true elements, but source has only ",
               source.numel(), " elements");
  return put(expand(input, shape), index, slice(flatten(source), 0, 0, index.numel()), false);
}

Tensor Tensor::masked_select(const Tensor& mask) const { return tandem::masked_select(*this, mask); }

}}  // namespace tandem::v0

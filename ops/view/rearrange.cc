// Views and copies composed of the operations in view.cc; diagonals and windows.
#include <algorithm>
#include <cstdlib>

#include <tandem/base/math.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/ops/view/view_of.h>

namespace tandem { inline namespace v0 {

using ops::check_defined;
using ops::existing_dim;
using ops::operand_error;
using ops::record_gradient;
using ops::view_of;

namespace {

/// The dimensions `dims` of `input`, not negative. Throws ShapeError if one is repeated.
Shape distinct_dims(const char* op, const Tensor& input, const Shape& dims) {
  Shape wrapped;
  for (const int64_t dim : dims) {
    const int64_t d = wrap_dim(op, dim, input.dim());
    ops::check_input(op, input, std::find(wrapped.begin(), wrapped.end(), d) == wrapped.end(), "dims ", dims,
                     " repeat dimension ", d);
    wrapped.push_back(d);
  }
  return wrapped;
}

}  // namespace

std::vector<Tensor> unbind(const Tensor& input, int64_t dim) {
  const int64_t d = existing_dim("unbind", input, dim);
  std::vector<Tensor> parts = ops::list_of_views("unbind", input.size(d));
  for (int64_t i = 0; i < input.size(d); ++i) parts.push_back(select(input, d, i));
  return parts;
}

Tensor narrow(const Tensor& input, int64_t dim, int64_t start, int64_t length) {
  const int64_t d = existing_dim("narrow", input, dim), size = input.size(d);
  const int64_t begin = start < 0 ? start + size : start;
  ops::check_input<IndexError>("narrow", input, begin >= 0 && begin <= size && length >= 0 && length <= size - begin,
                               "start ", start, " and length ", length, " exceed dimension ", d, " of size ", size);
  return slice(input, d, begin, begin + length);
}

std::vector<Tensor> tensor_split(const Tensor& input, int64_t sections, int64_t dim) {
  const int64_t d = existing_dim("tensor_split", input, dim), size = input.size(d);
  ops::check_input<ValueError>("tensor_split", input, sections >= 1, "sections is ", sections, ", must be at least 1");
  std::vector<Tensor> parts = ops::list_of_views("tensor_split", sections);
  for (int64_t i = 0, begin = 0; i < sections; ++i) {
    const int64_t length = size / sections + (i < size % sections);
    parts.push_back(slice(input, d, begin, begin + length));
    begin += length;
  }
  return parts;
}

std::vector<Tensor> tensor_split(const Tensor& input, const Shape& indices, int64_t dim) {
  const int64_t d = existing_dim("tensor_split", input, dim);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t index : indices) {
    parts.push_back(slice(input, d, begin, index));
    begin = index;
  }
  parts.push_back(slice(input, d, begin, input.size(d)));
  return parts;
}

Tensor unflatten(const Tensor& input, int64_t dim, const Shape& sizes) {
  const int64_t d = existing_dim("unflatten", input, dim);
  int64_t known = 1;
  bool fits = std::count(sizes.begin(), sizes.end(), -1) <= 1;
  for (const int64_t size : sizes)
    fits = fits && (size == -1 || (size >= 0 && !__builtin_mul_overflow(known, size, &known)));
  const bool infers = std::find(sizes.begin(), sizes.end(), -1) != sizes.end();
  fits = fits && (infers ? known > 0 && input.size(d) % known == 0 : known == input.size(d));
  ops::check_input("unflatten", input, fits, "dimension ", d, " of size ", input.size(d), " does not split into ",
                   sizes);
  Shape shape(input.shape().begin(), input.shape().begin() + d);
  for (const int64_t size : sizes) shape.push_back(size == -1 ? input.size(d) / known : size);
  for (int64_t i = d + 1; i < input.dim(); ++i) shape.push_back(input.size(i));
  return view(input, shape);
}

Tensor movedim(const Tensor& input, const Shape& source, const Shape& destination) {
  check_defined("movedim", input);
  ops::check_input("movedim", input, source.size() == destination.size(), "source ", source, " and destination ",
                   destination, " differ in length");
  const Shape from = distinct_dims("movedim", input, source), to = distinct_dims("movedim", input, destination);
  Shape dims(static_cast<size_t>(input.dim()), -1);
  for (size_t i = 0; i < from.size() && !dims.empty(); ++i) dims[static_cast<size_t>(to[i])] = from[i];
  int64_t next = 0;  // the other dimensions keep their order
  for (int64_t& dim : dims) {
    if (dim >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    dim = next++;
  }
  return permute(input, dims);
}

Tensor broadcast_to(const Tensor& input, const Shape& shape) {
  check_defined("broadcast_to", input);
  return expand(input, shape);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing) {
  TANDEM_CHECK(ValueError, !tensors.empty(), "meshgrid: no tensors");
  const KernelContext context = ops::check_same_device_list("meshgrid", tensors);
  Shape shape;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = str("tensors[", i, ']');
    TANDEM_CHECK(ShapeError, tensors[i].dim() <= 1,
                 operand_error("meshgrid", "tensors must have at most one dimension", {{name.c_str(), tensors[i]}}));
    shape.push_back(tensors[i].numel());
  }
  const bool swaps = indexing == MeshIndexing::kXY && shape.size() >= 2;
  if (swaps) std::swap(shape[0], shape[1]);
  std::vector<Tensor> grids;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Shape one(shape.size(), 1);
    one[swaps && i < 2 ? 1 - i : i] = tensors[i].numel();
    grids.push_back(expand(reshape(tensors[i], one), shape));
  }
  return grids;
}

namespace {

/// A copy with repeats[d] copies of `input` along dimension d. Missing numbers at the front of `repeats` are 1; missing
/// dimensions at the front of `input` have size 1.
Tensor repeated(const char* op, const Tensor& input, Shape repeats) {
  check_defined(op, input);
  while (repeats.size() < input.shape().size()) repeats.insert(0, 1);
  Shape split, copies, joined;  // each dimension as [repeats, size]
  for (size_t d = 0; d < repeats.size(); ++d) {
    ops::check_input<ValueError>(op, input, repeats[d] >= 0, "repeats ", repeats, " contain a negative number");
    const size_t added = repeats.size() - input.shape().size();
    const int64_t size = d < added ? 1 : input.shape()[d - added];
    split.push_back(1);
    split.push_back(size);
    copies.push_back(repeats[d]);
    copies.push_back(size);
    joined.push_back(num_elements({repeats[d], size}));
  }
  static_cast<void>(num_elements(joined));  // checks for overflow
  return view(clone(expand(reshape(input, split), copies)), joined);
}

}  // namespace

Tensor repeat(const Tensor& input, const Shape& repeats) {
  check_defined("repeat", input);
  ops::check_input("repeat", input, repeats.dim() >= input.dim(), "repeats ", repeats,
                   " must have a number for each dimension");
  return repeated("repeat", input, repeats);
}

Tensor tile(const Tensor& input, const Shape& dims) { return repeated("tile", input, dims); }

Tensor repeat_interleave(const Tensor& input, int64_t repeats, std::optional<int64_t> dim) {
  check_defined("repeat_interleave", input);
  const Tensor whole = dim ? input : flatten(input);
  const int64_t d = existing_dim("repeat_interleave", whole, dim.value_or(0));
  ops::check_input<ValueError>("repeat_interleave", input, repeats >= 0, "repeats is ", repeats,
                               ", expected at least 0");
  Shape copies = whole.shape();
  copies.insert(static_cast<size_t>(d) + 1, repeats);
  static_cast<void>(num_elements(copies));  // checks for overflow
  return flatten(clone(expand(unsqueeze(whole, d + 1), copies)), d, d + 1);
}

Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim) {
  const ops::Call call("repeat_interleave", {{"input", input}, {"repeats", repeats}});
  call.require<DTypeError>(repeats.dtype() == kInt32 || repeats.dtype() == kInt64, "repeats must be int32 or int64");
  const Tensor whole = dim ? input : flatten(input);
  const int64_t d = existing_dim("repeat_interleave", whole, dim.value_or(0)), size = whole.size(d);
  const bool fits = repeats.dim() <= 1 && (repeats.numel() == 1 || repeats.numel() == size);
  call.require(fits, "repeats must have one number, or one for each of ", size, " indices");
  const std::vector<int64_t> counts = expand(repeats, {size}).to_vector<int64_t>();
  int64_t total = 0;
  for (const int64_t count : counts) {
    call.require<ValueError>(count >= 0, "repeats contains ", count, ", expected numbers of at least 0");
    total = saturating_add(total, count);
  }
  const Tensor index = empty({total}, {kInt64, input.device()});
  const Tensor host = input.device().is_cpu() ? index : empty({total}, {kInt64});
  int64_t* next = host.data<int64_t>();
  for (size_t i = 0; i < counts.size(); ++i) next = std::fill_n(next, counts[i], static_cast<int64_t>(i));
  if (!host.is_same(index)) primitives::copy(host, index);
  return index_select(whole, d, index);
}

Tensor flip(const Tensor& input, const Shape& dims) {
  check_defined("flip", input);
  const Shape wrapped = distinct_dims("flip", input, dims);
  // A view with negative strides; make_view rejects them, because only copies support them.
  Shape strides = input.impl().strides;
  int64_t offset = input.impl().offset;
  for (const int64_t dim : wrapped) {
    if (input.dim() == 0) continue;
    const size_t d = static_cast<size_t>(dim);
    offset += (input.size(dim) - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const Tensor out = empty(input.shape(), input.options());
  primitives::copy(Tensor(make_ref<TensorImpl>(input.storage(), input.dtype(), input.shape(), strides, offset)), out);
  record_gradient("flip", out, {&input}, [wrapped](const Tensor& grad) { return flip(grad, wrapped); });
  return out;
}

Tensor roll(const Tensor& input, const Shape& shifts, const Shape& dims) {
  check_defined("roll", input);
  if (dims.empty()) {
    ops::check_input<ValueError>("roll", input, shifts.size() == 1, "shifts ", shifts,
                                 " without dims must be one number");
    return view(roll(flatten(input), shifts, {0}), input.shape());
  }
  ops::check_input<ValueError>("roll", input, shifts.size() == dims.size(), "shifts ", shifts, " and dims ", dims,
                               " differ in length");
  Tensor out = input;
  Shape back;
  {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < dims.size(); ++i) {
      const int64_t d = existing_dim("roll", input, dims[i]), size = std::max<int64_t>(input.size(d), 1);
      back.push_back(-(shifts[i] % size));
      const int64_t split = (size + back.back()) % size;
      out = cat({slice(out, d, split, size), slice(out, d, 0, split)}, d);
    }
  }
  record_gradient("roll", out, {&input}, [back, dims](const Tensor& grad) { return roll(grad, back, dims); });
  return out;
}

Tensor unfold(const Tensor& input, int64_t dimension, int64_t size, int64_t step) {
  const int64_t d = existing_dim("unfold", input, dimension), length = input.size(d);
  ops::check_input<ValueError>("unfold", input, size >= 0 && size <= length, "size is ", size, ", must be in [0, ",
                               length, "], the size of dimension ", d);
  ops::check_input<ValueError>("unfold", input, step >= 1, "step is ", step, ", must be at least 1");
  Shape shape = input.shape(), strides = input.strides();
  const size_t at = static_cast<size_t>(d);
  shape[at] = (length - size) / step + 1;
  shape.push_back(size);
  strides.push_back(strides[at]);
  strides[at] *= std::min(step, std::max<int64_t>(length, 1));  // a larger step gives one window; no overflow
  Tensor out = view_of(input, shape, strides, input.impl().offset);
  record_gradient("unfold", out, {&input}, [input_shape = input.shape(), d, size, step](const Tensor& grad) {
    const Tensor windows = flatten(movedim(grad, -1, d + 1), d, d + 1);
    const Tensor positions = arange(0, input_shape[static_cast<size_t>(d)], 1, windows.device());
    const Tensor index = flatten(unfold(positions, 0, size, step));
    return index_add(zeros(input_shape, windows.options()), d, index, windows);
  });
  return out;
}

namespace {

/// A diagonal of tensors of one shape: elements [i, i + offset] of dimensions dim1 and dim2, which are in range.
struct Diagonal {
  int64_t offset = 0;
  int64_t dim1 = 0;
  int64_t dim2 = 1;

  /// The unrecorded view.
  Tensor of(const Tensor& input) const {
    const size_t row = static_cast<size_t>(dim1), column = static_cast<size_t>(dim2);
    Shape shape = input.shape(), strides = input.strides();
    const int64_t rows = shape[row], columns = shape[column];
    const int64_t from = std::clamp<int64_t>(offset, -rows, columns);
    const int64_t size = from >= 0 ? std::min(rows, columns - from) : std::min(rows + from, columns);
    const int64_t skipped = from >= 0 ? from * strides[column] : -from * strides[row];
    const int64_t step = strides[row] + strides[column];
    for (const size_t d : {std::max(row, column), std::min(row, column)}) {
      shape.erase(d);
      strides.erase(d);
    }
    shape.push_back(size);
    strides.push_back(step);
    return view_of(input, shape, strides, input.impl().offset + (num_elements(shape) > 0 ? skipped : 0));
  }
};

/// Zeros of `shape` with `input` on a diagonal.
Tensor embed_diagonal(const char* op, const Tensor& input, const Shape& shape, const Diagonal& where) {
  Tensor out = zeros(shape, input.options());
  primitives::copy(input, where.of(out));
  record_gradient(op, out, {&input},
                  [where](const Tensor& grad) { return diagonal(grad, where.offset, where.dim1, where.dim2); });
  return out;
}

/// The arguments of diagonal and diag_embed for matrices in dimensions of `ndim`.
Diagonal diagonal_of(const char* op, int64_t ndim, int64_t offset, int64_t dim1, int64_t dim2) {
  const Diagonal where{offset, wrap_dim(op, dim1, ndim), wrap_dim(op, dim2, ndim)};
  TANDEM_CHECK(ShapeError, where.dim1 != where.dim2, op, ": dim1 ", dim1, " and dim2 ", dim2,
               " are the same dimension");
  return where;
}

}  // namespace

Tensor diagonal(const Tensor& input, int64_t offset, int64_t dim1, int64_t dim2) {
  check_defined("diagonal", input);
  ops::check_input("diagonal", input, input.dim() >= 2, "input must have at least two dimensions");
  const Diagonal where = diagonal_of("diagonal", input.dim(), offset, dim1, dim2);
  Tensor out = where.of(input);
  record_gradient("diagonal", out, {&input}, [shape = input.shape(), where](const Tensor& grad) {
    return embed_diagonal("diagonal_backward", grad, shape, where);
  });
  return out;
}

Tensor diag_embed(const Tensor& input, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t last = existing_dim("diag_embed", input, -1);
  const Diagonal where = diagonal_of("diag_embed", input.dim() + 1, offset, dim1, dim2);
  const int64_t size = saturating_add(input.size(last), std::abs(std::max(offset, -INT64_MAX)));
  Shape shape = input.shape();
  shape.erase(static_cast<size_t>(last));
  shape.insert(static_cast<size_t>(std::min(where.dim1, where.dim2)), size);
  shape.insert(static_cast<size_t>(std::max(where.dim1, where.dim2)), size);
  return embed_diagonal("diag_embed", input, shape, where);
}

Tensor diag(const Tensor& input, int64_t diagonal) {
  check_defined("diag", input);
  ops::check_input("diag", input, input.dim() == 1 || input.dim() == 2, "input must have one or two dimensions");
  return input.dim() == 1 ? diag_embed(input, diagonal) : clone(tandem::diagonal(input, diagonal));
}

Tensor trace(Tensor input) {
  check_defined("trace", input);
  ops::check_input("trace", input, input.dim() == 2, "input must be a matrix");
  return sum(diagonal(input));
}

std::vector<Tensor> Tensor::unbind(int64_t dim) const { return tandem::unbind(*this, dim); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return tandem::narrow(*this, dim, start, length);
}
Tensor Tensor::unflatten(int64_t dim, const Shape& sizes) const { return tandem::unflatten(*this, dim, sizes); }
Tensor Tensor::diag(int64_t diagonal) const { return tandem::diag(*this, diagonal); }
Tensor Tensor::movedim(const Shape& source, const Shape& destination) const {
  return tandem::movedim(*this, source, destination);
}
Tensor Tensor::repeat(const Shape& repeats) const { return tandem::repeat(*this, repeats); }
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return tandem::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::flip(const Shape& dims) const { return tandem::flip(*this, dims); }
Tensor Tensor::roll(const Shape& shifts, const Shape& dims) const { return tandem::roll(*this, shifts, dims); }
Tensor Tensor::unfold(int64_t dimension, int64_t size, int64_t step) const {
  return tandem::unfold(*this, dimension, size, step);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return tandem::diagonal(*this, offset, dim1, dim2);
}

}}  // namespace tandem::v0

#include <tandem/ops/pad.h>

#include <algorithm>
#include <cstdint>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/math.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using ops::operand_error;

namespace {

constexpr const char* kPadModeNames[] = {"kConstant", "kReflect", "kReplicate", "kCircular"};

/// The part of a dimension that negative padding keeps.
struct Kept {
  int64_t begin;
  int64_t size;
};
Kept kept_of(int64_t size, int64_t before, int64_t after) {
  return {std::max<int64_t>(-before, 0), size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0)};
}

/// Elements added before and after each dimension; removed if negative.
struct Margins {
  Shape before;
  Shape after;
};

Margins margins_of(const Tensor& input, const Shape& padding) {
  ops::check_input("pad", input, padding.size() % 2 == 0 && padding.dim() <= 2 * input.dim(), "padding ", padding,
                   " must have two numbers for each padded dimension");
  const size_t dims = input.shape().size();
  Margins margins = {Shape(dims, 0), Shape(dims, 0)};
  for (size_t i = 0; i < padding.size(); i += 2) {
    const size_t d = dims - 1 - i / 2;
    const int64_t before = padding[i], after = padding[i + 1], size = input.shape()[d];
    constexpr int64_t kMax = INT64_MAX / 4;  // sums do not overflow; empty() rejects what remains too large
    ops::check_input("pad", input, before <= kMax && after <= kMax, "padding ", padding, " is too large");
    ops::check_input("pad", input, before >= -size && after >= -size && kept_of(size, before, after).size >= 0,
                     "padding ", padding, " removes more elements than dimension ", d, " of size ", size, " has");
    margins.before[d] = before;
    margins.after[d] = after;
  }
  return margins;
}

bool keeps_channels_last(const Tensor& input) { return ops::is_channels_last(input) && !input.is_contiguous(); }

/// Indices [begin[d], end[d]) of each dimension.
struct Part {
  Shape begin;
  Shape end;

  Tensor of(const Tensor& tensor) const {
    Tensor part = tensor;
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const size_t i = static_cast<size_t>(d);
      if (begin[i] > 0 || end[i] < tensor.size(d)) part = slice(part, d, begin[i], end[i]);
    }
    return part;
  }
};

Tensor pad_constant(const Tensor& input, const Margins& margins, Scalar value) {
  Shape shape = input.shape();
  Part kept = {shape, shape}, placed = {shape, shape};  // in the input and in the output
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto [begin, size] = kept_of(shape[d], margins.before[d], margins.after[d]);
    kept.begin[d] = begin;
    kept.end[d] = begin + size;
    placed.begin[d] = std::max<int64_t>(margins.before[d], 0);
    placed.end[d] = placed.begin[d] + size;
    shape[d] += margins.before[d] + margins.after[d];
  }
  const Tensor from = kept.of(input);
  const Tensor out =
      keeps_channels_last(input) ? ops::empty_channels_last(shape, input.options()) : empty(shape, input.options());
  if (from.shape() != shape) primitives::fill(out, value);
  primitives::copy(from, placed.of(out));
  ops::record_gradient("pad", out, {&from}, [placed](const Tensor& grad) { return placed.of(grad); });
  return out;
}

/// The indices, in a dimension of this size, of the elements of the padded dimension. As in PyTorch, only circular
/// padding does not see removed elements.
Tensor source_indices(PadMode mode, int64_t size, int64_t before, int64_t after, Device device) {
  const Tensor position = arange(-before, size + after, 1, device);
  switch (mode) {
    case PadMode::kReflect: return sub(size - 1, abs(sub(abs(position), size - 1)));
    case PadMode::kReplicate: return clamp(position, 0, size - 1);
    default: {
      const Kept kept = kept_of(size, before, after);
      return add(remainder(sub(position, kept.begin), kept.size), kept.begin);
    }
  }
}

}  // namespace

Tensor pad(const Tensor& input, const Shape& padding, PadMode mode, Scalar value) {
  const ops::Call call("pad", {{"input", input}});
  const Margins margins = margins_of(input, padding);
  const char* const name = kPadModeNames[static_cast<int>(mode)];
  if (mode == PadMode::kConstant) {
    check_fits("pad", "value", value, input.dtype());
    return pad_constant(input, margins, value);
  }
  TANDEM_CHECK(ValueError, value.to_double() == 0, "pad: value is ", value.to_double(),
               ", but only mode kConstant uses it");
  const int64_t padded = padding.dim() / 2;
  call.require(padded >= 1 && padded <= 3 && (input.dim() == padded + 1 || input.dim() == padded + 2), "mode ", name,
               " pads the last 1, 2 or 3 dimensions, and padding ", padding, " requires ", padded + 1, " or ",
               padded + 2, " dimensions of input");
  Tensor index;  // in the padded dimensions as one
  Shape sizes;
  for (int64_t d = input.dim() - padded; d < input.dim(); ++d) {
    const int64_t before = margins.before[static_cast<size_t>(d)], after = margins.after[static_cast<size_t>(d)];
    const int64_t size = input.size(d), most = std::max(before, after);
    const int64_t limit = mode == PadMode::kReflect    ? size - 1
                          : mode == PadMode::kCircular ? kept_of(size, before, after).size
                          : size == 0                  ? 0
                                                       : most;
    call.require(most <= std::max<int64_t>(limit, 0), "padding ", padding, " exceeds ", std::max<int64_t>(limit, 0),
                 ", the limit of mode ", name, " for dimension ", d, " of size ", size);
    const Tensor along = source_indices(mode, size, before, after, input.device());
    index = index.defined() ? flatten(add(unsqueeze(mul(index, size), 1), along)) : along;
    sizes.push_back(along.numel());
  }
  // One selection, so that gradients in half types are rounded once. In the order of memory, which it keeps.
  const bool moves = padded == 2 && keeps_channels_last(input);
  const int64_t first = input.dim() - padded - moves;
  Tensor out = moves ? permute(input, {0, 2, 3, 1}) : input;
  out = index_select(flatten(out, first, first + padded - 1), first, index);
  out = unflatten(out, first, sizes);
  if (moves) out = permute(out, {0, 3, 1, 2});
  out.impl().is_view = false;  // the result of index_select has no other use
  return out;
}

}}  // namespace tandem::v0

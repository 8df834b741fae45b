// Helpers of view operations. Private to ops/view/.
#pragma once

#include <vector>

#include <tandem/base/host_memory.h>
#include <tandem/base/math.h>
#include <tandem/ops/common/common.h>

namespace tandem { inline namespace v0 { namespace ops {

/// An unrecorded view of input's storage; `offset` from the start of the storage, in elements.
inline Tensor view_of(const Tensor& input, const Shape& shape, const Shape& strides, int64_t offset) {
  Tensor out = make_view(input.storage(), input.dtype(), shape, strides, offset);
  out.impl().is_view = true;
  return out;
}

/// An empty list with memory reserved for `count` views. Throws OutOfMemory.
inline std::vector<Tensor> list_of_views(const char* op, int64_t count) {
  return with_host_memory(op, saturating_mul(count, sizeof(Tensor)), [count] {
    std::vector<Tensor> views;
    views.reserve(static_cast<size_t>(count));
    return views;
  });
}

inline void check_defined(const char* op, const Tensor& input) {
  TANDEM_CHECK(StateError, input.defined(), operand_error(op, "input is undefined", {{"input", input}}));
}

/// wrap_dim for operations on a dimension that must exist: throws IndexError for a 0-dim input.
inline int64_t existing_dim(const char* op, const Tensor& input, int64_t dim) {
  check_defined(op, input);
  const int64_t d = wrap_dim(op, dim, input.dim());
  TANDEM_CHECK(IndexError, input.dim() > 0, operand_error(op, "input has no dimensions", {{"input", input}}));
  return d;
}

}}}  // namespace tandem::v0::ops

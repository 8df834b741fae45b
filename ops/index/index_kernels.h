// Kernels of gather, scatter, index_select, index_add, nonzero, one_hot, topk, tril and triu. Private to ops/.
//
// Tensors are row-major, with shape [outer, size, inner] around the indexed dimension.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 {

/// How scatter combines an element with the values written to it, in ascending order.
enum class ScatterOp { kAssign, kSum, kProd, kMax, kMin };

/// The element after `value` was written to it. Integers wrap around; a maximum or minimum with NaN is NaN.
template <ScatterOp op, class A>
TANDEM_HOST_DEVICE A combine(A old, A value) {
  if constexpr (op == ScatterOp::kAssign) {
    return value;
  } else if constexpr (op == ScatterOp::kMax) {
    return old != old || value <= old ? old : value;
  } else if constexpr (op == ScatterOp::kMin) {
    return old != old || value >= old ? old : value;
  } else if constexpr (std::is_same_v<A, int64_t>) {
    const uint64_t a = static_cast<uint64_t>(old), b = static_cast<uint64_t>(value);
    return static_cast<A>(op == ScatterOp::kSum ? a + b : a * b);
  } else {
    return op == ScatterOp::kSum ? old + value : old * value;
  }
}

/// Calls f.template operator()<op, T, A>() with the type T of the values and A of the elements: the accumulation type,
/// or for kAssign both an unsigned integer of T's size.
template <class F>
void visit_scatter(ScatterOp op, DType dtype, const F& f) {
  const auto visit = [&]<ScatterOp known>() {
    visit_dtype(dtype, [&]<class T>() { f.template operator()<known, T, Accumulator<T>>(); });
  };
  switch (op) {
    case ScatterOp::kSum: return visit.template operator()<ScatterOp::kSum>();
    case ScatterOp::kProd: return visit.template operator()<ScatterOp::kProd>();
    case ScatterOp::kMax: return visit.template operator()<ScatterOp::kMax>();
    case ScatterOp::kMin: return visit.template operator()<ScatterOp::kMin>();
    case ScatterOp::kAssign: break;
  }
  switch (size_of(dtype)) {
    case 1: return f.template operator()<ScatterOp::kAssign, uint8_t, uint8_t>();
    case 2: return f.template operator()<ScatterOp::kAssign, uint16_t, uint16_t>();
    case 4: return f.template operator()<ScatterOp::kAssign, uint32_t, uint32_t>();
    default: return f.template operator()<ScatterOp::kAssign, uint64_t, uint64_t>();
  }
}

// clang-format off
TANDEM_KERNELS(
/// out[o, i, k] = input[o, index[o, i, k], k]; the middle dimension has size n in out and index, and `size` in input.
/// Elements have `element_bytes` (1, 2, 4 or 8) bytes.
void gather(const KernelContext& context, int64_t element_bytes, int64_t outer, int64_t n, int64_t inner, int64_t size,
            const int64_t* index, const void* input, void* out);
/// Bytes of the workspace of scatter.
int64_t scatter_workspace_bytes(const KernelContext& context, int64_t outer, int64_t n, int64_t inner);
/// Combines out[o, index[o, i, k], k] with src[o, i, k] in ascending order of i. src has `dtype`; out has it too for
/// kAssign, else its accumulation dtype.
void scatter(const KernelContext& context, ScatterOp op, DType dtype, int64_t outer, int64_t n, int64_t inner,
             int64_t size, const int64_t* index, const void* src, void* workspace, void* out);

/// out[o, i, :] = input[o, index[i], :], in rows of `row_bytes`.
void index_select(const KernelContext& context, int64_t row_bytes, int64_t outer, int64_t n, int64_t size,
                  const int64_t* index, const void* input, void* out);
/// Bytes of the workspace of scatter_slices.
int64_t scatter_slices_workspace_bytes(const KernelContext& context, int64_t n, int64_t size);
/// Combines out[o, index[i], k] with src[o, i, k] in ascending order of i, by kAssign or kSum; dtypes as for scatter.
void scatter_slices(const KernelContext& context, ScatterOp op, DType dtype, int64_t outer, int64_t n, int64_t inner,
                    int64_t size, const int64_t* index, const void* src, void* workspace, void* out);

/// Bytes of the workspace of nonzero, which count_nonzero fills.
int64_t nonzero_workspace_bytes(const KernelContext& context, int64_t n);
/// The number of nonzero elements of a mask of n elements.
void count_nonzero(const KernelContext& context, int64_t n, const bool* mask, void* workspace, int64_t* count);
/// out [count, shape.dim()]: coordinates of the nonzero elements of a mask of that shape, in ascending order.
void nonzero(const KernelContext& context, const Shape& shape, int64_t count, const bool* mask, const void* workspace,
             int64_t* out);

/// out (int64, n x classes) = 1 at (i, labels[i]), else 0.
void one_hot(const KernelContext& context, int64_t n, int64_t classes, const int64_t* labels, int64_t* out);

/// The first k elements of each row of `size` elements in descending (largest) or ascending order; equal elements in
/// order of position. NaN counts as the largest. values [rows, k] has `dtype`, indices [rows, k] is int64.
void topk(const KernelContext& context, DType dtype, int64_t rows, int64_t size, int64_t k, bool largest,
          const void* input, void* values, int64_t* indices);

/// out[i, j] = input[i, j] if j <= i + diagonal (upper: j >= i + diagonal), else 0, for row-major matrices rows x
/// columns with elements of `element_bytes`.
void triangle(const KernelContext& context, bool upper, int64_t element_bytes, int64_t matrices, int64_t rows,
              int64_t columns, int64_t diagonal, const void* input, void* out);
)
// clang-format on

}}  // namespace tandem::v0

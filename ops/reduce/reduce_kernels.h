// Kernels of reductions. All reduce the middle dimension of a row-major block [outer, reduce, inner]: inner is 1 for
// row sums, outer is 1 for column sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/base/macros.h>
#include <tandem/tensor/convert.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

struct ReduceSizes {
  int64_t outer = 1;
  int64_t reduce = 1;
  int64_t inner = 1;
};

/// The result of a fold: the sum, the product, the sum of x^2, or the sum of |x|. The last two take floating dtypes
/// only.
enum class Fold : int8_t { kSum, kProduct, kSquares, kMagnitudes };

/// The formulas of folds, on accumulators. `Chunks` combines the results of parts.
namespace folds {

struct Sum {
  using Chunks = Sum;
  static constexpr int kStart = 0;
  template <class A>
  TANDEM_HOST_DEVICE static A term(A x) {
    return x;
  }
  template <class A>
  TANDEM_HOST_DEVICE static A combine(A a, A b) {
    return primitives::add(a, b);
  }
};

struct Product {
  using Chunks = Product;
  static constexpr int kStart = 1;
  template <class A>
  TANDEM_HOST_DEVICE static A term(A x) {
    return x;
  }
  template <class A>
  TANDEM_HOST_DEVICE static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));  // wraps around
    } else {
      return a * b;
    }
  }
};

struct Squares : Sum {
  template <class A>
  TANDEM_HOST_DEVICE static A term(A x) {
    return x * x;
  }
};

struct Magnitudes : Sum {
  template <class A>
  TANDEM_HOST_DEVICE static A term(A x) {
    return x < 0 ? -x : x;
  }
};

}  // namespace folds

/// An accumulator as a result: divided, except for integers.
template <class Out, class A>
TANDEM_HOST_DEVICE Out divided(A sum, A divisor) {
  if constexpr (std::is_integral_v<A>) {
    return sum;
  } else {
    return static_cast<Out>(sum / divisor);
  }
}

/// Calls run.operator()<T, F>() with the element type and the formula.
template <class Run>
void visit_fold(Fold fold, DType dtype, const Run& run) {
  switch (fold) {
    case Fold::kSum: return visit_dtype(dtype, [&]<class T>() { run.template operator()<T, folds::Sum>(); });
    case Fold::kProduct: return visit_dtype(dtype, [&]<class T>() { run.template operator()<T, folds::Product>(); });
    case Fold::kSquares:
      return visit_floating_dtype(dtype, [&]<class T>() { run.template operator()<T, folds::Squares>(); });
    case Fold::kMagnitudes:
      return visit_floating_dtype(dtype, [&]<class T>() { run.template operator()<T, folds::Magnitudes>(); });
  }
}

TANDEM_KERNELS(
    /// out[o, i] = the fold over r of in[o, r, i], divided by `divisor`. out has the dtype of `in` if that is floating,
    /// else int64 (and the divisor must be 1).
    void fold(const KernelContext& context, Fold fold, DType dtype, const ReduceSizes& sizes, double divisor,
              const void* in, void* workspace, void* out);
    /// Bytes of the workspace of fold; often 0.
    int64_t fold_workspace_bytes(const KernelContext& context, const ReduceSizes& sizes);

    /// The largest (or smallest) in[o, r, i] over r, or NaN; sizes.reduce >= 1. Without `indices`, values[o, i] is that
    /// element; zeros are ordered by sign. With it, indices[o, i] is the first r with such an element, where zeros of
    /// both signs are equal, and values[o, i], unless `values` is null, is the element at r.
    void extremum(const KernelContext& context, DType dtype, const ReduceSizes& sizes, bool largest, const void* in,
                  void* values, int64_t* indices);)

}}  // namespace tandem::v0

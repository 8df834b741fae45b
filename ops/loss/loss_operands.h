// Arguments and results of losses. Private to ops/loss/.
#pragma once

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/loss.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The call of a loss. Replaces the variables among its arguments, which must be floating, by conversions to the dtype
/// of the arithmetic: the promoted dtype, at least float32.
struct LossCall : Call {
  DType dtype;  ///< of the result: the promoted dtype of the variables

  LossCall(const char* name, Arguments arguments);

  /// Throws ShapeError unless the first two operands have one shape.
  void check_same_shape() const;
  /// losses, or their mean or sum, in the dtype of the result. Throws ValueError for kBatchMean.
  Tensor result(const Tensor& losses, Reduction reduction) const;
};

/// losses, or their mean or sum. Throws ValueError for kBatchMean.
Tensor reduce(const char* op, const Tensor& losses, Reduction reduction);

}}}  // namespace tandem::v0::ops

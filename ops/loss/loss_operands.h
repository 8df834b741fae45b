// Arguments and results of losses. Private to ops/loss/.
#pragma once

#include <initializer_list>

#include <tandem/ops/common/common.h>
#include <tandem/ops/loss.h>

namespace tandem { inline namespace v0 { namespace ops {

/// A tensor argument of a loss, which prepare replaces by its conversion.
struct LossArgument {
  const char* name;
  Tensor* tensor;
  bool optional = false;     ///< may be undefined
  bool keeps_dtype = false;  ///< any dtype, not converted
};

/// The state of a loss while it is computed.
struct LossScope {
  KernelContext context;
  DType dtype;  ///< of the result: the promoted dtype of the arguments
};

/// Casts for autocast, checks devices and dtypes, and converts to the dtype of the arithmetic: the promoted dtype, at
/// least float32.
[[nodiscard]] LossScope prepare(const char* op, std::initializer_list<LossArgument> arguments);

/// Throws ShapeError unless the shapes are equal.
void check_same_shape(const char* op, Operands operands);

/// losses, or their mean or sum. Throws ValueError for kBatchMean.
Tensor reduce(const char* op, const Tensor& losses, Reduction reduction);

}}}  // namespace tandem::v0::ops

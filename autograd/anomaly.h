// Finding the operation that made the first NaN.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 {

/// While in scope, recorded operations of the calling thread and their backward throw ValueError if a result contains
/// NaN, as torch.autograd.detect_anomaly. The error names the operation, its module, and the line of the program that
/// called it (which needs -g; the function's name alone otherwise). Forward results are checked too, if the operation
/// is recorded. Slow: each result is copied to the CPU. Throws StateError if a cuda::Graph is being captured.
class TANDEM_API DetectAnomalyGuard {
 public:
  /// `on` = false switches an enclosing guard off.
  explicit DetectAnomalyGuard(bool on = true);
  ~DetectAnomalyGuard() { context_.detect_anomaly = previous_; }
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  RankContext& context_;
  bool previous_;
};

}}  // namespace tandem::v0

// Activation checkpointing, the part beneath nn::checkpoint.
#pragma once

#include <functional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/ref_counted.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// While in scope, tensors that operations of the calling thread save for backward are not stored; backward calls `run`
/// to compute them again. See nn::checkpoint.
class TANDEM_API CheckpointScope {
 public:
  /// `run` repeats what is done in the scope, with `inputs`, which must not be changed in place before backward.
  CheckpointScope(std::function<void()> run, std::vector<Tensor> inputs);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  const RefPtr<RefCounted> recomputation_;
  void* const previous_;
};

/// `tensor` as it is now, with the same memory: a later in-place operation on `tensor` does not make it part of what
/// the snapshot was computed from.
TANDEM_API Tensor snapshot(const Tensor& tensor);

/// Inside a checkpointed function: backward throws StateError if `tensor` was changed in place after this call. The
/// tensors that operations use are checked already; this is for values that reach them in another way, such as a copy
/// of a buffer. Elsewhere it does nothing.
TANDEM_API void expect_unchanged(const Tensor& tensor);

/// Whether backward is running a checkpointed function again. Layers that count their calls or update statistics must
/// not do so then.
inline bool is_recomputing() { return RankContext::current().open_autograd.is_recomputing; }

}}}  // namespace tandem::v0::autograd

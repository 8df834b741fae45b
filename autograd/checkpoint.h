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
  /// `run` repeats the operations of the scope on `inputs`, which must not be changed in place before backward.
  CheckpointScope(std::function<void()> run, std::vector<Tensor> inputs);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  const RefPtr<RefCounted> recomputation_;
  void* const previous_;
};

/// A tensor with the memory and the present history of `tensor`. A later in-place operation on `tensor` does not become
/// part of the snapshot's history.
TANDEM_API Tensor snapshot(const Tensor& tensor);

/// Inside a checkpointed function: backward throws StateError if `tensor` was changed in place after this call. The
/// tensors that operations use are checked already; call this for values that operations get in another way, such as a
/// copy of a buffer. Outside of a checkpointed function it does nothing.
TANDEM_API void expect_unchanged(const Tensor& tensor);

/// Whether backward is running a checkpointed function again. Layers that count their calls or update statistics must
/// not do so then.
inline bool is_recomputing() { return RankContext::current().open_autograd.is_recomputing; }

}}}  // namespace tandem::v0::autograd

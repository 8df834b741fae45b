// Saved tensors that are computed again in backward. Private to autograd/.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/autograd/node.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// One call of a checkpointed function (Chen et al., "Training deep nets with sublinear memory cost", 2016).
///
/// Tensors that nodes save during the call are not stored; only their operations, shapes and dtypes are recorded. When
/// backward reads the first of them, the function runs again, with the random numbers, autocast mode and module of the
/// call; the tensors that the nodes of this run save are collected, and the new nodes are dropped. The graph is that of
/// the call, so the engine, hooks and communication need no code for checkpoints. Leaves are always stored, because
/// they stay alive anyway. See docs/decisions/020-checkpointing.md.
class Recomputation : public RefCounted {
 public:
  /// `run` calls the function on `inputs`, which must have the same values when it runs again.
  Recomputation(std::function<void()> run, std::vector<Tensor> inputs);

  /// The innermost Recomputation in scope on the calling thread, or null.
  static Recomputation* current();
  /// Called with the version of each input of an operation (set_history), and of expect_unchanged.
  void add_input(uint32_t version);

 private:
  friend class SavedTensor;
  struct Signature {
    const char* op;
    Shape shape;
    DType dtype;
  };

  /// Called by SavedTensor::save.
  void add(SavedTensor& saved);
  /// The saved tensor with this index. The first call computes all saved tensors; each may be taken once.
  Tensor take(uint32_t index);
  /// Releases a tensor that will not be taken.
  void drop(uint32_t index);
  void recompute();

  std::function<void()> run_;
  std::vector<Tensor> inputs_;
  std::vector<uint32_t> input_versions_;
  GeneratorPositions positions_;
  int8_t autocast_;
  RefPtr<ScopeName> module_scope_;
  std::vector<Signature> signatures_;  ///< of the saved tensors, in order
  bool is_running_again_ = false;
  uint64_t first_versions_ = 0;     ///< hash of the versions of the operations' inputs in the first run
  uint64_t second_versions_ = 0;    ///< the same hash in the recomputation
  std::vector<Tensor> recomputed_;  ///< empty before recompute
};

}}}  // namespace tandem::v0::autograd

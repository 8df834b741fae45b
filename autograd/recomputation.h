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
/// Tensors that nodes save during the call are not stored, only counted. The first one that backward reads runs the
/// function again, under the random numbers, autocast mode and module of the call, and collects what the nodes of that
/// run save; the new nodes are dropped. The graph is the one of the call, so the engine, hooks and communication do not
/// know of checkpoints. Leaves are always stored, since they live anyway. See docs/decisions/020-checkpointing.md.
class Recomputation : public RefCounted {
 public:
  /// `run` calls the function on `inputs`, which must have the same values when it runs again.
  Recomputation(std::function<void()> run, std::vector<Tensor> inputs);

  /// The innermost one in scope on the calling thread, or null.
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
  /// The tensor with this index; computes all of them if that has not happened. Each may be taken once.
  Tensor take(uint32_t index);
  /// Releases a tensor that will not be taken.
  void drop(uint32_t index);
  void run_again();

  std::function<void()> run_;
  std::vector<Tensor> inputs_;
  std::vector<uint32_t> input_versions_;
  GeneratorPositions positions_;
  int8_t autocast_;
  RefPtr<ScopeName> module_scope_;
  std::vector<Signature> signatures_;  ///< of the saved tensors, in order
  bool is_running_again_ = false;
  uint64_t first_versions_ = 0;     ///< hash of the versions of the operations' inputs in the first run
  uint64_t second_versions_ = 0;    ///< in the present one
  std::vector<Tensor> recomputed_;  ///< empty before run_again
};

}}}  // namespace tandem::v0::autograd

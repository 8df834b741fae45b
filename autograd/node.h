// Nodes of the autograd graph, saved tensors, and recording of operations.
//
// A *node* is one recorded operation with exactly one *output* tensor. An *edge* points from a node to the source of
// one of its inputs: another node, or a *leaf*. A *contribution* is the gradient passed along one edge. Nodes have
// creation numbers: a consumer's number is larger than the numbers of its producers, so a backward that runs nodes from
// newest to oldest runs each node after all contributions to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/autograd/leaf.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

class Node;
class GraphTask;
class Recomputation;
struct NodeExtras;

/// The source of an input: a node, a leaf, or empty if no gradient is needed.
struct TANDEM_API Edge {
  RefPtr<Node> node;
  RefPtr<Leaf> leaf;

  explicit operator bool() const { return node || leaf; }
};

/// The edge to `tensor`; empty if it is undefined or does not require grad.
TANDEM_API Edge edge_to(const Tensor& tensor);

/// A tensor saved for backward, a named member of its node.
///
/// The tensor is stored detached; `get` checks that it has not been changed in place, and under create_graph attaches
/// it to the graph again. The constructor registers it with the node, which releases it after a backward without
/// retain_graph. In a checkpoint the tensor is not stored: the first `get` computes it again.
class TANDEM_API SavedTensor {
 public:
  /// `name` is the argument's name, for error texts.
  SavedTensor(Node& owner, const char* name);
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;

  /// Saves `tensor` (may be undefined), an input or the output of the owner.
  void save(const Tensor& tensor);
  /// The saved tensor. Throws StateError if it was changed in place after save, or released by an earlier backward.
  Tensor get() const;

 private:
  friend class Node;
  friend class BackwardContext;
  friend class Recomputation;
  void recompute() const;
  void release();

  Node& owner_;
  const char* name_;
  SavedTensor* next_;
  mutable Tensor data_;
  Edge edge_;
  uint32_t version_ = 0;
  bool is_output_ = false;
  uint32_t index_ = 0;                        ///< among the saved tensors of the checkpoint
  mutable RefPtr<RefCounted> recomputation_;  ///< a Recomputation; null unless data_ must be computed again
};

/// Argument of Node::backward.
class TANDEM_API BackwardContext {
 public:
  /// The gradient of the node's output: same shape, dtype and device, any strides. With a defined `second_grad` the
  /// gradient is the sum of both.
  const Tensor& grad() const { return grad_; }
  /// The rest of the gradient, a tensor like `grad()`; undefined unless the node has set `accepts_two_gradients`.
  const Tensor& second_grad() const { return second_grad_; }
  /// Whether the gradient of input i is needed; if not, the node returns an undefined tensor.
  bool needs(int i) const;
  bool create_graph() const;

  /// Memory for the gradient of an input.
  struct GradBuffer {
    Tensor tensor;            ///< row-major
    bool accumulate = false;  ///< add to the contents (beta = 1) instead of overwriting them (beta = 0)
  };
  /// Memory for the gradient of input i, whose shape and dtype are given: the gradient slot of the leaf at input i, if
  /// this edge is the leaf's only contribution; if input i is the result of an operation, the sum of the gradients that
  /// other nodes have computed for it; otherwise a new tensor. The node must write the complete tensor and return it.
  GradBuffer grad_buffer(int i, const Shape& shape, DType dtype);
  /// Whether the node may write a result into the memory of `tensor`, which is `grad()` or the value of a saved tensor:
  /// no other tensor uses the memory, and no later backward needs it. If true, a saved tensor counts as changed in
  /// place.
  bool may_overwrite(const Tensor& tensor) const;
  /// Notifies the engine that `gradient` of input i is complete. If it is a slot in a bucket, the leaf's hooks run now,
  /// so that communication overlaps the rest of the node. The node must still return the gradient.
  void notify_ready(int i, const Tensor& gradient);

 private:
  friend class GraphTask;
  BackwardContext(GraphTask& task, Node& node, Tensor grad, Tensor second_grad)
      : task_(task), node_(node), grad_(std::move(grad)), second_grad_(std::move(second_grad)) {}
  /// The leaf at input i if the node may write into its slot, or null.
  Leaf* slot_leaf(int i) const;

  GraphTask& task_;
  Node& node_;
  Tensor grad_, second_grad_;
  uint32_t ready_ = 0;  ///< bit i: the gradient of input i has been delivered
};

/// One recorded operation. To define one, derive, add `SavedTensor` members and attributes, and implement `backward`.
class TANDEM_API Node : public RefCounted {
 public:
  Node();
  ~Node() override;

  /// The operation's public name, a string literal.
  const char* name() const { return name_; }
  uint64_t number() const { return number_; }
  const RefPtr<ScopeName>& module_scope() const { return module_scope_; }
  size_t num_inputs() const { return edges_.size(); }

  /// Gradients of the inputs, in the order of record(); undefined if `context.needs(i)` is false, or for zero. Grad
  /// mode is on only under create_graph, so a backward composed of operations supports double backward.
  virtual TensorList backward(BackwardContext& context) = 0;

  /// Set by an operation whose backward adds BackwardContext::second_grad itself, which saves a pass over memory if its
  /// output has several consumers. There is no second gradient where something else needs the sum: hooks,
  /// retain_grad, grad() with the output as an input, anomaly detection, create_graph.
  bool accepts_two_gradients = false;

 private:
  friend class SavedTensor;
  friend class BackwardContext;
  friend class FunctionOutput;
  friend class GraphTask;
  friend class v0::Tensor;
  friend void set_history(RefPtr<Node> node, const char* name, const Tensor& output, const Tensor* const* inputs,
                          size_t num_inputs);
  void destroy() override;
  void release_saved();
  int64_t num_saved_bytes() const;

  NodeExtras& extras();

  const char* name_ = "";
  uint64_t number_ = 0;
  RefPtr<ScopeName> module_scope_;
  SmallVector<Edge, 3> edges_;
  SavedTensor* saved_ = nullptr;  ///< head of the linked list of SavedTensor members
  bool released_ = false;
  std::unique_ptr<NodeExtras> extras_;  ///< null if unused
  Shape shape_;                         ///< shape, dtype and device of the output, which gradients must match
  DType dtype_ = kFloat32;
  Device device_;
  // State of the running backward:
  GraphTask* task_ = nullptr;
  Tensor grad_;           ///< sum of the contributions so far, or of all except second_grad_
  Tensor second_grad_;    ///< sum of the contributions after the first, if the node accepts two gradients
  bool needed_ = false;   ///< on a path to a captured tensor
  int32_t capture_ = -1;  ///< position among the inputs of grad(), else -1
};

/// Whether an operation on these inputs must be recorded.
template <class... Inputs>
bool should_record(const Inputs&... inputs) {
  return is_grad_enabled() && ((inputs.defined() && inputs.requires_grad()) || ...);
}

/// Makes `node` the source of `tensor`.
TANDEM_API void attach(const Tensor& tensor, RefPtr<Node> node);

/// Sets the name, edges and output of `node`. Throws StateError if an input of the graph was changed in place through
/// another tensor that shares its memory. Used by `record`.
TANDEM_API void set_history(RefPtr<Node> node, const char* name, const Tensor& output, const Tensor* const* inputs,
                            size_t num_inputs);

/// Adds the bytes of an operation's result to the trace. Used by `record`.
TANDEM_API void trace_output(const Tensor& output);

/// Creates a node N with these inputs (may be undefined) and makes `output` its result. Returns the node, so that the
/// caller can set saved tensors and attributes; null if no input needs a gradient.
///
///     if (auto* node = autograd::record<ExpNode>("exp", y, x)) node->output.save(y);
template <class N, class... Inputs>
N* record(const char* name, const Tensor& output, const Inputs&... inputs) {
  if (trace_enabled()) [[unlikely]]
    trace_output(output);
  if (!should_record(inputs...)) return nullptr;
  auto node = make_ref<N>();
  const Tensor* list[] = {&inputs...};
  set_history(node, name, output, list, sizeof...(inputs));
  return node.get();
}

/// record() for a list of inputs.
template <class N>
N* record_list(const char* name, const Tensor& output, std::span<const Tensor> inputs) {
  if (trace_enabled()) [[unlikely]]
    trace_output(output);
  bool any = false;
  for (const Tensor& input : inputs) any = any || should_record(input);
  if (!any) return nullptr;
  auto node = make_ref<N>();
  std::vector<const Tensor*> list;
  for (const Tensor& input : inputs) list.push_back(&input);
  set_history(node, name, output, list.data(), list.size());
  return node.get();
}

/// Must be called by an in-place operation after its argument checks and before it writes. Throws StateError
/// - if `self` is a leaf that requires grad, and grad mode is on;
/// - if the operation will be recorded, and `self` is a view;
/// - if the operation will be recorded, and `self` is outside the graph but shares memory with other tensors.
TANDEM_API void begin_in_place(const char* op, const Tensor& self, bool will_record);
/// Must be called at the end of an in-place operation: increments the version, so that stale saved tensors are
/// detected.
TANDEM_API void end_in_place(const char* op, const Tensor& self);

}}}  // namespace tandem::v0::autograd

// GraphTask: the execution of one backward. Private to autograd/.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/node.h>
#include <tandem/autograd/node_extras.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// Runs one backward; the destructor clears its marks on nodes and leaves, also after an exception.
///
/// Without captures (Tensor::backward), gradients are accumulated in the leaves' slots and hooks run. With captures
/// (tandem::grad), gradients of the captured tensors are returned, and only nodes on a path to one of them run.
class GraphTask {
 public:
  explicit GraphTask(BackwardOptions options);
  ~GraphTask();
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  /// Requests the gradient of `input`; returns its position in captured().
  size_t capture(const Tensor& input);
  void run(const char* op, std::span<const Tensor> roots, std::span<const Tensor> gradients);

  const std::vector<Tensor>& captured() const { return captured_; }
  void queue_callback(std::function<void()> f) { callbacks_.push_back(std::move(f)); }

 private:
  friend class BackwardContext;

  /// Lists the nodes and leaves reachable from `edge`, and counts the edges into each leaf.
  void discover(const Edge& edge);
  void visit(const Edge& edge);
  void find_needed();
  /// Throws StateError if the edge's target is an input of another grad() that is still running.
  void check_capture(const Edge& edge) const;
  void run_node(Node& node);
  /// Adds `gradient` (undefined: zero), computed by `from` (null: given for a root), to the target of `edge`.
  void deliver(const Node* from, size_t input, const Edge& edge, Tensor gradient);
  void add_to(Tensor& sum, Tensor gradient);
  /// The gradient after the hooks of its tensor, which is the output of `from` or a leaf (null).
  Tensor run_tensor_hooks(const HookList<TensorHook>& hooks, const Node* from, Tensor gradient);
  /// Hooks and retain_grad of the node's output.
  Tensor run_extras(Node& node, Tensor gradient);
  /// In anomaly mode: throws ValueError if the gradient that a node's backward computed for an input contains NaN.
  static void check_no_nan(const Node& node, size_t input, const Tensor& gradient);
  /// Called after the last contribution to a leaf.
  void complete(Leaf& leaf);

  const BackwardOptions options_;
  const detail::GradMode grad_mode_;
  const int8_t
      autocast_;  ///< mode to restore; backward runs without autocast, because gradients have their tensor's dtype
  void* const enclosing_;  ///< outer backward, if this one runs inside a hook or node; to restore
  bool capturing_ = false;
  SmallVector<Edge, 2> roots_;            ///< keep the graph alive
  SmallVector<Node*, 16> nodes_;          ///< reachable nodes, newest first after sorting
  size_t num_expanded_ = 0;               ///< number of nodes_ whose edges discover() has followed
  SmallVector<RefPtr<Leaf>, 16> leaves_;  ///< reachable leaves
  std::vector<Edge> captures_;
  std::vector<Tensor> captured_;
  std::vector<std::function<void()>> callbacks_;
};

}}}  // namespace tandem::v0::autograd

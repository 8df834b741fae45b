// One backward in progress.  Private to autograd/.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/node.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// Runs one backward and clears the marks it left on nodes and leaves, however it ends.
///
/// Without captures, gradients go to the leaves' slots and hooks run.  With captures (tandem::grad), they go to the
/// captured tensors, and only nodes on a path to one of those run.
class GraphTask {
 public:
  explicit GraphTask(BackwardOptions options);
  ~GraphTask();
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  /// Captures the gradient of `input`; returns its position in captured().
  size_t capture(const Tensor& input);
  void run(const char* op, std::span<const Tensor> roots, std::span<const Tensor> gradients);

  const std::vector<Tensor>& captured() const { return captured_; }
  void queue_callback(std::function<void()> f) { callbacks_.push_back(std::move(f)); }

 private:
  friend class BackwardContext;

  /// Marks and lists what is reachable from `edge`, and counts the edges into each leaf.
  void discover(const Edge& edge);
  void meet(const Edge& edge);
  void find_needed();
  void run_node(Node& node);
  /// `gradient` is what `from` (null: a root) delivers along `edge`; undefined: nothing.
  void deliver(const Node* from, size_t input, const Edge& edge, Tensor gradient);
  void add_to(Tensor& sum, Tensor gradient);

  const BackwardOptions options_;
  const detail::GradMode grad_mode_;
  const int8_t autocast_;  ///< the mode outside: gradients have the dtypes of what they belong to
  void* const enclosing_;  ///< the backward that this one runs inside of
  bool capturing_ = false;
  SmallVector<Edge, 2> roots_;            ///< keep the graph alive
  SmallVector<Node*, 16> nodes_;          ///< reachable, newest first once sorted
  size_t num_expanded_ = 0;               ///< of nodes_, those whose edges discover() has followed
  SmallVector<RefPtr<Leaf>, 16> leaves_;  ///< reachable
  std::vector<Edge> captures_;
  std::vector<Tensor> captured_;
  std::vector<std::function<void()>> callbacks_;
};

}}}  // namespace tandem::v0::autograd

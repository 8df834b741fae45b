// Nodes of the tape, what they save, and how operations record themselves.
//
// Vocabulary.  A *node* is one recorded operation; it made exactly one tensor, its *output*.  An *edge* leads from a node
// to what one of its inputs came from: another node, or a *leaf*.  A *contribution* is the gradient that one edge
// delivers.  Nodes carry creation numbers: a consumer's is larger than its producers', so a backward that runs nodes from
// the newest to the oldest meets every node after all contributions to it.
#pragma once

#include <cstdint>
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

/// Where an input came from: a node, a leaf, or nothing that needs a gradient.
struct TANDEM_API Edge {
  RefPtr<Node> node;
  RefPtr<Leaf> leaf;

  explicit operator bool() const { return node || leaf; }
};

/// The edge that leads to `tensor`; empty if it is undefined or requires no gradient.
TANDEM_API Edge edge_to(const Tensor& tensor);

/// A tensor kept for backward, a named member of its node.
///
/// It is saved detached; `get` checks that it was not changed in place since, and under create_graph re-attaches it to
/// the graph.  Registers itself with its node, which releases it after a backward that does not retain the graph.
class TANDEM_API Saved {
 public:
  /// `name` is what error texts call it: the argument's name.
  Saved(Node& owner, const char* name);
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

  /// Keeps `tensor` (may be undefined), an input or the output of the owner.
  void save(const Tensor& tensor);
  /// The tensor as it was.  Throws StateError if it was changed in place since, or released by an earlier backward.
  Tensor get() const;

 private:
  friend class Node;
  friend class BackwardContext;
  Node& owner_;
  const char* name_;
  Saved* next_;
  Tensor data_;
  Edge edge_;
  uint32_t version_ = 0;
  bool is_output_ = false;
};

/// What a node sees while its backward runs.
class TANDEM_API BackwardContext {
 public:
  /// The gradient of the node's output: its shape, dtype and device, any strides.
  const Tensor& grad() const { return grad_; }
  /// Whether a gradient for input i is wanted; a node returns an undefined tensor where not.
  bool needs(int i) const;
  bool create_graph() const;

  /// A slot into which the gradient of an input may be written directly.
  struct Destination {
    Tensor tensor;            ///< row-major, the input's shape and dtype; undefined: allocate and return as usual
    bool accumulate = false;  ///< add to what it holds (beta = 1) instead of overwriting (beta = 0)
  };
  /// Hands out the slot of the leaf at input i where this edge is the leaf's only contribution.  The node writes the
  /// whole of it and returns the same tensor.
  Destination destination(int i) const;
  /// Says that `gradient`, of input i, is written: where it is a slot in a bucket the leaf's hooks run now, so that it
  /// can travel while the node computes the rest.  The node returns it all the same.
  void announce(int i, const Tensor& gradient);

 private:
  friend class GraphTask;
  BackwardContext(GraphTask& task, Node& node, Tensor grad) : task_(task), node_(node), grad_(std::move(grad)) {}
  GraphTask& task_;
  Node& node_;
  Tensor grad_;
  uint32_t announced_ = 0;  ///< bit i: input i has been delivered
};

/// One recorded operation.  Derive, add `Saved` members and attributes, implement `backward`.
class TANDEM_API Node : public RefCounted {
 public:
  ~Node() override;

  /// The operation's public name, a string literal.
  const char* name() const { return name_; }
  uint64_t number() const { return number_; }
  const RefPtr<ScopeName>& module_scope() const { return module_scope_; }
  size_t num_inputs() const { return edges_.size(); }

  /// Gradients of the inputs, in the order they were recorded; undefined where `context.needs(i)` is false, or for zero.
  /// Grad mode is on exactly under create_graph, so a backward written in operations records itself.
  virtual TensorList backward(BackwardContext& context) = 0;

 private:
  friend class Saved;
  friend class BackwardContext;
  friend class GraphTask;
  friend void link(RefPtr<Node> node, const char* name, const Tensor& output, const Tensor* const* inputs,
                   size_t num_inputs);
  void destroy() override;
  void release_saved();
  int64_t num_saved_bytes() const;

  const char* name_ = "";
  uint64_t number_ = 0;
  RefPtr<ScopeName> module_scope_;
  SmallVector<Edge, 3> edges_;
  Saved* saved_ = nullptr;  ///< first of the list of members
  bool released_ = false;
  Shape shape_;  ///< of the output, which gradients must match
  DType dtype_ = kFloat32;
  Device device_;
  // Bookkeeping of the backward that is running:
  GraphTask* task_ = nullptr;
  Tensor grad_;  ///< sum of the contributions so far
  bool needed_ = false;
  int32_t capture_ = -1;  ///< position among grad()'s inputs, if one of them
};

/// Whether an operation on these inputs must be recorded.
template <class... Inputs>
bool should_record(const Inputs&... inputs) {
  return is_grad_enabled() && ((inputs.defined() && inputs.requires_grad()) || ...);
}

/// Gives `node` its name, edges and output.  Throws StateError if an input inside the graph was changed in place through
/// another tensor since it was made.  Used by `record`.
TANDEM_API void link(RefPtr<Node> node, const char* name, const Tensor& output, const Tensor* const* inputs,
                     size_t num_inputs);

/// Counts the bytes of an operation's result in the trace.  Used by `record`.
TANDEM_API void trace_output(const Tensor& output);

/// Makes `output` the result of a new node N with these inputs (undefined ones are allowed) and returns the node, for its
/// saved tensors and attributes to be set; null where nothing needs a gradient.
///
///     if (auto* node = autograd::record<ExpNode>("exp", y, x)) node->output.save(y);
template <class N, class... Inputs>
N* record(const char* name, const Tensor& output, const Inputs&... inputs) {
  if (trace_enabled()) [[unlikely]]
    trace_output(output);
  if (!should_record(inputs...)) return nullptr;
  auto node = make_ref<N>();
  const Tensor* list[] = {&inputs...};
  link(node, name, output, list, sizeof...(inputs));
  return node.get();
}

/// The same for a number of inputs known at run time only.
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
  link(node, name, output, list.data(), list.size());
  return node.get();
}

/// First line of an in-place operation, after its argument checks and before it writes.  Throws StateError where `self`
/// is a leaf that requires grad while recording, a view for which the change would have to be recorded, or outside the
/// graph, about to enter it, and shares its memory with other tensors.
TANDEM_API void begin_in_place(const char* op, const Tensor& self, bool will_record);
/// Last line of an in-place operation: bumps the version, and keeps `self` usable in the graph.
TANDEM_API void end_in_place(const char* op, const Tensor& self);

}}}  // namespace tandem::v0::autograd

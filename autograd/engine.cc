// Backward, in three passes: *discover* lists the nodes reachable from the roots and counts the edges into each leaf;
// *sort* orders the nodes from newest to oldest, so that all contributions to a node precede it; *run* calls each
// node's backward once and delivers its results. A leaf whose edge count reaches zero is complete: its hooks run
// immediately, before older nodes. The overlap of communication with backward relies on this.
#include <tandem/autograd/engine.h>

#include <algorithm>

#include <tandem/autograd/graph_task.h>
#include <tandem/autograd/nan_check.h>
#include <tandem/autograd/recomputation.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace autograd {

namespace {

/// The required properties of a gradient.
struct Expected {
  const Shape& shape;
  DType dtype;
  Device device;
};

/// Throws if a gradient does not match; where() names its source, as the beginning of the message.
template <class Source>
void check_gradient(const Tensor& gradient, const Expected& expected, Source&& where) {
  TANDEM_CHECK(ShapeError, gradient.shape() == expected.shape, where(), " of shape ", gradient.shape(), ", expected ",
               expected.shape);
  TANDEM_CHECK(DTypeError, gradient.dtype() == expected.dtype, where(), " of dtype ", gradient.dtype(), ", expected ",
               expected.dtype);
  TANDEM_CHECK(DeviceError, gradient.device() == expected.device, where(), " on ", gradient.device(), ", expected ",
               expected.device);
}

/// Whether the tensor or its memory has other references than this handle.
bool is_shared(const Tensor& tensor) { return tensor.impl_ptr()->use_count() > 1 || tensor.storage()->use_count() > 1; }

/// A row-major copy with memory of its own, outside the graph.
Tensor copy_of(const Tensor& tensor) {
  Tensor copy = empty(tensor.shape(), tensor.options());
  primitives::copy(tensor, copy);
  return copy;
}

/// Makes the node's module the current module scope while its backward runs, for errors and traces.
class NodeScope {
 public:
  explicit NodeScope(const Node& node) : context_(RankContext::current()), previous_(context_.module_scope) {
    context_.module_scope = node.module_scope();
  }
  ~NodeScope() { context_.module_scope = previous_; }
  NodeScope(const NodeScope&) = delete;
  NodeScope& operator=(const NodeScope&) = delete;

 private:
  RankContext& context_;
  RefPtr<ScopeName> previous_;
};

/// Bytes of gradients that a node allocated; views of `gradient` do not count.
int64_t num_allocated_bytes(const TensorList& results, const Tensor& gradient) {
  int64_t bytes = 0;
  for (const Tensor& result : results) {
    if (result.defined() && result.storage() != gradient.storage()) bytes += result.num_bytes();
  }
  return bytes;
}

Tensor root_gradient(const char* op, const Tensor& root, const Tensor& gradient, bool create_graph) {
  TANDEM_CHECK(StateError, root.requires_grad(), op, ": the tensor (", describe(root),
               ") does not require grad and was not computed from a tensor that does");
  if (gradient.defined()) {
    TANDEM_CHECK(DeviceError, gradient.device() == root.device(), op, ": the gradient (", describe(gradient),
                 ") is on another device than the tensor (", describe(root), "); move it with gradient.to(",
                 root.device(), ")");
    TANDEM_CHECK(ValueError, !RankContext::current().detect_anomaly || !has_nan(gradient), op, ": the gradient (",
                 describe(gradient), ") contains NaN");
    return create_graph ? gradient : gradient.detach();
  }
  TANDEM_CHECK(ShapeError, root.numel() == 1, op,
               ": the gradient may be omitted only for a tensor with one element, not for ", describe(root));
  return full(root.shape(), 1, root.options());
}

}  // namespace

// --- BackwardContext ------------------------------------------------------------------------------------------------

bool BackwardContext::needs(int i) const {
  const Edge& edge = node_.edges_[static_cast<size_t>(i)];
  if (!task_.capturing_) return static_cast<bool>(edge);
  return edge.leaf ? edge.leaf->capture_ >= 0 : edge.node && (edge.node->needed_ || edge.node->capture_ >= 0);
}

bool BackwardContext::create_graph() const { return task_.options_.create_graph; }

BackwardContext::GradBuffer BackwardContext::grad_buffer(int i, const Shape& shape, DType dtype) {
  Leaf* const leaf = slot_leaf(i);
  if (leaf != nullptr) return {leaf->slot(), leaf->filled_};
  const Node* const source = node_.edges_[static_cast<size_t>(i)].node.get();
  if (source != nullptr && i < 32 && !task_.options_.create_graph && !RankContext::current().detect_anomaly) {
    const Tensor& sum = source->grad_;
    if (sum.defined() && sum.dtype() == dtype && sum.is_contiguous() && !is_shared(sum)) {
      ready_ |= uint32_t{1} << i;
      return {sum, true};
    }
  }
  return {empty(shape, {dtype, grad_.device()}), false};
}

Leaf* BackwardContext::slot_leaf(int i) const {
  Leaf* leaf = node_.edges_[static_cast<size_t>(i)].leaf.get();
  if (leaf == nullptr || task_.capturing_ || task_.options_.create_graph || leaf->edges_total_ != 1 ||
      !leaf->tensor_hooks_.empty()) {
    return nullptr;
  }
  leaf->prepare_slot();
  const Tensor& slot = leaf->slot();
  // Not if the node also reads the slot, which happens if a gradient is an operand of a later graph.
  const auto reads_slot = [&](const Tensor& t) { return t.defined() && t.storage() == slot.storage(); };
  if (reads_slot(grad_) || reads_slot(second_grad_)) return nullptr;
  for (const SavedTensor* saved = node_.saved_; saved != nullptr; saved = saved->next_) {
    if (saved->recomputation_) saved->recompute();
    if (reads_slot(saved->data_)) return nullptr;
  }
  return leaf;
}

bool BackwardContext::may_overwrite(const Tensor& tensor) const {
  const BackwardOptions& options = task_.options_;
  const Storage& memory = *tensor.storage();
  const bool is_grad = tensor.is_same(grad_);
  const bool is_needed = options.create_graph || (is_grad ? tensor.requires_grad() : options.retain_graph);
  const bool has_gaps = !tensor.is_contiguous() && !(is_grad && is_dense(tensor.shape(), tensor.strides()));
  const uint32_t num_handles = is_grad ? 1 : 2;  // grad_; or the saved tensor's and the caller's
  if (is_needed || has_gaps || !memory.owns_memory() || memory.use_count() != 1 ||
      tensor.impl_ptr()->use_count() != num_handles) {
    return false;
  }
  if (!is_grad) tensor.storage()->bump_version("backward");  // a backward that throws later cannot be repeated
  return true;
}

void BackwardContext::notify_ready(int i, const Tensor& gradient) {
  const Edge& edge = node_.edges_[static_cast<size_t>(i)];
  // Only for bucket slots: other hooks may change tensors that the node still reads, such as the parameter.
  if (!edge.leaf || !edge.leaf->has_foreign_slot() || !gradient.is_same(edge.leaf->slot_) || task_.capturing_) return;
  if (RankContext::current().detect_anomaly) [[unlikely]]  // before another rank's gradient is added to the slot
    task_.check_no_nan(node_, static_cast<size_t>(i), gradient);
  ready_ |= uint32_t{1} << i;
  task_.deliver(&node_, static_cast<size_t>(i), edge, gradient);
}

// --- GraphTask ------------------------------------------------------------------------------------------------------

GraphTask::GraphTask(BackwardOptions options)
    : options_(options),
      grad_mode_(options.create_graph),
      autocast_(std::exchange(RankContext::current().autocast, int8_t{-1})),
      enclosing_(std::exchange(RankContext::current().open_autograd.backward, this)) {}

GraphTask::~GraphTask() {
  RankContext::current().open_autograd.backward = enclosing_;
  RankContext::current().autocast = autocast_;
  for (Node* node : nodes_) {
    node->task_ = nullptr;
    node->grad_ = {};
    node->second_grad_ = {};
    node->needed_ = false;
  }
  for (const RefPtr<Leaf>& leaf : leaves_) {
    leaf->task_ = nullptr;
    leaf->pending_ = {};
  }
  for (const Edge& edge : captures_) (edge.leaf ? edge.leaf->capture_ : edge.node->capture_) = -1;
}

size_t GraphTask::capture(const Tensor& input) {
  TANDEM_CHECK(StateError, input.requires_grad(), "grad: an input (", describe(input), ") does not require grad");
  capturing_ = true;
  Edge edge = edge_to(input);
  check_capture(edge);
  int32_t& position = edge.leaf ? edge.leaf->capture_ : edge.node->capture_;
  if (position < 0) {
    position = static_cast<int32_t>(captured_.size());
    captured_.emplace_back();
    captures_.push_back(std::move(edge));
  }
  return static_cast<size_t>(position);
}

void GraphTask::check_capture(const Edge& edge) const {
  const int32_t position = edge.leaf ? edge.leaf->capture_ : edge.node ? edge.node->capture_ : -1;
  if (position < 0) return;
  const auto i = static_cast<size_t>(position);
  TANDEM_CHECK(StateError, i < captures_.size() && captures_[i].leaf == edge.leaf && captures_[i].node == edge.node,
               capturing_ ? "grad" : "backward", ": reaches an input of another grad() that is still running");
}

void GraphTask::visit(const Edge& edge) {
  check_capture(edge);
  if (edge.leaf) {
    Leaf& leaf = *edge.leaf;
    if (leaf.task_ != this) {
      TANDEM_CHECK(StateError, leaf.task_ == nullptr, "backward: the leaf '", leaf.name,
                   "' is part of another backward that is still running");
      leaf.task_ = this;
      leaf.edges_total_ = leaf.edges_left_ = 0;
      leaf.contributed_ = false;
      leaf.was_filled_ = leaf.filled_;
      leaves_.push_back(edge.leaf);
    }
    ++leaf.edges_total_;
    ++leaf.edges_left_;
  } else if (edge.node && edge.node->task_ != this) {
    TANDEM_CHECK(StateError, edge.node->task_ == nullptr, "backward: '", edge.node->name(),
                 "' is part of another backward that is still running");
    edge.node->task_ = this;
    nodes_.push_back(edge.node.get());
  }
}

void GraphTask::discover(const Edge& edge) {
  visit(edge);
  for (; num_expanded_ < nodes_.size(); ++num_expanded_) {
    for (const Edge& next : nodes_[num_expanded_]->edges_) visit(next);
  }
}

void GraphTask::find_needed() {
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = *nodes_[i];
    node.needed_ = std::any_of(node.edges_.begin(), node.edges_.end(), [](const Edge& edge) {
      return edge.leaf ? edge.leaf->capture_ >= 0 : edge.node && (edge.node->needed_ || edge.node->capture_ >= 0);
    });
  }
}

void GraphTask::run(const char* op, std::span<const Tensor> roots, std::span<const Tensor> gradients) {
  TANDEM_CHECK(StateError, Recomputation::current() == nullptr, "checkpoint: the function calls ", op,
               ", which is not supported; move the call out of the checkpoint");
  TANDEM_CHECK(ValueError, gradients.empty() || gradients.size() == roots.size(), op, ": got ", roots.size(),
               " tensors and ", gradients.size(), " gradients");
  std::vector<Tensor> given;
  for (size_t i = 0; i < roots.size(); ++i) {
    given.push_back(root_gradient(op, roots[i], gradients.empty() ? Tensor() : gradients[i], options_.create_graph));
    roots_.push_back(edge_to(roots[i]));
    discover(roots_.back());
  }
  std::sort(nodes_.begin(), nodes_.end(), [](const Node* a, const Node* b) { return a->number() > b->number(); });
  if (capturing_) find_needed();
  {
    TraceSpan span(op, "backward");
    for (size_t i = 0; i < roots.size(); ++i) deliver(nullptr, i, roots_[i], std::move(given[i]));
    for (Node* node : nodes_) run_node(*node);
  }
  for (size_t i = 0; i < callbacks_.size(); ++i) callbacks_[i]();  // a callback may queue another
}

void GraphTask::run_node(Node& node) {
  Tensor gradient = std::move(node.grad_), second = std::move(node.second_grad_);
  if (second.defined() && (node.extras_ || node.capture_ >= 0)) add_to(gradient, std::exchange(second, {}));
  if (node.extras_ && gradient.defined()) [[unlikely]]
    gradient = run_extras(node, std::move(gradient));
  if (node.capture_ >= 0) captured_[static_cast<size_t>(node.capture_)] = gradient;
  if (capturing_ && !node.needed_) return;
  TensorList results;
  uint32_t ready = 0;
  if (gradient.defined()) {
    NodeScope scope(node);
    TraceSpan span(node.name(), "backward");
    BackwardContext context(*this, node, std::move(gradient), std::move(second));
    results = node.backward(context);
    ready = context.ready_;
    if (trace_enabled()) [[unlikely]] {
      const int64_t made = num_allocated_bytes(results, context.grad());
      if (made != 0) trace_operand_bytes(made + context.grad().num_bytes() + node.num_saved_bytes());
    }
    TANDEM_CHECK(StateError, results.size() == node.edges_.size(), node.name(), ": backward returned ", results.size(),
                 " gradients for ", node.edges_.size(), " inputs");
    if (RankContext::current().detect_anomaly) [[unlikely]] {
      for (size_t i = 0; i < results.size(); ++i) {
        if (i >= 32 || (ready >> i & 1) == 0) check_no_nan(node, i, results[i]);
      }
    }
  } else {
    results.resize(node.edges_.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (i >= 32 || (ready >> i & 1) == 0) deliver(&node, i, node.edges_[i], std::move(results[i]));
  }
  if (!options_.retain_graph && !options_.create_graph) node.release_saved();
}

void GraphTask::check_no_nan(const Node& node, size_t input, const Tensor& gradient) {
  const auto where = [&] {
    const std::string caller = node.extras_ ? node.extras_->recorded_at.caller() : "";
    return caller.empty() ? str("call ", node.name(), " under DetectAnomalyGuard to see where")
                          : str(node.name(), " was called at ", caller);
  };
  TANDEM_CHECK(ValueError, !gradient.defined() || !has_nan(gradient), node.name(), ": backward returned for input ",
               input, " a gradient (", describe(gradient), ") that contains NaN; ", where());
}

void GraphTask::deliver(const Node* from, size_t input, const Edge& edge, Tensor gradient) {
  const auto where = [&] {
    return from != nullptr ? str(from->name(), ": backward returned for input ", input, " a gradient")
                           : std::string("backward: got a gradient");
  };
  if (edge.node) {
    if (!gradient.defined()) return;
    check_gradient(gradient, {edge.node->shape_, edge.node->dtype_, edge.node->device_}, where);
    Node& node = *edge.node;
    const bool is_second = node.accepts_two_gradients && node.grad_.defined() && !options_.create_graph;
    add_to(is_second ? node.second_grad_ : node.grad_, std::move(gradient));
    return;
  }
  if (!edge.leaf) return;
  Leaf& leaf = *edge.leaf;
  if (gradient.defined()) {
    check_gradient(gradient, {leaf.shape(), leaf.dtype(), leaf.device()}, where);
    if (capturing_) {
      if (leaf.capture_ >= 0) add_to(captured_[static_cast<size_t>(leaf.capture_)], std::move(gradient));
    } else if (!leaf.tensor_hooks_.empty()) {
      add_to(leaf.pending_, std::move(gradient));
    } else if (options_.create_graph) {
      leaf.accumulate_with_graph(gradient);
    } else if (gradient.is_same(leaf.slot_)) {  // written in place, see BackwardContext::grad_buffer
      leaf.slot_.storage()->bump_version("backward");
      leaf.filled_ = true;
    } else {
      leaf.accumulate(std::move(gradient));
    }
    leaf.contributed_ = true;
  }
  if (--leaf.edges_left_ == 0 && leaf.contributed_) complete(leaf);
}

void GraphTask::complete(Leaf& leaf) {
  if (capturing_) {
    if (leaf.capture_ < 0 || leaf.tensor_hooks_.empty()) return;
    Tensor& captured = captured_[static_cast<size_t>(leaf.capture_)];
    captured = run_tensor_hooks(leaf.tensor_hooks_, nullptr, std::move(captured));
    return;
  }
  if (leaf.pending_.defined()) {
    Tensor gradient = run_tensor_hooks(leaf.tensor_hooks_, nullptr, std::move(leaf.pending_));
    options_.create_graph ? leaf.accumulate_with_graph(gradient) : leaf.accumulate(std::move(gradient));
  }
  leaf.follow_replays();
  leaf.run_hooks();
}

Tensor GraphTask::run_tensor_hooks(const HookList<TensorHook>& hooks, const Node* from, Tensor gradient) {
  const Shape shape = gradient.shape();
  const DType dtype = gradient.dtype();
  const Device device = gradient.device();
  hooks.run([&](const TensorHook& hook) {
    Tensor result = hook(gradient);
    if (!result.defined()) return;
    check_gradient(result, {shape, dtype, device}, [&] {
      return str("register_hook: a hook", from != nullptr ? str(" of a result of ", from->name()) : "",
                 " returned a gradient");
    });
    gradient = std::move(result);
  });
  return gradient;
}

Tensor GraphTask::run_extras(Node& node, Tensor gradient) {
  const NodeScope scope(node);
  const RefPtr<Node> alive(&node);  // a hook may drop the graph
  gradient = run_tensor_hooks(node.extras_->hooks, &node, std::move(gradient));
  if (node.extras_->retains_grad) {
    Tensor& kept = node.extras_->grad;
    if (kept.defined()) {
      kept = accumulate_with_graph(kept, gradient);
    } else {
      kept = options_.create_graph ? gradient : copy_of(gradient);  // other tensors may share its memory
    }
  }
  return gradient;
}

void GraphTask::add_to(Tensor& sum, Tensor gradient) {
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (options_.create_graph) {
    sum = accumulate_with_graph(sum, gradient);
  } else {
    if (is_shared(sum) || (!sum.is_contiguous() && !is_dense(sum.shape(), sum.strides()))) {
      Tensor own = empty_preserving_layout(sum, sum.dtype());
      primitives::copy(sum, own);
      sum = std::move(own);
    }
    primitives::add_into(gradient, sum);
  }
}

// --- public ---------------------------------------------------------------------------------------------------------

void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients, BackwardOptions options) {
  GraphTask(options).run("backward", roots, gradients);
}

void queue_callback(std::function<void()> f) {
  auto* task = static_cast<GraphTask*>(RankContext::current().open_autograd.backward);
  TANDEM_CHECK(StateError, task != nullptr, "queue_callback: no backward is running on this thread");
  task->queue_callback(std::move(f));
}

}}}  // namespace tandem::v0::autograd

namespace tandem { inline namespace v0 {

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs, autograd::BackwardOptions options) {
  TANDEM_CHECK(ValueError, !inputs.empty(), "grad: inputs is empty");
  autograd::GraphTask task(options);
  std::vector<size_t> positions;
  for (const Tensor& input : inputs) positions.push_back(task.capture(input));
  task.run("grad", outputs, grad_outputs);
  std::vector<Tensor> result;
  for (size_t position : positions) result.push_back(task.captured()[position]);
  return result;
}

// --- members of Tensor ----------------------------------------------------------------------------------------------

Tensor& Tensor::requires_grad_(bool on) {
  TANDEM_CHECK(StateError, is_leaf() || on, "requires_grad_: the tensor (", describe(*this),
               ") is the result of an operation; detach() it");
  TANDEM_CHECK(DTypeError, !on || is_floating_point(dtype()),
               "requires_grad_: only floating-point tensors can require gradients, got ", describe(*this));
  if (is_leaf()) impl().requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  const TensorImpl& self = impl();
  if (!self.autograd) return {};
  if (self.has_node) {
    const auto& node = static_cast<const autograd::Node&>(*self.autograd);
    return node.extras_ ? node.extras_->grad : Tensor();
  }
  return static_cast<const autograd::Leaf&>(*self.autograd).grad();
}

void Tensor::zero_grad() const {
  const TensorImpl& self = impl();
  if (self.has_node) {
    const auto& node = static_cast<const autograd::Node&>(*self.autograd);
    if (node.extras_) node.extras_->grad = {};
  } else if (self.autograd) {
    static_cast<autograd::Leaf&>(*self.autograd).mark_empty();
  } else if (self.requires_grad && cuda::is_capturing(device())) {
    autograd::leaf(*this).mark_empty();  // the gradient may exist when the graph is replayed
  }
}

void Tensor::set_grad(const Tensor& grad) const {
  const TensorImpl& self = impl();
  if (!self.has_node) return autograd::leaf(*this).set_grad(grad);
  auto& node = static_cast<autograd::Node&>(*self.autograd);
  TANDEM_CHECK(StateError, node.extras_ && node.extras_->retains_grad, "set_grad: the tensor (", describe(*this),
               ") is the result of ", node.name(), " and has no gradient; call retain_grad() first");
  if (grad.defined()) {
    autograd::check_gradient(grad, {self.shape, self.dtype, self.storage->device()},
                             [] { return std::string("set_grad: got a gradient"); });
  }
  node.extras_->grad = grad.defined() ? autograd::copy_of(grad) : Tensor();
}

void Tensor::retain_grad() const {
  TANDEM_CHECK(StateError, requires_grad(), "retain_grad: the tensor (", describe(*this), ") does not require grad");
  if (impl().has_node) static_cast<autograd::Node&>(*impl().autograd).extras().retains_grad = true;
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor& grad)> f) const {
  TANDEM_CHECK(StateError, requires_grad(), "register_hook: the tensor (", describe(*this), ") does not require grad");
  if (!impl().has_node) return autograd::leaf(*this).add_tensor_hook(std::move(f));
  return static_cast<autograd::Node&>(*impl().autograd).extras().hooks.add(std::move(f));
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  autograd::backward({this, 1}, {&gradient, 1}, {retain_graph, create_graph});
}

Tensor Tensor::detach() const {
  const TensorImpl& self = impl();
  auto copy = make_ref<TensorImpl>(self.storage, self.dtype, self.shape, self.strides, self.offset);
  copy->is_view = true;
  return Tensor(std::move(copy));
}

HookHandle Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor& grad)> f) const {
  return autograd::leaf(*this).add_hook(std::move(f));
}

}}  // namespace tandem::v0

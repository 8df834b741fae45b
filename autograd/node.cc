#include <tandem/autograd/nan_check.h>
#include <tandem/autograd/node.h>
#include <tandem/autograd/node_extras.h>
#include <tandem/autograd/recomputation.h>
#include <tandem/tensor/cuda_capture.h>

#include <algorithm>

namespace tandem { inline namespace v0 { namespace autograd {

void attach(const Tensor& tensor, RefPtr<Node> node) {
  TensorImpl& impl = tensor.impl();
  impl.autograd = std::move(node);
  impl.has_node = true;
  impl.requires_grad = false;
  impl.history_version = impl.storage->version();
}

Edge edge_to(const Tensor& tensor) {
  Edge edge;
  if (!tensor.defined()) return edge;
  TensorImpl& impl = tensor.impl();
  if (impl.has_node) {
    edge.node = RefPtr<Node>(static_cast<Node*>(impl.autograd.get()));
  } else if (impl.requires_grad) {
    edge.leaf = RefPtr<Leaf>(&leaf(tensor));
  }
  return edge;
}

SavedTensor::SavedTensor(Node& owner, const char* name) : owner_(owner), name_(name), next_(owner.saved_) {
  owner.saved_ = this;
}

void SavedTensor::save(const Tensor& tensor) {
  if (!tensor.defined()) return;
  const TensorImpl& impl = tensor.impl();
  version_ = impl.storage->version();
  if (!impl.has_node && impl.requires_grad) {
    data_ = tensor;  // a leaf references no node, so its handle cannot form a reference cycle
    return;
  }
  is_output_ = impl.has_node && impl.autograd.get() == &owner_;
  if (!is_output_) edge_ = edge_to(tensor);  // an edge to the owner would be a reference cycle
  data_ = tensor.detach();
  if (Recomputation* checkpoint = Recomputation::current()) [[unlikely]]
    checkpoint->add(*this);
}

void SavedTensor::recompute() const {
  // version_ is kept from the first run. If the version differs now, a tensor that the function uses was changed in
  // place.
  data_ = static_cast<Recomputation&>(*recomputation_).take(index_);
  recomputation_ = {};
}

void SavedTensor::release() {
  data_ = {};
  if (recomputation_) static_cast<Recomputation&>(*recomputation_).drop(index_);
  recomputation_ = {};
}

Tensor SavedTensor::get() const {
  TANDEM_CHECK(StateError, !owner_.released_, owner_.name(),
               ": backward was called a second time on a released graph; pass retain_graph = true to the first call");
  if (recomputation_) [[unlikely]]
    recompute();
  if (!data_.defined()) return {};
  if (const RefPtr<StorageOwner>& memory = data_.storage()->owner()) [[unlikely]]
    memory->on_backward();
  TANDEM_CHECK(StateError, data_.version() == version_, owner_.name(), ": '", name_, "' (", describe(data_),
               ") was changed in place by '", data_.storage()->last_writer(),
               "' after it was saved for backward (version ", data_.version(), ", saved at ", version_, ")");
  if (!is_grad_enabled() || !(is_output_ || edge_.node)) return data_;
  Tensor attached = data_.detach();
  attach(attached, is_output_ ? RefPtr<Node>(&owner_) : edge_.node);
  return attached;
}

Node::Node() = default;

Node::~Node() = default;

NodeExtras& Node::extras() {
  if (extras_ == nullptr) extras_ = std::make_unique<NodeExtras>();
  return *extras_;
}

void Node::destroy() {
  // Iterative, because graphs may be a million nodes deep: edges are moved out of nodes before these are destroyed.
  SmallVector<RefPtr<Node>, 8> pending;
  const auto take_edges = [&pending](Node& node) {
    for (Edge& edge : node.edges_) {
      if (edge.node) pending.push_back(std::move(edge.node));
    }
  };
  take_edges(*this);
  delete this;
  while (!pending.empty()) {
    RefPtr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node->use_count() == 1) take_edges(*node);
  }
}

int64_t Node::num_saved_bytes() const {
  int64_t bytes = 0;
  for (const SavedTensor* saved = saved_; saved != nullptr; saved = saved->next_) {
    if (saved->data_.defined()) bytes += saved->data_.num_bytes();
  }
  return bytes;
}

void Node::release_saved() {
  for (SavedTensor* saved = saved_; saved != nullptr; saved = saved->next_) saved->release();
  released_ = true;
}

void trace_output(const Tensor& output) {
  if (!output.impl().is_view) trace_operand_bytes(output.num_bytes());
}

void set_history(RefPtr<Node> node, const char* name, const Tensor& output, const Tensor* const* inputs,
                 size_t num_inputs) {
  RankContext& context = RankContext::current();
  uint64_t newest = 0;
  node->edges_.reserve(num_inputs);
  Recomputation* const checkpoint = Recomputation::current();
  for (size_t i = 0; i < num_inputs; ++i) {
    const Tensor& input = *inputs[i];
    if (checkpoint != nullptr && input.defined()) [[unlikely]]
      checkpoint->add_input(input.version());
    Edge edge = edge_to(input);
    if (edge.node) {
      const TensorImpl& impl = input.impl();
      TANDEM_CHECK(
          StateError, impl.history_version == impl.storage->version(), name, ": input ", i, " (", describe(input),
          ", made by '", edge.node->name(), "') was changed in place by '", impl.storage->last_writer(),
          "' through another tensor that shares its memory, so its gradient would be wrong; clone one of them");
      newest = std::max(newest, edge.node->number());
    }
    node->edges_.push_back(std::move(edge));
  }
  // Larger than the numbers of all inputs, including inputs created by other threads.
  context.next_node = std::max(context.next_node, newest + 1);
  node->number_ = context.next_node++;
  node->name_ = name;
  node->module_scope_ = context.module_scope;
  const TensorImpl& impl = output.impl();
  node->shape_ = impl.shape;
  node->dtype_ = impl.dtype;
  node->device_ = impl.storage->device();
  if (impl.has_node) {  // changed in place
    const auto& old = static_cast<const Node&>(*impl.autograd);
    if (old.extras_ && old.extras_->retains_grad) {
      node->extras().retains_grad = true;
      node->extras().grad = std::move(old.extras_->grad);
      old.extras_->retains_grad = false;
    }
  }
  if (context.detect_anomaly) [[unlikely]] {
    node->extras().recorded_at = CallStack::here();
    TANDEM_CHECK(ValueError, !has_nan(output), name, ": the result (", describe(output), ") contains NaN; ", name,
                 " was called at ", node->extras().recorded_at.caller());
  }
  attach(output, std::move(node));
}

void begin_in_place(const char* op, const Tensor& self, bool will_record) {
  const TensorImpl& impl = self.impl();
  TANDEM_CHECK(StateError, !(is_grad_enabled() && impl.requires_grad && !impl.has_node), op,
               ": a leaf that requires grad is changed in place (", describe(self),
               "); do it under a NoGradGuard, or use the form that returns a new tensor");
  TANDEM_CHECK(StateError, !(will_record && impl.is_view), op, ": an in-place change of a view cannot be recorded (",
               describe(self), "); use index_put_ on the whole tensor, or the form that returns a new tensor");
  // Tensors that share the memory would not become part of the graph, so gradients through them would be missing.
  TANDEM_CHECK(StateError, !will_record || impl.has_node || impl.storage->use_count() == 1, op, ": the tensor (",
               describe(self),
               ") would become part of the graph, but other tensors share its memory; use the form "
               "that returns a new tensor");
}

void end_in_place(const char* op, const Tensor& self) {
  TensorImpl& impl = self.impl();
  impl.storage->bump_version(op);
  impl.history_version = impl.storage->version();
  if (cuda::is_capturing(self.device()) && !cuda::is_allocated_in_capture(self)) {
    cuda::on_replay([op, self] { end_in_place(op, self); });
  }
}

}}}  // namespace tandem::v0::autograd

#include <tandem/autograd/function.h>

#include <algorithm>
#include <array>
#include <deque>

#include <tandem/autograd/node.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace autograd {

namespace {

/// Names of saved tensors in error texts.
constexpr std::array<const char*, 8> kSavedNames = {"saved tensor 0", "saved tensor 1", "saved tensor 2",
                                                    "saved tensor 3", "saved tensor 4", "saved tensor 5",
                                                    "saved tensor 6", "saved tensor 7"};

/// The output of the node of a function with several outputs. The gradients of the actual outputs reach this node
/// through its FunctionOutputs.
Tensor no_elements() { return empty({0}); }

}  // namespace

/// The source of one output of a function with several outputs.
class FunctionOutput final : public Node {
 public:
  FunctionOutput(FunctionNode& function, size_t index) : function_(function), index_(index) {}
  ~FunctionOutput() override;

  TensorList backward(BackwardContext& context) override {
    grad_ = context.grad();  // FunctionNode::backward takes it; if it does not run, the GraphTask clears it
    return {no_elements()};
  }
  /// The gradient that arrived in this backward.
  Tensor take_grad() { return std::move(grad_); }

 private:
  FunctionNode& function_;  ///< kept alive by the edge to it
  size_t index_;
};

/// The node of a function: with one output an ordinary node, with several the producer of its FunctionOutputs.
class FunctionNode final : public Node {
 public:
  explicit FunctionNode(std::unique_ptr<FunctionBase> function) : function_(std::move(function)) {
    function_->node_ = this;
  }

  void record(const char* name, const FunctionBase::Inputs& inputs, const FunctionBase::Outputs& outputs);
  Tensor saved_tensor(size_t i) const;
  size_t num_saved() const { return saved_.size(); }
  TensorList backward(BackwardContext& context) override;

 private:
  friend class FunctionOutput;
  struct Output {
    Shape shape;
    TensorOptions options;
    bool is_differentiable = false;
    FunctionOutput* node = nullptr;  ///< null before it is created and after it was destroyed
  };
  struct Saved {
    Saved(Node& owner, const char* name) : tensor(owner, name) {}
    SavedTensor tensor;
    int output = -1;  ///< number of the output, if it is one of several
  };

  /// Makes output `index` the source of `tensor`.
  void attach_output(const Tensor& tensor, size_t index);

  std::unique_ptr<FunctionBase> function_;
  std::vector<Output> outputs_;
  std::deque<Saved> saved_;  // a deque: SavedTensor cannot be moved
  bool has_several_outputs_ = false;
};

FunctionOutput::~FunctionOutput() { function_.outputs_[index_].node = nullptr; }

void FunctionNode::attach_output(const Tensor& tensor, size_t index) {
  Output& output = outputs_[index];
  if (output.node != nullptr) {
    attach(tensor, RefPtr<Node>(output.node));
    return;
  }
  auto node = make_ref<FunctionOutput>(*this, index);
  output.node = node.get();
  const Tensor producer = no_elements();
  attach(producer, RefPtr<Node>(this));
  const Tensor* input = &producer;
  set_history(std::move(node), name(), tensor, &input, 1);
}

void FunctionNode::record(const char* name, const FunctionBase::Inputs& inputs, const FunctionBase::Outputs& outputs) {
  const auto& non_differentiable = function_->non_differentiable_;
  size_t num_differentiable = 0;
  for (const Tensor* output : outputs) {
    const bool is_marked = std::any_of(non_differentiable.begin(), non_differentiable.end(),
                                       [&](const Tensor& marked) { return marked.impl_ptr() == output->impl_ptr(); });
    outputs_.push_back({output->shape(), output->options(), !is_marked && is_floating_point(output->dtype())});
    num_differentiable += outputs_.back().is_differentiable ? 1 : 0;
  }
  if (num_differentiable == 0) return;
  has_several_outputs_ = outputs.size() > 1;
  set_history(RefPtr<Node>(this), name, has_several_outputs_ ? no_elements() : *outputs[0], inputs.data(),
              inputs.size());
  for (size_t i = 0; has_several_outputs_ && i < outputs.size(); ++i) {
    if (outputs_[i].is_differentiable) attach_output(*outputs[i], i);
  }
  for (const Tensor& tensor : function_->to_save_) {
    const char* saved_name = saved_.size() < kSavedNames.size() ? kSavedNames[saved_.size()] : "saved tensor";
    Saved& saved = saved_.emplace_back(*this, saved_name);
    for (size_t i = 0; has_several_outputs_ && i < outputs.size(); ++i) {
      if (outputs_[i].is_differentiable && tensor.defined() && tensor.is_same(*outputs[i])) {
        saved.output = static_cast<int>(i);
      }
    }
    // One of several outputs is saved detached: its node refers to this node, so a reference to that node would form a
    // cycle.
    saved.tensor.save(saved.output < 0 ? tensor : tensor.detach());
  }
  function_->to_save_.clear();
  function_->non_differentiable_.clear();
}

Tensor FunctionNode::saved_tensor(size_t i) const {
  TANDEM_CHECK(IndexError, i < saved_.size(), name(), ": saved_tensor(", i, "), but ", saved_.size(),
               " tensors were saved");
  const Saved& saved = saved_[i];
  Tensor tensor = saved.tensor.get();
  if (saved.output < 0 || !is_grad_enabled()) return tensor;
  tensor = tensor.detach();
  const_cast<FunctionNode*>(this)->attach_output(tensor, static_cast<size_t>(saved.output));
  return tensor;
}

TensorList FunctionNode::backward(BackwardContext& context) {
  TensorList grads;
  if (!has_several_outputs_) {
    grads.push_back(context.grad());
  } else {
    for (Output& output : outputs_) {
      grads.push_back(output.node != nullptr ? output.node->take_grad() : Tensor());
      if (!grads.back().defined() && function_->materialize_grads_) grads.back() = zeros(output.shape, output.options);
    }
  }
  for (size_t i = 0; i < function_->needs_input_grad_.size(); ++i) {
    function_->needs_input_grad_[i] = context.needs(static_cast<int>(i));
  }
  TensorList result = function_->backward(grads);
  for (size_t i = 0; i < result.size() && i < num_inputs(); ++i) {
    if (!context.needs(static_cast<int>(i))) result[i] = {};
  }
  return result;
}

void FunctionBase::save_for_backward(std::initializer_list<Tensor> tensors) {
  if (recorded_) to_save_.insert(to_save_.end(), tensors.begin(), tensors.end());
}

Tensor FunctionBase::saved_tensor(size_t i) const {
  TANDEM_CHECK(StateError, node_ != nullptr, "saved_tensor: called outside of backward");
  return node_->saved_tensor(i);
}

TensorList FunctionBase::saved_tensors() const {
  TensorList result;
  for (size_t i = 0; node_ != nullptr && i < node_->num_saved(); ++i) result.push_back(saved_tensor(i));
  return result;
}

bool FunctionBase::needs_input_grad(size_t i) const {
  TANDEM_CHECK(IndexError, i < needs_input_grad_.size(), "needs_input_grad(", i, "): the function has ",
               needs_input_grad_.size(), " tensor arguments");
  return needs_input_grad_[i];
}

void FunctionBase::mark_non_differentiable(const Tensor& output) { non_differentiable_.push_back(output); }

void FunctionBase::begin(const Inputs& inputs) {
  for (const Tensor* input : inputs) {
    needs_input_grad_.push_back(is_grad_enabled() && input->defined() && input->requires_grad());
    recorded_ = recorded_ || needs_input_grad_.back();
  }
}

void FunctionBase::finish(std::unique_ptr<FunctionBase> function, const char* name, const Inputs& inputs,
                          const Outputs& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& output = *outputs[i];
    TANDEM_CHECK(StateError, output.defined(), name, ": forward returned an undefined tensor as output ", i);
    if (trace_enabled()) [[unlikely]]
      trace_output(output);
  }
  // If forward returns an argument, a tensor of the graph or an earlier output, that output is replaced by a new tensor
  // with the same memory, because a tensor has one source.
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& output = *outputs[i];
    const auto is_output = [&](const auto* other) { return other->impl_ptr() == output.impl_ptr(); };
    if (output.requires_grad() || std::any_of(inputs.begin(), inputs.end(), is_output) ||
        std::any_of(outputs.begin(), outputs.begin() + i, is_output)) {
      const Tensor other = output.detach();
      for (Tensor& marked : function->non_differentiable_) {
        if (marked.is_same(output)) marked = other;
      }
      output = other;
    }
  }
  if (!function->recorded_) return;
  auto node = make_ref<FunctionNode>(std::move(function));
  node->record(name, inputs, outputs);
}

}}}  // namespace tandem::v0::autograd

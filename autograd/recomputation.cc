#include <tandem/autograd/recomputation.h>

#include <cstring>
#include <utility>

#include <tandem/autograd/checkpoint.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace autograd {

namespace {

/// Restores the modes of the checkpointed call; the destructor restores the modes of the running backward.
class CallModes {
 public:
  CallModes(Recomputation* checkpoint, int8_t autocast, const RefPtr<ScopeName>& module_scope,
            const GeneratorPositions& positions)
      : checkpoint_(std::exchange(context_.open_autograd.checkpoint, checkpoint)),
        autocast_(std::exchange(context_.autocast, autocast)),
        module_scope_(std::exchange(context_.module_scope, module_scope)),
        is_recomputing_(std::exchange(context_.open_autograd.is_recomputing, true)) {
    positions.restore();
  }
  ~CallModes() {
    positions_.restore();
    context_.open_autograd.is_recomputing = is_recomputing_;
    context_.module_scope = module_scope_;
    context_.autocast = autocast_;
    context_.open_autograd.checkpoint = checkpoint_;
  }
  CallModes(const CallModes&) = delete;
  CallModes& operator=(const CallModes&) = delete;

 private:
  RankContext& context_ = RankContext::current();
  const GeneratorPositions positions_;
  void* checkpoint_;
  int8_t autocast_;
  RefPtr<ScopeName> module_scope_;
  bool is_recomputing_;
  EnableGradGuard enable_grad_;
};

}  // namespace

Recomputation::Recomputation(std::function<void()> run, std::vector<Tensor> inputs)
    : run_(std::move(run)),
      inputs_(std::move(inputs)),
      autocast_(RankContext::current().autocast),
      module_scope_(RankContext::current().module_scope) {
  for (const Tensor& input : inputs_) input_versions_.push_back(input.defined() ? input.version() : 0);
}

Recomputation* Recomputation::current() {
  return static_cast<Recomputation*>(RankContext::current().open_autograd.checkpoint);
}

CheckpointScope::CheckpointScope(std::function<void()> run, std::vector<Tensor> inputs)
    : recomputation_(make_ref<Recomputation>(std::move(run), std::move(inputs))),
      previous_(std::exchange(RankContext::current().open_autograd.checkpoint,
                              static_cast<Recomputation*>(recomputation_.get()))) {}

CheckpointScope::~CheckpointScope() { RankContext::current().open_autograd.checkpoint = previous_; }

void expect_unchanged(const Tensor& tensor) {
  if (Recomputation* checkpoint = Recomputation::current()) checkpoint->add_input(tensor.version());
}

Tensor snapshot(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_leaf()) return tensor;
  Tensor result = tensor.detach();
  attach(result, edge_to(tensor).node);
  return result;
}

void Recomputation::add(SavedTensor& saved) {
  if (!is_running_again_) {
    saved.recomputation_ = RefPtr<RefCounted>(this);
    saved.index_ = static_cast<uint32_t>(signatures_.size());
    signatures_.push_back({saved.owner_.name(), saved.data_.shape(), saved.data_.dtype()});
    saved.data_ = {};
    return;
  }
  const size_t index = recomputed_.size();
  const Signature* expected = index < signatures_.size() ? &signatures_[index] : nullptr;
  TANDEM_CHECK(StateError,
               expected != nullptr && std::strcmp(saved.owner_.name(), expected->op) == 0 &&
                   saved.data_.shape() == expected->shape && saved.data_.dtype() == expected->dtype,
               "checkpoint: the function must do the same in backward as in forward, but in backward ",
               saved.owner_.name(), " saved ", saved.data_.dtype(), " ", saved.data_.shape(),
               expected != nullptr
                   ? str(", in forward ", expected->op, " saved ", expected->dtype, " ", expected->shape)
                   : str(" as number ", index + 1, ", in forward ", index, " tensors were saved"));
  recomputed_.push_back(saved.data_);
}

void Recomputation::add_input(uint32_t version) {
  uint64_t& versions = is_running_again_ ? second_versions_ : first_versions_;
  versions = (versions ^ version) * 0x9E3779B97F4A7C15 + 1;
}

void Recomputation::recompute() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TANDEM_CHECK(StateError, !inputs_[i].defined() || inputs_[i].version() == input_versions_[i], "checkpoint: input ",
                 i, " (", describe(inputs_[i]), ") was changed in place by '", inputs_[i].storage()->last_writer(),
                 "' after the call, but backward needs its value");
  }
  recomputed_.reserve(signatures_.size());
  is_running_again_ = true;
  second_versions_ = 0;
  try {
    const TraceSpan span("checkpoint", "backward");
    const CallModes modes(this, autocast_, module_scope_, positions_);
    run_();
    TANDEM_CHECK(StateError, recomputed_.size() == signatures_.size(), "checkpoint: in backward the function saved ",
                 recomputed_.size(), " tensors, in forward ", signatures_.size(), "; it must do the same in both");
    TANDEM_CHECK(StateError, second_versions_ == first_versions_,
                 "checkpoint: a tensor that the function uses was changed in place after the call, but backward needs "
                 "its value");
  } catch (...) {
    is_running_again_ = false;
    recomputed_.clear();
    throw;
  }
  is_running_again_ = false;
}

Tensor Recomputation::take(uint32_t index) {
  if (recomputed_.empty()) recompute();
  return std::exchange(recomputed_[index], {});
}

void Recomputation::drop(uint32_t index) {
  if (!recomputed_.empty()) recomputed_[index] = {};
}

}}}  // namespace tandem::v0::autograd

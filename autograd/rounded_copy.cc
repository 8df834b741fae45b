#include <tandem/autograd/rounded_copy.h>

#include <tandem/autograd/leaf.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace autograd {

Tensor RoundedCopy::get(const Tensor& parameter, DType dtype) {
  const std::lock_guard lock(mutex_);
  const bool has_copy = copy_.defined() && copy_.dtype() == dtype;
  if (cuda::is_capturing(parameter.device())) {
    if (!has_copy || !is_current(parameter)) return {};
    cuda::on_replay([leaf = RefPtr<Leaf>(&autograd::leaf(parameter)), parameter, copy = copy_] {
      RoundedCopy& own = leaf->rounded;
      const std::lock_guard replay_lock(own.mutex_);
      TANDEM_CHECK(StateError, own.copy_.defined() && own.copy_.is_same(copy), "Graph: parameter '", leaf->name,
                   "' was moved, or cast to another dtype, after the capture; capture a new Graph");
      own.update(parameter);
    });
    return copy_.detach();
  }
  if (!has_copy) {
    copy_ = empty_preserving_layout(parameter, dtype);
    is_stale_ = true;
  }
  update(parameter);
  return copy_.detach();
}

Tensor RoundedCopy::existing() const {
  const std::lock_guard lock(mutex_);
  return copy_;
}

void RoundedCopy::end_step(const Tensor& parameter) {
  {
    const std::lock_guard lock(mutex_);
    copy_.storage()->bump_version("step");
    if (version_ + 1 == parameter.storage()->version()) ++version_;
  }
  if (!cuda::is_capturing(parameter.device())) return;
  cuda::on_replay([leaf = RefPtr<Leaf>(&autograd::leaf(parameter)), parameter] { leaf->rounded.end_step(parameter); });
  cuda::on_failed_capture([leaf = RefPtr<Leaf>(&autograd::leaf(parameter))] {
    const std::lock_guard lock(leaf->rounded.mutex_);
    leaf->rounded.is_stale_ = true;
  });
}

void RoundedCopy::remove() {
  const std::lock_guard lock(mutex_);
  copy_ = {};
  written_ = {};
}

void RoundedCopy::update(const Tensor& parameter) {
  const cuda::Stream stream = cuda::current_stream(parameter.device());
  if (is_current(parameter)) {
    if (stream.id() != stream_id_) written_->make_wait(stream);
    return;
  }
  primitives::copy(parameter, copy_);
  copy_.storage()->bump_version("autocast");
  if (!written_) written_.emplace(parameter.device());
  written_->record(stream);
  stream_id_ = stream.id();
  version_ = parameter.storage()->version();
  is_stale_ = false;
}

bool is_copied_by_autocast(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  return impl.requires_grad && !impl.has_node && impl.dtype == kFloat32 && !tensor.device().is_cpu();
}

}}}  // namespace tandem::v0::autograd

#include <tandem/autograd/rounded_copy.h>

#include <tandem/autograd/leaf.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace autograd {

Tensor RoundedCopy::get(const Tensor& parameter, DType dtype) {
  const std::lock_guard lock(mutex_);
  const Device device = parameter.device();
  const bool is_capturing = cuda::is_capturing(device);
  if (!copy_.defined() || copy_.dtype() != dtype) {
    if (is_capturing) return {};  // its memory would belong to the graph
    copy_ = empty_preserving_layout(parameter, dtype);
    stream_id_ = cuda::current_stream(device).id();
    write(parameter);
  } else if (is_capturing) {
    if (!is_current(parameter)) {
      write(parameter);
      mark_stale_if_capture_fails(parameter);
    }
    // Replays read the memory that the captured kernels read.
    cuda::on_replay([leaf = RefPtr<Leaf>(&autograd::leaf(parameter)), parameter, copy = copy_] {
      RoundedCopy& own = leaf->rounded;
      const std::lock_guard replay_lock(own.mutex_);
      TANDEM_CHECK(StateError, own.copy_.defined() && own.copy_.is_same(copy), "Graph: parameter '", leaf->name,
                   "' was moved, or cast to another dtype, after the capture; capture a new Graph");
      if (!own.is_current(parameter)) own.write(parameter);
    });
  } else if (cuda::current_stream(device).id() != stream_id_) {
    return {};
  } else if (!is_current(parameter)) {
    write(parameter);
  }
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
  mark_stale_if_capture_fails(parameter);
}

void RoundedCopy::mark_stale_if_capture_fails(const Tensor& parameter) {
  cuda::on_failed_capture([leaf = RefPtr<Leaf>(&autograd::leaf(parameter))] {
    const std::lock_guard lock(leaf->rounded.mutex_);
    leaf->rounded.is_stale_ = true;
  });
}

void RoundedCopy::remove() {
  const std::lock_guard lock(mutex_);
  copy_ = {};
}

void RoundedCopy::write(const Tensor& parameter) {
  primitives::copy(parameter, copy_);
  copy_.storage()->bump_version("autocast");
  version_ = parameter.storage()->version();
  is_stale_ = false;
}

bool is_copied_by_autocast(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  return impl.requires_grad && !impl.has_node && impl.dtype == kFloat32 && !tensor.device().is_cpu();
}

}}}  // namespace tandem::v0::autograd

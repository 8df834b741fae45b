#include <tandem/autograd/leaf.h>

#include <tandem/autograd/engine.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace autograd {

namespace {

/// Whether this handle is the only reference to the memory, and the tensor can become a slot without a copy.
bool is_exclusive(const Tensor& tensor) {
  return tensor.impl_ptr()->use_count() == 1 && tensor.storage()->use_count() == 1 && tensor.is_contiguous() &&
         tensor.storage()->num_bytes() == tensor.num_bytes();
}

}  // namespace

const Tensor& Leaf::slot() {
  if (!slot_.defined()) slot_ = shard_ ? shard_->group->slot(*this) : empty(shape_, {dtype_, device_});
  return slot_;
}

void Leaf::set_shard(RefPtr<LeafShard> shard) {
  const Tensor before = filled_ ? slot_ : Tensor();
  drop_slot();
  shard_ = std::move(shard);
  foreign_slot_ = true;
  shared_slot_ = false;
  if (!before.defined()) return;
  primitives::copy(before, slot());
  filled_ = true;
}

void Leaf::remove_shard() {
  drop_slot();
  shard_ = {};
  foreign_slot_ = false;
}

void Leaf::drop_slot() {
  slot_ = {};
  filled_ = false;
}

void Leaf::set_slot(const Tensor& slot) {
  if (slot.defined()) {
    check_matches("set_slot", slot);
    TANDEM_CHECK(StateError, slot.is_contiguous(), "set_slot: the slot of '", name, "' is not row-major");
    if (filled_) primitives::copy(slot_, slot);
    slot_ = slot;
    foreign_slot_ = true;
    shared_slot_ = false;
  } else if (foreign_slot_) {
    Tensor own;
    if (filled_) {
      own = empty(shape_, {dtype_, device_});
      primitives::copy(slot_, own);
    }
    slot_ = own;
    foreign_slot_ = false;
  }
}

void Leaf::check_matches(const char* op, const Tensor& tensor) const {
  const char* const argument = op + 4;  // "slot" or "grad"
  TANDEM_CHECK(ShapeError, tensor.shape() == shape_, op, ": '", name, "' has shape ", shape_, ", ", argument,
               " has shape ", tensor.shape());
  TANDEM_CHECK(DTypeError, tensor.dtype() == dtype_, op, ": '", name, "' is ", dtype_, ", ", argument, " is ",
               tensor.dtype());
  TANDEM_CHECK(DeviceError, tensor.device() == device_, op, ": '", name, "' is on ", device_, ", ", argument, " is on ",
               tensor.device());
}

void Leaf::set_grad(const Tensor& grad) {
  if (!grad.defined()) return mark_empty();
  TANDEM_CHECK(StateError, !shard_, "set_grad: the gradient of '", name,
               "' is divided among ranks by a DistributedDataParallel; construct that without shard");
  check_matches("set_grad", grad);
  prepare_slot();
  primitives::copy(grad, slot());
  slot_.storage()->bump_version("set_grad");
  filled_ = true;
  if (cuda::is_capturing(device_)) {
    cuda::on_replay([self = RefPtr<Leaf>(this), slot = slot_] {
      TANDEM_CHECK(StateError, self->slot_.is_same(slot), "Graph: the gradient of '", self->name,
                   "' is in different memory than at capture; capture a new Graph");
      self->filled_ = true;
      slot.storage()->bump_version("set_grad");
    });
  }
}

void Leaf::move_to(Device device, DType dtype) {
  TANDEM_CHECK(StateError, !foreign_slot_, "move_to: the gradient of '", name,
               "' is stored in a DistributedDataParallel bucket");
  rounded.remove();
  if (device == device_ && dtype == dtype_) return;
  Tensor moved;
  if (filled_) {
    moved = empty(shape_, {dtype, device});
    primitives::copy(slot_, moved);
  }
  slot_ = moved;
  shared_slot_ = false;
  device_ = device;
  dtype_ = dtype;
}

void Leaf::prepare_slot() {
  // A shared slot also belongs to the graph, to other leaves or to the caller of backward, so it must not be written.
  if (!shared_slot_) return;
  Tensor own;
  if (filled_) {
    own = empty(shape_, {dtype_, device_});
    primitives::copy(slot_, own);
  }
  slot_ = own;
  shared_slot_ = false;
}

void Leaf::accumulate(Tensor gradient) {
  if (gradient.requires_grad()) gradient = gradient.detach();  // a backward or hook under EnableGradGuard
  prepare_slot();
  if (!filled_ && !foreign_slot_ && is_exclusive(gradient)) {
    slot_ = std::move(gradient);
  } else {
    if (filled_) {
      primitives::add_into(gradient, slot_);
    } else {
      primitives::copy(gradient, slot());
    }
    slot_.storage()->bump_version("backward");
  }
  filled_ = true;
}

void Leaf::accumulate_with_graph(const Tensor& gradient) {
  TANDEM_CHECK(StateError, !foreign_slot_, "backward: create_graph is not possible for '", name,
               "', whose gradient is stored in a bucket of a DistributedDataParallel; use grad(outputs, inputs)");
  slot_ = filled_ ? autograd::accumulate_with_graph(slot_, gradient) : gradient;
  shared_slot_ = true;
  filled_ = true;
}

void Leaf::mark_empty() {
  filled_ = false;
  if (shard_) shard_->is_filled = false;
  if (cuda::is_capturing(device_)) {
    cuda::on_replay([self = RefPtr<Leaf>(this)] { self->filled_ = false; });
  }
}

void Leaf::follow_replays() {
  if (!cuda::is_capturing(device_)) return;
  const auto replay = [self = RefPtr<Leaf>(this), slot = slot_, foreign = foreign_slot_, shared = shared_slot_,
                       filled = was_filled_] {
    // The captured kernels overwrite or add at a fixed address, so the slot must be as it was at capture.
    const bool same_place = self->device_ == slot.device() && self->foreign_slot_ == foreign &&
                            ((!filled && !foreign) || self->slot_.is_same(slot));
    TANDEM_CHECK(StateError, same_place && self->filled_ == filled, "Graph: the gradient of '", self->name, "' is ",
                 self->filled_ ? "filled" : "empty", same_place ? "" : " and in different memory",
                 "; at capture it was ", filled ? "filled" : "empty",
                 "; call zero_grad as before the capture, or capture a new Graph");
    self->slot_ = slot;
    self->shared_slot_ = shared;
    self->filled_ = true;
    slot.storage()->bump_version("backward");
  };
  cuda::on_replay(replay);
  cuda::on_failed_capture([self = RefPtr<Leaf>(this), filled = was_filled_] { self->filled_ = filled; });
}

Leaf& leaf(const Tensor& tensor) {
  TensorImpl& impl = tensor.impl();
  TANDEM_CHECK(StateError, !impl.has_node, "leaf: the tensor is the result of an operation (", describe(tensor),
               "); only leaves have gradient slots");
  TANDEM_CHECK(StateError, impl.requires_grad, "leaf: the tensor does not require grad (", describe(tensor), ")");
  if (!impl.autograd) impl.autograd = make_ref<Leaf>(impl.shape, impl.dtype, impl.storage->device());
  return static_cast<Leaf&>(*impl.autograd);
}

}}}  // namespace tandem::v0::autograd

// Leaves of the graph: gradient slots and hooks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <tandem/autograd/leaf_shard.h>
#include <tandem/autograd/rounded_copy.h>
#include <tandem/base/hook_list.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

class GraphTask;

/// The autograd state of a leaf tensor: its gradient slot and its hooks.
///
/// The slot is a row-major tensor of the leaf's shape, dtype and device, allocated by the first backward or given by
/// `set_slot` (a slice of a bucket). It is *empty* or *filled*. The first contribution overwrites an empty slot, later
/// ones are added. A parameter with a *shard* has a slot only while backward runs, or within no_sync(); the mean over
/// the ranks is stored in the shard. Not thread-safe.
class TANDEM_API Leaf : public RefCounted {
 public:
  Leaf(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype), device_(device) {}

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  /// The parameter's name for messages; "" if it is not registered with a module.
  std::string name;
  /// The tensor in a half type, for autocast.
  RoundedCopy rounded;

  bool filled() const { return filled_; }
  /// The slot if it is filled; else the gradient of the shard, [end - begin], if that is filled; else undefined.
  Tensor grad() const { return filled_ ? slot_ : shard_ && shard_->is_filled ? shard_->gradient : Tensor(); }
  /// The slot, filled or empty; allocated if it does not exist.
  const Tensor& slot();
  void mark_empty();
  void mark_filled() { filled_ = true; }
  /// Replaces the slot by `slot` and copies the current gradient into it; an undefined `slot` returns to memory owned
  /// by the leaf, keeping the gradient. Throws ShapeError, DTypeError or DeviceError if `slot` does not match the leaf,
  /// StateError if it is not row-major.
  void set_slot(const Tensor& slot);
  /// Divides the parameter's update among ranks. The current gradient moves to a slot of the shard's group.
  void set_shard(RefPtr<LeafShard> shard);
  /// Removes the shard and the gradient.
  void remove_shard();
  LeafShard* shard() const { return shard_.get(); }  ///< null if every rank updates the whole parameter
  /// Drops the slot, because its values were averaged.
  void drop_slot();
  /// Moves the gradient to `device` and converts it to `dtype`, after the leaf's tensor was moved; hooks stay
  /// registered. Throws StateError if the slot was given by set_slot.
  void move_to(Device device, DType dtype);
  /// Whether the slot was given by set_slot (a slice of a bucket).
  bool has_foreign_slot() const { return foreign_slot_; }

  /// Copies `grad` into the slot; undefined empties it. Throws ShapeError, DTypeError or DeviceError if it does not
  /// match the leaf.
  void set_grad(const Tensor& grad);
  /// See Tensor::register_hook.
  HookHandle add_tensor_hook(std::function<Tensor(const Tensor& grad)> f) { return tensor_hooks_.add(std::move(f)); }
  /// Calls f(gradient) in each backward, after the last contribution to this leaf.
  HookHandle add_hook(std::function<void(const Tensor& grad)> f) { return hooks_.add(std::move(f)); }

 private:
  friend class GraphTask;
  friend class BackwardContext;

  /// Adds a contribution. An empty slot is overwritten, or replaced by `gradient` if that has no other reference.
  void accumulate(Tensor gradient);
  void accumulate_with_graph(const Tensor& gradient);
  /// During capture of a cuda::Graph: registers that each replay fills the slot. A replay throws if the slot is not as
  /// it was at the start of the captured backward.
  void follow_replays();
  void check_matches(const char* op, const Tensor& tensor) const;
  void run_hooks() {
    hooks_.run([this](const auto& hook) { hook(slot_); });
  }
  /// Makes the slot writable: a slot shared by create_graph is replaced by a copy.
  void prepare_slot();

  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor slot_;
  RefPtr<LeafShard> shard_;
  bool filled_ = false;
  bool foreign_slot_ = false;
  bool shared_slot_ = false;  ///< the slot is a gradient tensor of a backward with create_graph
  HookList<std::function<void(const Tensor& grad)>> hooks_;
  HookList<std::function<Tensor(const Tensor& grad)>> tensor_hooks_;
  // State of the running backward:
  GraphTask* task_ = nullptr;
  int32_t edges_total_ = 0;   ///< edges into this leaf from reachable nodes
  int32_t edges_left_ = 0;    ///< edges whose node has not run yet
  bool contributed_ = false;  ///< whether any edge delivered a gradient
  Tensor pending_;            ///< with tensor hooks: sum of the contributions so far
  bool was_filled_ = false;   ///< state of the slot at the start
  int32_t capture_ = -1;      ///< position among the inputs of grad(), else -1
};

/// The leaf state of `tensor`, created on first use. Throws StateError unless it is a leaf that requires grad.
TANDEM_API Leaf& leaf(const Tensor& tensor);

}}}  // namespace tandem::v0::autograd

// A leaf of the graph: where gradients end up.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

class GraphTask;

/// The autograd state of a leaf tensor: its gradient slot and its hooks.
///
/// The slot is a row-major tensor of the leaf's shape, dtype and device, made by the first backward or given by
/// `set_slot` (a slice of a bucket).  It is *empty* or *filled*.  The first contribution to an empty slot overwrites it,
/// later ones add.  Not safe from many threads.
class TANDEM_API Leaf : public RefCounted {
 public:
  Leaf(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype), device_(device) {}

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  /// The parameter's name for messages; "" if it was never registered with a module.
  std::string name;

  bool filled() const { return filled_; }
  /// The slot where filled, else undefined.
  Tensor grad() const { return filled_ ? slot_ : Tensor(); }
  /// The slot, filled or not; made if there is none.
  const Tensor& slot();
  void mark_empty();
  void mark_filled() { filled_ = true; }
  /// Uses `slot` from now on, moving the present gradient into it; an undefined one gives the memory up again, keeping
  /// the gradient in memory of its own.  Throws ShapeError, DTypeError or DeviceError where `slot` does not match, and
  /// StateError where it is not row-major.
  void set_slot(const Tensor& slot);
  /// The leaf's tensor moved to `device`: its gradient goes along, its hooks stay.  Throws StateError while the slot's memory
  /// belongs to someone else.
  void move_to(Device device);
  /// Whether the slot's memory belongs to someone else (a bucket).
  bool has_foreign_slot() const { return foreign_slot_; }

  /// Calls f(gradient) when a backward has brought this leaf's last contribution.
  HookHandle add_hook(std::function<void(const Tensor& grad)> f);

 private:
  friend class GraphTask;
  friend class BackwardContext;

  /// Adds a contribution: overwrites an empty slot, or takes `gradient` over as the slot where nobody else holds it.
  void accumulate(Tensor gradient);
  void accumulate_with_graph(const Tensor& gradient);
  /// In a cuda::Graph: each replay leaves the gradient in this slot, which must be as it was when this backward met the leaf.
  void follow_replays();
  void run_hooks();
  /// Makes the slot writable: replaces one that create_graph left, which others may hold, by a copy.
  void prepare_slot();

  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor slot_;
  bool filled_ = false;
  bool foreign_slot_ = false;
  bool shared_slot_ = false;  ///< the slot is a tensor that a backward under create_graph delivered
  uint64_t next_hook_ = 0;
  std::vector<std::pair<uint64_t, std::function<void(const Tensor&)>>> hooks_;
  // Bookkeeping of the backward that is running:
  GraphTask* task_ = nullptr;
  int32_t edges_total_ = 0;   ///< edges into this leaf from the part of the graph that is differentiated
  int32_t edges_left_ = 0;    ///< of those, how many have not delivered yet
  bool contributed_ = false;  ///< whether any of them delivered a gradient
  bool was_filled_ = false;   ///< before any of them did
  int32_t capture_ = -1;      ///< position among grad()'s inputs, if one of them
};

/// The leaf state of `tensor`, made on first use.  Throws StateError unless it is a leaf that requires grad.
TANDEM_API Leaf& leaf(const Tensor& tensor);

}}}  // namespace tandem::v0::autograd

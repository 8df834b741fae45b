// Memory shared by a tensor and its views.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <tandem/base/ref_counted.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

class Storage;

/// Provides the memory of storages that do not have it all the time: parameters that ranks divide, and parameters that
/// are initialized later.
class TANDEM_API StorageOwner : public RefCounted {
 public:
  /// Called when the memory of `storage` is used while it has none: provides it, or throws.
  virtual void on_access(Storage& storage) = 0;
  /// Called before an operation's backward reads a tensor of the storage.
  virtual void on_backward() {}
};

/// A range of device memory with the version counter of the tensors that view it.
///
/// All views of one storage share its version counter. A part of another storage made by `alias` has its own counter,
/// so that slices of a bucket do not invalidate each other.
class TANDEM_API Storage : public RefCounted {
 public:
  /// New memory from the device's allocator.
  static RefPtr<Storage> allocate(Device device, int64_t num_bytes);
  /// Bytes [offset, offset + num_bytes) of `parent`, which it keeps alive.
  static RefPtr<Storage> alias(const RefPtr<Storage>& parent, int64_t offset, int64_t num_bytes);
  /// Memory owned by the caller; `release` (may be empty) is called when the last reference is dropped.
  static RefPtr<Storage> adopt(Device device, void* data, int64_t num_bytes, std::function<void()> release);
  /// `num_bytes` bytes of which `owner` provides the memory; initially without memory.
  static RefPtr<Storage> provided(Device device, int64_t num_bytes, RefPtr<StorageOwner> owner);
  ~Storage() override;

  /// The first byte, in the memory of the device. Throws what the owner throws if it does not provide the memory now.
  std::byte* data() const {
    if (data_ == nullptr && owner_) [[unlikely]]
      owner_->on_access(const_cast<Storage&>(*this));
    return data_;
  }
  int64_t num_bytes() const { return num_bytes_; }  ///< size of the range
  Device device() const { return device_; }         ///< where the memory is
  /// Whether this object owns the memory; false for `alias` and `adopt`.
  bool owns_memory() const { return block_.data != nullptr; }
  /// The object that provides and withdraws the memory; null for other storages.
  const RefPtr<StorageOwner>& owner() const { return owner_; }
  /// Makes the memory that of `memory` from byte `offset` on. For owners.
  void provide(const RefPtr<Storage>& memory, int64_t offset);
  /// Drops the memory. Tensors of this storage have no elements until `provide`. For owners.
  void withdraw();
  /// Makes the storage an ordinary one, with its present memory.
  void remove_owner() { owner_ = {}; }

  /// Id of the stream in whose order the memory is used (Block); 0 for CPU memory and for adopted memory.
  uint64_t stream_id() const { return parent_ ? parent_->stream_id() : block_.stream_id; }

  /// Number of in-place changes of the contents.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  /// Counts an in-place change by the operation `op` (a string literal).
  void bump_version(const char* op) {
    last_writer_.store(op, std::memory_order_relaxed);
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// The operation of the last in-place change; "" if there was none.
  const char* last_writer() const { return last_writer_.load(std::memory_order_relaxed); }

 private:
  Storage(Device device, std::byte* data, int64_t num_bytes) : device_(device), data_(data), num_bytes_(num_bytes) {}

  Device device_;
  std::atomic<uint32_t> version_{0};
  std::atomic<const char*> last_writer_{""};
  std::byte* data_;
  int64_t num_bytes_;
  Block block_;                    ///< owned, if data came from the allocator
  RefPtr<Storage> parent_;         ///< owner of the memory, if an alias or provided
  RefPtr<StorageOwner> owner_;     ///< provides the memory; null if it is there all the time
  std::function<void()> release_;  ///< releases adopted memory
};

}}  // namespace tandem::v0

// Memory shared by a tensor and its views.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <tandem/base/ref_counted.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// A span of device memory with the version counter of the tensors that view it.
///
/// The counter belongs to the storage: all views of one tensor share it.  A part of another storage made by `alias` is a
/// base of its own: a bucket's slices do not invalidate each other.
class TANDEM_API Storage : public RefCounted {
 public:
  /// New memory from the device's allocator.
  static RefPtr<Storage> allocate(Device device, int64_t num_bytes);
  /// Bytes [offset, offset + num_bytes) of `parent`, which it keeps alive.
  static RefPtr<Storage> alias(const RefPtr<Storage>& parent, int64_t offset, int64_t num_bytes);
  /// Foreign memory; `release` runs when the last tensor is gone (may be empty).
  static RefPtr<Storage> adopt(Device device, void* data, int64_t num_bytes, std::function<void()> release);
  ~Storage() override;

  std::byte* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }
  Device device() const { return device_; }

  /// The stream in whose order the memory is used (Block); 0 for a CPU's, and for foreign memory.
  uint64_t queue() const { return parent_ ? parent_->queue() : block_.queue; }

  /// Times the contents were changed in place.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  /// Notes a change by the operation `op` (a string literal).
  void bump_version(const char* op) {
    last_writer_.store(op, std::memory_order_relaxed);
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// The operation that changed the contents last; "" if none did.
  const char* last_writer() const { return last_writer_.load(std::memory_order_relaxed); }

 private:
  Storage(Device device, std::byte* data, int64_t num_bytes) : device_(device), data_(data), num_bytes_(num_bytes) {}

  Device device_;
  std::atomic<uint32_t> version_{0};
  std::atomic<const char*> last_writer_{""};
  std::byte* data_;
  int64_t num_bytes_;
  Block block_;                    ///< owned, if data came from the allocator
  RefPtr<Storage> parent_;         ///< owner of the memory, if an alias
  std::function<void()> release_;  ///< gives foreign memory back
};

}}  // namespace tandem::v0

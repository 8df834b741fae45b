// Memory shared by a tensor and its views.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <tandem/base/ref_counted.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

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
  ~Storage() override;

  std::byte* data() const { return data_; }         ///< first byte, in the memory of the device
  int64_t num_bytes() const { return num_bytes_; }  ///< size of the range
  Device device() const { return device_; }         ///< where the memory is
  /// Whether this object owns the memory; false for `alias` and `adopt`.
  bool owns_memory() const { return block_.data != nullptr; }

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
  RefPtr<Storage> parent_;         ///< owner of the memory, if an alias
  std::function<void()> release_;  ///< releases adopted memory
};

}}  // namespace tandem::v0

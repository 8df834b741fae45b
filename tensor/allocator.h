// Device memory: a caching allocator with statistics per device.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// Memory statistics of a device, in bytes.
struct MemoryStats {
  int64_t allocated = 0;       ///< in use now, rounded up to size classes
  int64_t peak_allocated = 0;  ///< maximum of `allocated` since start or reset_peak_memory
  int64_t reserved = 0;        ///< obtained from the system: allocated plus cached
  int64_t limit = 0;           ///< set by set_memory_limit; 0 = no limit
};

/// A block of device memory.
struct Block {
  void* data = nullptr;    ///< aligned to 64 bytes; null for 0 bytes
  int64_t num_bytes = 0;   ///< the size class, at least the requested size
  uint64_t stream_id = 0;  ///< GPU: id of the cuda::Stream in whose order the memory is used; CPU: 0
};

/// Allocates at least num_bytes on `device`; on a GPU for use on the calling thread's current stream. Contents are
/// undefined (poisoned under AddressSanitizer beyond num_bytes). Throws OutOfMemory with requested bytes, allocated
/// bytes and limit, and DeviceError if the device does not exist.
TANDEM_API Block allocate(Device device, int64_t num_bytes);
/// Returns a block to the device's cache, without waiting for queued work that still uses it. This is safe because the
/// block is reused only on the same stream, which runs its work in order.
TANDEM_API void deallocate(Device device, Block block) noexcept;

/// Bytes that an allocation of num_bytes adds to MemoryStats::allocated: its size class.
TANDEM_API int64_t block_bytes(int64_t num_bytes);

/// Current statistics of `device`. Throws DeviceError if it does not exist, as do the functions below.
TANDEM_API MemoryStats memory_stats(Device device);
/// Bytes that can still be allocated on `device`: with a limit, limit - allocated; without, cached bytes plus bytes
/// available from the system (MemAvailable of /proc/meminfo for a CPU device, cudaMemGetInfo for a GPU).
TANDEM_API int64_t free_memory(Device device);
/// Whether allocations on this device reduce the free memory of other devices too: true for a CPU device without a
/// limit.
TANDEM_API bool shares_free_memory(Device device);
/// Sets peak_allocated to `allocated`.
TANDEM_API void reset_peak_memory(Device device);
/// Makes allocations beyond `num_bytes` in total throw OutOfMemory; 0 removes the limit.
TANDEM_API void set_memory_limit(Device device, int64_t num_bytes);
/// Returns cached blocks to the system, except those that a cuda::Graph may still use.
TANDEM_API void empty_cache(Device device);

}}  // namespace tandem::v0

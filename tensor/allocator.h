// Memory of devices: a caching allocator with an account for each.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// Account of a device's memory, in bytes.
struct MemoryStats {
  int64_t allocated = 0;       ///< held by tensors now (rounded up to the size class)
  int64_t peak_allocated = 0;  ///< the most since start or reset_peak_memory
  int64_t reserved = 0;        ///< obtained from the system: allocated plus cached
  int64_t limit = 0;           ///< set by set_memory_limit; 0 = none
};

/// A block of device memory.
struct Block {
  void* data = nullptr;   ///< aligned to 64 bytes; null for 0 bytes
  int64_t num_bytes = 0;  ///< the size class, at least what was asked
  uint64_t queue = 0;     ///< of a GPU: the stream in whose order the memory is used, see cuda::Stream
};

/// Memory of `device` for at least num_bytes, on a GPU for work on the calling thread's current stream.  Contents are undefined
/// (poisoned under AddressSanitizer beyond num_bytes).  Throws OutOfMemory with bytes asked, allocated, and limit; DeviceError if the device does not exist.
TANDEM_API Block allocate(Device device, int64_t num_bytes);
/// Gives a block back to the device's cache, from where it serves allocations for the same stream: no work that was queued before
/// is waited for.
TANDEM_API void deallocate(Device device, Block block) noexcept;

/// Bytes by which a block of num_bytes adds to its device's account: its size class.
TANDEM_API int64_t block_bytes(int64_t num_bytes);

TANDEM_API MemoryStats memory_stats(Device device);
/// Bytes that tensors on `device` could still take: what its limit leaves; without a limit what its cache holds and what the
/// system says to be available (for a CPU device MemAvailable of /proc/meminfo, for a GPU what its driver says).
TANDEM_API int64_t free_memory(Device device);
/// Whether what is taken of this device's free memory is taken of other devices' too: a CPU device without a limit.
TANDEM_API bool shares_free_memory(Device device);
TANDEM_API void reset_peak_memory(Device device);
/// Makes allocations beyond `num_bytes` throw OutOfMemory; 0 removes the limit.
TANDEM_API void set_memory_limit(Device device, int64_t num_bytes);
/// Returns cached blocks to the system, but for what a cuda::Graph may still use.
TANDEM_API void empty_cache(Device device);

}}  // namespace tandem::v0

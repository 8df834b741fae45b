// A GPU's memory as the allocator sees it.  Private to tensor/.
#pragma once

#include <cstdint>

#include <tandem/tensor/device.h>

namespace tandem::inline v0::cuda {

/// Number of the calling thread's current stream on `device`; another for each stream that there ever was, never 0.
uint64_t current_queue(Device device);
/// Memory from the driver; null where there is no more.  Aligned to 256 bytes.
void* system_allocate(Device device, int64_t num_bytes);
/// Gives it back; waits for the work of the GPU.
void system_free(Device device, void* data) noexcept;
/// What the driver says to be free.
int64_t available_bytes(Device device);

}  // namespace tandem::inline v0::cuda

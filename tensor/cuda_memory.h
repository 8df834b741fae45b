// GPU memory for the allocator. Private to tensor/.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Id of the calling thread's current stream on `device` (Stream::id).
uint64_t current_stream_id(Device device);
/// Memory from the driver, aligned to 256 bytes; null if not enough memory is left.
void* system_allocate(Device device, int64_t num_bytes);
/// Waits for all work of the GPU.
void wait_for_work(Device device) noexcept;
/// Returns memory to the driver; waits for the work of the GPU.
void system_free(Device device, void* data) noexcept;
/// Free bytes as reported by the driver.
int64_t available_bytes(Device device);

/// Throws StateError if the calling thread is capturing a graph of another device or stream.
void check_captured_stream(Device device, uint64_t stream_id);

/// Memory that replays of a graph use although no tensor refers to it. During the lifetime of this object, cached
/// memory of the graph's stream is not returned to the system; its destructor returns it. Memory of other streams that
/// the thread frees during capture is held here.
class GraphMemory {
 public:
  GraphMemory(Device device, uint64_t stream_id);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  /// Marks the calling thread as capturing, or removes the mark.
  void set_capturing(bool on);
  /// Returns the held blocks to the allocator.
  void release() noexcept;

  const Device device;
  const uint64_t stream_id;
  // Guarded by the lock of the device's allocator:
  std::thread::id capturing;
  std::vector<Block> held;
};

}}}  // namespace tandem::v0::cuda

// A GPU's memory as the allocator sees it.  Private to tensor/.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Number of the calling thread's current stream on `device`; another for each stream that there ever was, never 0.
uint64_t current_queue(Device device);
/// Memory from the driver; null where there is no more.  Aligned to 256 bytes.
void* system_allocate(Device device, int64_t num_bytes);
/// Gives it back; waits for the work of the GPU.
void system_free(Device device, void* data) noexcept;
/// What the driver says to be free.
int64_t available_bytes(Device device);

/// Throws StateError where the calling thread captures a graph of another stream than this one.
void refuse_other_stream(Device device, uint64_t queue);

/// What a graph's replays touch and no tensor holds.  As long as this lives, cached memory of the graph's stream is not given back to
/// the system; while a thread captures, memory of other streams that it gives back stays here.
class GraphMemory {
 public:
  GraphMemory(Device device, uint64_t queue);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  /// The calling thread captures from now on, or no thread does.
  void set_capturing(bool on);
  /// Gives back what stays here.
  void release() noexcept;

  const Device device;
  const uint64_t queue;
  // Under the lock of the device's memory:
  std::thread::id capturing;
  std::vector<Block> held;
};

}}}  // namespace tandem::v0::cuda

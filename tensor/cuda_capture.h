// What takes part in the capture of a cuda::Graph by the calling thread.  Private to the library.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Whether the calling thread captures a graph of `device`.
TANDEM_API bool is_capturing(Device device);
/// Throws StateError where the calling thread captures a graph, in which `what` cannot be.
TANDEM_API void refuse_in_capture(const char* what);
/// Each replay of the graph that is being captured calls f before it starts, in the order of these calls.
TANDEM_API void on_replay(std::function<void()> f);
/// f is called if the capture fails: the GPU has not done what it was given.
TANDEM_API void on_failed_capture(std::function<void()> f);
/// Whether the calling thread captures a graph and the tensor's memory was made in it.
TANDEM_API bool is_of_capture(const Tensor& tensor);
/// The memory of what add_step_bytes returns, for whoever may read it after the graph; undefined where `device` is not captured.
TANDEM_API Tensor step_block(Device device);
/// Room in the block that replays write first, as float64 [num_bytes / 8]: the bytes at `now` until then, afterwards what make(bytes)
/// has left, called as on_replay says.  num_bytes is a multiple of 8.
TANDEM_API Tensor add_step_bytes(const void* now, size_t num_bytes, std::function<void(void* bytes)> make);

/// Where kernels find a value that the host changes from step to step: null where `device` is not captured, as the kernel's
/// argument says it then; else in the GPU's memory, `now` at first, and what make() returns in each replay.
template <class T, class Make>
const T* step_value(Device device, const T& now, Make make) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(double) == 0);
  if (!is_capturing(device)) return nullptr;
  const auto write = [make = std::move(make)](void* bytes) {
    const T value = make();
    std::memcpy(bytes, &value, sizeof(T));
  };
  return reinterpret_cast<const T*>(add_step_bytes(&now, sizeof(T), write).data_ptr());
}

}}}  // namespace tandem::v0::cuda

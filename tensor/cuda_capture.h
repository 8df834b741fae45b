// Hooks into the capture of a cuda::Graph by the calling thread. Private to the library.
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

/// Whether the calling thread is capturing a graph of `device`.
TANDEM_API bool is_capturing(Device device);
/// Whether the calling thread is capturing a graph.
TANDEM_API bool is_capturing();
/// Throws StateError if the calling thread is capturing a graph; `what` names the operation that cannot be captured.
TANDEM_API void check_not_capturing(const char* what);
/// Registers f with the running capture: each replay calls the registered functions, in order, before it launches the
/// graph.
TANDEM_API void on_replay(std::function<void()> f);
/// Registers f to be called if the running capture fails, in which case the GPU has executed nothing.
TANDEM_API void on_failed_capture(std::function<void()> f);
/// Whether the tensor's memory was allocated in the running capture of the calling thread.
TANDEM_API bool is_allocated_in_capture(const Tensor& tensor);
/// The tensor that contains all per-step values, for code that reads them after the graph; undefined if `device` is not
/// being captured.
TANDEM_API Tensor step_block(Device device);
/// Reserves num_bytes (a multiple of 8) of per-step values in the GPU's memory, as float64 [num_bytes / 8]. They hold
/// the bytes at `now` for the captured run; before each replay make(bytes) updates them, in the order of on_replay.
TANDEM_API Tensor add_step_bytes(const void* now, size_t num_bytes, std::function<void(void* bytes)> make);

/// While `device` is being captured: each replay fills `out` with the result of value(). Otherwise does nothing.
TANDEM_API void fill_in_replays(const Tensor& out, std::function<double()> value);

/// Address in GPU memory of a value that the host changes from step to step: `now` for the captured run, the result of
/// make() in each replay. Null if `device` is not being captured; the kernel then uses its argument.
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

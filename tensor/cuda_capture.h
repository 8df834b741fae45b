// Hooks into the capture of a cuda::Graph by the calling thread. Private to the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Whether the calling thread is capturing a graph of `device`.
TANDEM_API bool is_capturing(Device device);
/// Whether the calling thread is capturing a graph.
TANDEM_API bool is_capturing();
/// Throws StateError if the calling thread is capturing a graph; `what` names the operation that cannot be captured.
TANDEM_API void check_not_capturing(const char* what);
/// Id of the running capture of the calling thread; ids are never reused. 0 if it is not capturing.
TANDEM_API uint64_t capture_id();

/// Is notified of the captures and replays of a graph that contains operations with other ranks. Called on the thread
/// that captures or replays.
class TANDEM_API ReplayObserver {
 public:
  virtual ~ReplayObserver() = default;
  /// Called when the captured function has returned. Throws if the capture is not complete.
  virtual void end_capture() {}
  /// Called before the captured run (`is_first`), and in each replay before any per-step value changes. May wait for
  /// other ranks.
  virtual void begin_replay(bool /*is_first*/) {}
  /// Calls launch(), which launches the graph on the current stream.
  virtual void launch(const std::function<void()>& launch) { launch(); }
  /// Called at the end of each run for which begin_replay() was called; `error` is null if the graph was launched.
  virtual void end_replay(const std::exception_ptr& /*error*/) noexcept {}
};
/// Registers an observer with the running capture. The graph owns it, and destroys it after the captured work.
TANDEM_API void observe_replays(std::shared_ptr<ReplayObserver> observer);

/// The second stream of the running capture. Work that is queued on it from now on runs after all work queued on both
/// streams so far, and concurrently with later work of the captured stream. Use it with a StreamGuard, and allocate no
/// memory on it.
TANDEM_API Stream fork_capture(Device device);
/// A position in the second stream of a capture.
class CapturePoint;
/// The end of the work that has been queued on the second stream so far.
TANDEM_API std::shared_ptr<const CapturePoint> capture_point();
/// Makes work that is queued on the captured stream from now on wait for the point, which must belong to the running
/// capture.
TANDEM_API void join_capture(const CapturePoint& point);

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
/// Reserves num_bytes (a multiple of 8) of per-step values in the GPU's memory, as float64 [num_bytes / 8]. For the
/// captured run they contain the bytes at `now`. Before each replay make(bytes) updates them, in the order of
/// on_replay.
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

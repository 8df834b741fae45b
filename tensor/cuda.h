// GPUs: device information, streams and events. A build without CUDA, or a machine without a GPU or driver, computes on
// the CPU; using a GPU then throws DeviceError with the reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Whether tandem was built with CUDA.
TANDEM_API bool is_built();
/// Number of GPUs visible to this process; 0 without CUDA or without a driver.
TANDEM_API int device_count();
/// Whether device_count() > 0.
TANDEM_API inline bool is_available() { return device_count() > 0; }
/// Throws DeviceError unless `device` is an existing GPU.
TANDEM_API void check_device(Device device);

/// Properties of a GPU, as its driver reports them.
struct DeviceProperties {
  std::string name;             ///< of the product, such as "NVIDIA H100 80GB HBM3"
  std::string uuid;             ///< "GPU-b4c1...", globally unique
  int compute_major = 0;        ///< major number of the compute capability
  int compute_minor = 0;        ///< minor number of the compute capability
  int num_multiprocessors = 0;  ///< streaming multiprocessors
  int64_t memory_bytes = 0;     ///< total device memory
  int64_t l2_bytes = 0;         ///< size of the L2 cache
  int64_t shared_bytes = 0;     ///< maximum shared memory of a thread block
};
/// Throws DeviceError.
TANDEM_API const DeviceProperties& device_properties(Device device);

/// Versions of CUDA, such as "13.0". Empty if is_built() is false.
struct Versions {
  std::string runtime;  ///< of the runtime library
  std::string driver;   ///< the newest version that the driver supports
};
/// The versions of this process. Throws BackendError if the runtime reports an error.
TANDEM_API Versions versions();

/// A CUDA stream: a queue of work on one GPU that runs in order. Streams of one GPU run concurrently unless an event
/// orders them. A handle: copies refer to the same stream. Thread-safe.
class TANDEM_API Stream {
 public:
  /// Creates a stream. The GPU schedules streams of high priority first. Throws DeviceError.
  explicit Stream(Device device, bool high_priority = false);

  Device device() const;  ///< the GPU of the stream
  void* handle() const;   ///< the cudaStream_t
  uint64_t id() const;    ///< unique id of this stream; ids are never reused and never 0
  /// Blocks until all queued work has finished; throws its errors.
  void synchronize() const;
  bool is_idle() const;  ///< whether all queued work has finished
  friend bool operator==(const Stream&, const Stream&) = default;

 private:
  struct Impl;
  explicit Stream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend Stream current_stream(Device device);
  friend Stream side_stream(Device device, int number);
  std::shared_ptr<Impl> impl_;
};

/// The stream on which the calling thread's operations on `device` are queued: the stream of the innermost StreamGuard,
/// else the device's default stream, which all threads share. Throws DeviceError.
TANDEM_API Stream current_stream(Device device);

/// Number of side streams of a GPU.
inline constexpr int kSideStreams = 16;
/// Side stream `number`, 0 to kSideStreams - 1, of a GPU, for work that runs concurrently with the current stream, such
/// as copies. The streams are permanent, because the allocator reuses freed memory only within its stream: prefer them
/// to short-lived streams. Throws DeviceError.
TANDEM_API Stream side_stream(Device device, int number);

/// Makes streams current on their devices for this thread until destroyed. Freed memory is reused in the order of the
/// stream that was current at its allocation, so a tensor used on another stream must stay alive until that stream has
/// finished using it.
class TANDEM_API StreamGuard {
 public:
  /// Makes each stream current on its device.
  explicit StreamGuard(std::vector<Stream> streams);
  /// Makes one stream current on its device.
  explicit StreamGuard(Stream stream) : StreamGuard(std::vector{std::move(stream)}) {}
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  std::vector<Stream> streams_;
  const StreamGuard* previous_;
  friend Stream current_stream(Device device);
};

/// A CUDA event: a point in the work of a stream. A handle; thread-safe.
class TANDEM_API Event {
 public:
  /// `timed` enables milliseconds_since, at a small cost.
  explicit Event(Device device, bool timed = false);
  Device device() const;  ///< the GPU of the event
  /// Records the event after all work queued on `stream` so far.
  void record(const Stream& stream) const;
  /// Makes work queued on `stream` from now on wait for the event.
  void make_wait(const Stream& stream) const;
  bool is_completed() const;  ///< whether the recorded work has finished
  /// Blocks until the event has completed; throws errors of the work.
  void synchronize() const;
  /// GPU time between two timed events that have completed.
  double milliseconds_since(const Event& earlier) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Blocks until the calling thread's current stream on `device` has finished; throws its errors, including those that
/// kernels detected (an index out of range).
TANDEM_API void synchronize(Device device);

/// Whether float32 matrix products of the calling rank on GPUs may round their operands to TF32, which has a 10-bit
/// mantissa and runs several times as fast on tensor cores. Off by default.
TANDEM_API void set_allow_tf32(bool allow);
/// The setting of the calling rank.
TANDEM_API bool allow_tf32();

}}}  // namespace tandem::v0::cuda

// GPUs: what is there, streams and events.  In a build without CUDA, and on a machine without a GPU or its driver, there are none:
// such a build and such a machine compute on the CPU, and asking for a GPU is a DeviceError that says which of the two it is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// Whether this build of tandem knows CUDA at all.
TANDEM_API bool is_built();
/// GPUs that this process sees; 0 where is_built() is false, or without a driver.
TANDEM_API int device_count();
/// Throws DeviceError unless `device` is a GPU that is there.
TANDEM_API void check_device(Device device);

struct DeviceProperties {
  std::string name;
  std::string uuid;       ///< "GPU-b4c1...", of one GPU of the world
  int compute_major = 0;  ///< compute capability
  int compute_minor = 0;
  int num_multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes = 0;  ///< that one block can have
};
/// Throws DeviceError.
TANDEM_API const DeviceProperties& device_properties(Device device);

/// Of CUDA, as "13.0": what this build runs with, and the newest that the driver can.  Empty where is_built() is false.
struct Versions {
  std::string runtime;
  std::string driver;
};
TANDEM_API Versions versions();

/// A queue of work on one GPU, done in order.  Streams of one GPU run beside each other unless an event orders them.  A handle:
/// copies are the same stream.  Safe from many threads.
class TANDEM_API Stream {
 public:
  /// A new one.  Those of higher priority get the GPU first.  Throws DeviceError.
  explicit Stream(Device device, bool high_priority = false);

  Device device() const;
  void* handle() const;     ///< the cudaStream_t
  uint64_t number() const;  ///< another for each stream that there ever was, never 0
  /// Blocks until all that was queued is done; throws what failed.
  void synchronize() const;
  bool is_idle() const;
  friend bool operator==(const Stream&, const Stream&) = default;

 private:
  struct Impl;
  explicit Stream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  friend Stream current_stream(Device device);
  friend Stream side_stream(Device device, int number);
  std::shared_ptr<Impl> impl_;
};

/// The stream to which the calling thread's operations on `device` go: the one of the innermost StreamGuard, else one that the
/// device has for all threads.  Throws DeviceError.
TANDEM_API Stream current_stream(Device device);

inline constexpr int kSideStreams = 16;
/// One of the streams that a GPU has beside its current one for what runs at the same time, as copies do: the same for the same
/// number from 0 to kSideStreams - 1.  Memory that is given back is used again within its stream, so streams for a moment are taken from here.
/// Throws DeviceError.
TANDEM_API Stream side_stream(Device device, int number);

/// Makes streams current on their devices for this thread until destroyed.  Memory is used again in the order of the stream that
/// was current when it was made: a tensor that another stream reads or writes must live until that stream is done with it.
class TANDEM_API StreamGuard {
 public:
  explicit StreamGuard(std::vector<Stream> streams);
  explicit StreamGuard(Stream stream) : StreamGuard(std::vector{std::move(stream)}) {}
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  std::vector<Stream> streams_;
  const StreamGuard* previous_;
  friend Stream current_stream(Device device);
};

/// A point in a stream's work.  A handle, safe from many threads.
class TANDEM_API Event {
 public:
  /// `timed`: for milliseconds_since; costs a little.
  explicit Event(Device device, bool timed = false);
  Device device() const;
  /// Sets the point to what was queued on `stream` until now.
  void record(const Stream& stream) const;
  /// What is queued on `stream` from now on begins after the point was passed.
  void make_wait(const Stream& stream) const;
  bool is_completed() const;
  /// Blocks until the point was passed; throws what failed.
  void synchronize() const;
  /// Time on the GPU between two timed events that were passed.
  double milliseconds_since(const Event& earlier) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Blocks until the calling thread's current stream on `device` is done; throws what failed there, among it what kernels found
/// (an index out of range).
TANDEM_API void synchronize(Device device);

/// Whether products of float32 that the calling rank starts on GPUs may round their operands to tf32, whose mantissa has 10 bits
/// and which tensor cores multiply several times as fast.  At first they may not.
TANDEM_API void set_allow_tf32(bool allow);
TANDEM_API bool allow_tf32();

}}}  // namespace tandem::v0::cuda

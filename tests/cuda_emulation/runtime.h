// The host's side: devices, streams as queues of tasks, events.
//
// A call only queues.  A task runs when the host asks for it: force() runs a stream's tasks in order up to the one asked for, and a
// task that waits for an event forces the event's stream first.  One lock guards everything and is held while tasks run, except
// functions of the host and what waits for other ranks; who wants a stream that another thread is running waits.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <tandem/tests/cuda_emulation/arena.h>
#include <tandem/tests/cuda_emulation/kernel_run.h>
#include <tandem/tests/cuda_emulation/random.h>

namespace cuda_emulation {

inline constexpr unsigned int kNoArenas = 0;
inline constexpr size_t kMaxQueuedTasks = 4096;

struct Stream;

/// One cudaEventRecord: a place in a stream.
struct Record {
  std::shared_ptr<Stream> stream;
  uint64_t ticket = 0;
  bool done = false;
  std::chrono::steady_clock::time_point time;
};

struct Task {
  enum class Kind { kKernel, kMemory, kRecord, kWait, kHostFunction, kExternal };
  Kind kind;
  unsigned int arenas;         // bits of the devices whose memory is touched
  std::function<void()> work;  // but for kRecord, kWait.  kExternal: it may wait for others, and only force() runs it
  std::shared_ptr<Record> record;  // kRecord, kWait
};

struct Device {
  Device(int i, size_t limit) : id(i), memory("cuda:" + std::to_string(i), limit, true) {}
  int id;
  Arena memory;
  cudaError_t failed = cudaSuccess;
  std::atomic<bool> has_context = false;  // made by the first call on it
  std::set<int> peers;
};

/// What a stream that is captured was given, to be given to streams again and again.
struct Graph {
  Device* device;
  std::vector<Task> tasks;
  bool spoiled = false;  // by a call that cannot be captured
};

struct Stream {
  Device* device;
  unsigned int flags;
  int priority;
  std::deque<Task> tasks;
  uint64_t num_queued = 0;  // tickets given
  uint64_t num_completed = 0;
  bool busy = false;                // some thread runs its first task
  std::shared_ptr<Record> awaited;  // by that task
  std::shared_ptr<Graph> capture;   // where tasks go meanwhile
};

class Runtime {
 public:
  static Runtime& get();

  using Lock = std::unique_lock<std::mutex>;
  std::mutex& mutex() { return mutex_; }

  int num_devices() const { return static_cast<int>(devices_.size()); }
  Device& device(int i) { return *devices_[static_cast<size_t>(i)]; }
  Device* device_of(const void* p);
  Arena& pinned() { return pinned_; }

  /// Appends a task; eager order runs it at once.  A stream that is captured keeps it for its graph.
  uint64_t enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Task task);
  /// Runs the stream up to and with this ticket.
  void force(Lock& lock, Stream& stream, uint64_t ticket);
  /// At most one task; false if there was none.
  bool advance(Lock& lock, Stream& stream);
  void synchronize(Lock& lock, const Device& device);
  /// As the legacy default stream does: streams made with cudaStreamNonBlocking go on by themselves.
  void synchronize_blocking_streams(Lock& lock, const Device& device);

  /// Whether what is queued on `stream` from now on begins after `other` has passed the ticket.
  bool is_behind(const Stream& stream, const Stream& other, uint64_t ticket) const;

  std::shared_ptr<Stream> find(cudaStream_t stream);
  std::map<void*, std::shared_ptr<Stream>> streams;  // by handle, those that were not destroyed
  struct Event {
    unsigned int flags;
    int device;
    std::shared_ptr<Record> last;
  };
  std::map<void*, std::unique_ptr<Event>> events;
  std::map<void*, std::shared_ptr<Graph>> graphs;  // by handle; of those that can be launched too
  void add(const std::shared_ptr<Stream>& stream) { all_streams_.push_back(stream); }

  /// Opens exactly these devices' memory.
  void set_open(unsigned int arenas);
  void run_kernel(Device& device, const cudaLaunchConfig_t& config, const KernelCall& call);

  void refuse(const std::string& text);                // a report for a call that CUDA would accept
  void fail(Device& device, const std::string& text);  // ... and for what a task may not do
  std::string last_report;
  bool set_order(const std::string& order);
  bool checks = true;
  void reset();
  size_t num_queued_tasks() const;
  std::map<const void*, int> dynamic_shared_limits;  // by kernel

 private:
  enum class Mode { kLazy, kEager, kRandom };

  Runtime();
  void run_first(Lock& lock, Stream& stream);
  void advance_others(Lock& lock, const Stream& stream);
  void drop_drained_streams();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Device>> devices_;
  Arena pinned_;
  KernelRun kernel_run_;
  std::vector<std::shared_ptr<Stream>> all_streams_;  // destroyed ones with tasks too
  Mode mode_ = Mode::kLazy;
  Random random_;
  bool advancing_ = false;
  unsigned int open_ = 0;
};

/// What a call of the API holds: the lock, and open memory only as long as it lasts.
class Call {
 public:
  Call();
  ~Call() { Runtime::get().set_open(kNoArenas); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Runtime& runtime() { return Runtime::get(); }
  Runtime::Lock& lock() { return lock_; }

 private:
  Runtime::Lock lock_;
};

/// Remembers an error for cudaGetLastError and returns it.
cudaError_t result(cudaError_t error);
cudaError_t take_last_error(bool forget);

int current_device();
void set_current_device(int device);

/// Whether the stream is captured, which ends in an error for a call that cannot be.
bool spoils_capture(const Stream& stream);

/// Whether this thread is inside a function given to cudaLaunchHostFunc, which may not call the API.
bool inside_host_function();

/// Says on stderr which device memory the host touched; ends a kernel that touched what it must not.
void install_fault_handler();
/// Gives this thread a stack for the handler.
void need_signal_stack();

}  // namespace cuda_emulation

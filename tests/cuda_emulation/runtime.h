// The host side: devices, streams as queues of tasks, events.
//
// API calls only queue tasks. force() runs the tasks of a stream in order up to a given one; a task that waits for an
// event first forces the event's stream. One lock guards all state. It is held while tasks run, except for host
// functions and tasks that wait for other ranks. A thread that needs a stream on which another thread runs a task waits
// for it.
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

#include <cuda_emulation/control.h>
#include <cuda_runtime.h>
#include <tandem/tests/cuda_emulation/arena.h>
#include <tandem/tests/cuda_emulation/kernel_run.h>
#include <tandem/tests/cuda_emulation/random.h>

namespace cuda_emulation {

inline constexpr unsigned int kNoArenas = 0;
inline constexpr size_t kMaxQueuedTasks = 4096;
inline constexpr int kMultiprocessors = 4;  ///< of each device

struct Graph;
struct Stream;

/// One cudaEventRecord: a position in a stream.
struct Record {
  std::shared_ptr<Stream> stream;
  uint64_t ticket = 0;
  bool done = false;
  std::chrono::steady_clock::time_point time;
  // Of a captured stream: the position in its graph.
  bool is_captured = false;
  std::weak_ptr<Graph> graph;
  std::vector<uint64_t> reached;  // see Graph
};

struct Task {
  enum class Kind { kKernel, kMemory, kRecord, kWait, kHostFunction, kExternal };
  Kind kind;
  unsigned int arenas;             // bit set of the devices whose memory is accessed
  std::function<void()> work;      // empty for kRecord, kWait. kExternal: may wait for other ranks; run only by force()
  std::shared_ptr<Record> record;  // kRecord, kWait
  // Of a task in a graph: whether the graph may be launched on the stream now, and a call after a launch has queued the
  // task. Both may be empty.
  std::function<bool(const Stream& stream)> may_launch = {};
  std::function<void(const std::shared_ptr<Stream>& stream, uint64_t ticket)> queued = {};
};

struct Device {
  Device(int i, size_t limit) : id(i), memory("cuda:" + std::to_string(i), limit, true) {}
  int id;
  Arena memory;
  cudaError_t failed = cudaSuccess;
  std::atomic<bool> has_context = false;  // created by the first call on the device
  std::set<int> peers;
};

/// The tasks of captured streams, to be queued again by each launch. Branch 0 is the stream that began the capture; a
/// stream that waits for a captured event becomes another branch.
struct Graph {
  struct Node {
    size_t branch;
    Task task;
  };
  Device* device;
  std::vector<Node> nodes = {};  // in the order of their capture
  std::vector<std::weak_ptr<Stream>> captured = {};
  /// [a][b]: number of tasks of branch b that precede the next task of branch a.
  std::vector<std::vector<uint64_t>> reached = {};
  std::vector<std::shared_ptr<Stream>> branches = {};  // streams of launches, from branch 1 on
  bool is_capturing = true;
  bool spoiled = false;  // a call that cannot be captured was made

  void add(const std::shared_ptr<Stream>& stream);
  void add(size_t branch, Task task);
};

struct Stream {
  Device* device;
  std::deque<Task> tasks;
  uint64_t num_queued = 0;  // number of tickets issued
  uint64_t num_completed = 0;
  bool busy = false;                // a thread is running its first task
  std::shared_ptr<Record> awaited;  // the event that this task waits for
  std::shared_ptr<Graph> capture;   // not null during capture: collects the tasks
  size_t branch = 0;                // of `capture`
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

  /// Appends a task. A captured stream adds it to its graph. Tasks of a graph's launch are
  /// not counted.
  uint64_t enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Task task, bool is_replay = false);
  /// Runs the stream up to and including this ticket.
  void force(Lock& lock, Stream& stream, uint64_t ticket);
  /// Runs at most one task; false if there was none.
  bool advance(Lock& lock, Stream& stream);
  void synchronize(Lock& lock, const Device& device);

  /// Whether tasks queued on `stream` from now on start after `other` has completed the ticket.
  bool is_behind(const Stream& stream, const Stream& other, uint64_t ticket) const;

  std::shared_ptr<Stream> find(cudaStream_t stream);
  std::map<void*, std::shared_ptr<Stream>> streams;  // by handle, without destroyed streams
  struct Event {
    unsigned int flags;
    int device;
    std::shared_ptr<Record> last;
  };
  std::map<void*, std::unique_ptr<Event>> events;
  std::map<void*, std::shared_ptr<Graph>> graphs;  // by handle, including executable graphs
  void add(const std::shared_ptr<Stream>& stream) { all_streams_.push_back(stream); }

  /// Makes exactly these devices' memory accessible.
  void set_open(unsigned int arenas);
  void run_kernel(Device& device, const cudaLaunchConfig_t& config, const KernelCall& call);

  void refuse(const std::string& text);                // reports a call that CUDA would accept
  void fail(Device& device, const std::string& text);  // fails the device for an error in a task
  std::string last_report;
  bool set_order(const std::string& order);
  bool checks = true;
  bool kernels_run = true;
  uint64_t max_blocks = UINT64_MAX;
  std::string module_loading;
  std::unique_ptr<Traffic> traffic;  // null: accesses are not counted
  CallCounts counts;
  void reset();
  size_t num_queued_tasks() const;

 private:
  void count(const Task& task);
  enum class Mode { kLazy, kRandom };

  Runtime();
  void run_first(Lock& lock, Stream& stream);
  void advance_others(Lock& lock, const Stream& stream);
  void drop_drained_streams();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Device>> devices_;
  Arena pinned_;
  KernelRun kernel_run_;
  std::vector<std::shared_ptr<Stream>> all_streams_;  // including destroyed streams with tasks
  Mode mode_ = Mode::kLazy;
  Random random_;
  bool advancing_ = false;
  unsigned int open_ = 0;
};

/// Scope of an API call: holds the lock, and closes memory at its end.
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

/// Stores an error for cudaGetLastError and returns it.
cudaError_t result(cudaError_t error);
cudaError_t take_last_error();

int current_device();
void set_current_device(int device);

/// Whether the stream is being captured; then invalidates the capture, for a call that cannot be captured.
bool spoils_capture(const Stream& stream);

/// Whether this thread is inside a function given to cudaLaunchHostFunc, which may not call the API.
bool inside_host_function();

/// Installs the handler that reports accesses of host code to device memory, and ends kernels at invalid accesses.
void install_fault_handler();
/// Sets a signal stack for this thread.
void need_signal_stack();

}  // namespace cuda_emulation

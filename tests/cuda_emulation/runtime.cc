#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <cuda_emulation/control.h>
#include <tandem/tests/cuda_emulation/runtime.h>
#include <tandem/tests/cuda_emulation/symbols.h>

namespace cuda_emulation {
namespace {

constexpr size_t kPinnedLimit = size_t{4} << 30;
constexpr int kMaxDevices = 16;

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;

long number_from(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtol(text, nullptr, 10) : otherwise;
}

}  // namespace

int current_device() { return device_of_thread; }
void set_current_device(int device) {
  device_of_thread = device;
  Runtime::get().device(device).has_context = true;
}

// As in CUDA, any call creates a context on the thread's current GPU.
Call::Call() : lock_(Runtime::get().mutex()) {
  if (device_of_thread < runtime().num_devices()) {
    runtime().device(device_of_thread).has_context = true;
  }
}

bool inside_host_function() { return in_host_function; }

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

cudaError_t take_last_error() { return std::exchange(last_error, cudaSuccess); }

Runtime& Runtime::get() {
  static Runtime* runtime = new Runtime;  // never destroyed: streams may be used after main
  return *runtime;
}

Runtime::Runtime() : pinned_("pinned memory", kPinnedLimit, false) {
  const long count = std::clamp(number_from("TANDEM_EMULATED_GPUS", 2), 0L, static_cast<long>(kMaxDevices));
  const long mib = std::max(1L, number_from("TANDEM_EMULATED_GPU_MIB", 512));
  for (int i = 0; i < count; ++i) {
    devices_.push_back(std::make_unique<Device>(i, static_cast<size_t>(mib) << 20));
  }
  checks = number_from("TANDEM_EMULATED_CHECKS", 1) != 0;
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  module_loading = loading == nullptr ? "" : loading;
  const char* order = std::getenv("TANDEM_EMULATED_ORDER");
  if (order != nullptr && *order != '\0' && !set_order(order)) {
    std::fprintf(stderr, "cuda_emulation: TANDEM_EMULATED_ORDER=%s: lazy or random:SEED\n", order);
    std::abort();
  }
  install_fault_handler();
}

bool Runtime::set_order(const std::string& order) {
  const std::string random = "random:";
  if (order == "lazy") {
    mode_ = Mode::kLazy;
  } else if (order.rfind(random, 0) == 0 && order.size() > random.size() &&
             order.find_first_not_of("0123456789", random.size()) == std::string::npos) {
    mode_ = Mode::kRandom;
    random_ = Random(std::strtoull(order.c_str() + random.size(), nullptr, 10));
  } else {
    return false;
  }
  return true;
}

Device* Runtime::device_of(const void* p) {
  for (const auto& device : devices_) {
    if (device->memory.contains(p)) {
      return device.get();
    }
  }
  return nullptr;
}

std::shared_ptr<Stream> Runtime::find(cudaStream_t stream) {
  const auto it = streams.find(stream);
  return it == streams.end() ? nullptr : it->second;
}

void Runtime::set_open(unsigned int arenas) {
  if (arenas == open_) {
    return;
  }
  for (int i = 0; i < num_devices(); ++i) {
    device(i).memory.set_open((arenas >> i & 1U) != 0);
  }
  open_ = arenas;
}

bool spoils_capture(const Stream& stream) {
  if (stream.capture != nullptr) {
    stream.capture->spoiled = true;
  }
  return stream.capture != nullptr;
}

void Runtime::count(const Task& task) {
  switch (task.kind) {
    case Task::Kind::kKernel: ++counts.kernels; break;
    case Task::Kind::kMemory: ++counts.memory_tasks; break;
    case Task::Kind::kRecord: ++counts.event_records; break;
    case Task::Kind::kWait: ++counts.event_waits; break;
    case Task::Kind::kHostFunction:
    case Task::Kind::kExternal: break;
  }
}

uint64_t Runtime::enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, Task task, bool is_replay) {
  if (!is_replay) {
    count(task);
  }
  if (stream->capture != nullptr) {
    stream->capture->add(stream->branch, std::move(task));
    return stream->num_completed;
  }
  stream->tasks.push_back(std::move(task));
  const uint64_t ticket = ++stream->num_queued;
  if (stream->tasks.size() > kMaxQueuedTasks) {
    force(lock, *stream, ticket);
  }
  return ticket;
}

void Runtime::force(Lock& lock, Stream& stream, uint64_t ticket) {
  while (stream.num_completed < ticket) {
    if (stream.busy) {
      set_open(kNoArenas);
      changed_.wait(lock);
      continue;
    }
    advance_others(lock, stream);
    if (!stream.busy && stream.num_completed < ticket) {
      run_first(lock, stream);
    }
  }
}

bool Runtime::advance(Lock& lock, Stream& stream) {
  if (stream.busy || stream.tasks.empty()) {
    return false;
  }
  const Task& first = stream.tasks.front();
  if (first.kind == Task::Kind::kWait && !first.record->done) {
    const std::shared_ptr<Stream> awaited = first.record->stream;
    if (awaited->busy || advance(lock, *awaited)) {
      return true;
    }
  }
  if (first.kind == Task::Kind::kExternal) {
    return true;
  }
  advance_others(lock, stream);
  if (!stream.busy && !stream.tasks.empty()) {
    run_first(lock, stream);
  }
  return true;
}

/// Whether a task may block its thread until another rank or stream makes progress.
bool may_wait(const Task& task) {
  return task.kind == Task::Kind::kExternal || (task.kind == Task::Kind::kWait && !task.record->done);
}

// In random order, other ready tasks may run first, except tasks that may wait for the task that this thread is about
// to run.
void Runtime::advance_others(Lock& lock, const Stream& stream) {
  if (mode_ != Mode::kRandom || advancing_) {
    return;
  }
  advancing_ = true;
  std::vector<std::shared_ptr<Stream>> others;
  for (const auto& other : all_streams_) {
    if (other.get() != &stream && !other->tasks.empty()) {
      others.push_back(other);
    }
  }
  for (uint64_t tries = others.empty() ? 0 : random_.below(3); tries != 0; --tries) {
    Stream& other = *others[random_.below(others.size())];
    for (uint64_t left = random_.below(4);
         left != 0 && !other.busy && !other.tasks.empty() && !may_wait(other.tasks.front()); --left) {
      run_first(lock, other);
    }
  }
  advancing_ = false;
}

void Runtime::run_first(Lock& lock, Stream& stream) {
  const Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  stream.busy = true;
  const bool failed = stream.device->failed != cudaSuccess;
  switch (task.kind) {
    case Task::Kind::kRecord:
      task.record->done = true;
      task.record->time = std::chrono::steady_clock::now();
      break;
    case Task::Kind::kWait:
      stream.awaited = task.record;
      force(lock, *task.record->stream, task.record->ticket);
      stream.awaited = nullptr;
      break;
    case Task::Kind::kHostFunction:
    case Task::Kind::kExternal:
      if (!failed) {
        set_open(kNoArenas);
        const bool advancing = advancing_;
        advancing_ = false;
        lock.unlock();
        in_host_function = true;
        task.work();
        in_host_function = false;
        lock.lock();
        advancing_ = advancing;
      }
      break;
    case Task::Kind::kKernel:
    case Task::Kind::kMemory:
      if (!failed) {
        set_open(task.arenas);
        task.work();
      }
      break;
  }
  stream.busy = false;
  ++stream.num_completed;
  changed_.notify_all();
}

void Runtime::synchronize(Lock& lock, const Device& device) {
  {
    const auto streams_now = all_streams_;  // host functions may let other threads change the list
    for (const auto& stream : streams_now) {
      if (stream->device == &device) {
        force(lock, *stream, stream->num_queued);
      }
    }
  }
  drop_drained_streams();
}

bool Runtime::is_behind(const Stream& stream, const Stream& other, uint64_t ticket) const {
  std::map<const Stream*, uint64_t> known;  // per stream: the ticket that completes before the next task
  std::vector<std::pair<const Stream*, uint64_t>> found = {{&stream, stream.num_queued}};
  while (!found.empty()) {
    const auto [at, until] = found.back();
    found.pop_back();
    const uint64_t before = std::max(known[at], at->num_completed);
    if (until <= before) continue;
    known[at] = until;
    if (at->awaited != nullptr) found.emplace_back(at->awaited->stream.get(), at->awaited->ticket);
    uint64_t number = at->num_queued - at->tasks.size();
    for (const Task& task : at->tasks) {
      if (++number <= until && task.kind == Task::Kind::kWait)
        found.emplace_back(task.record->stream.get(), task.record->ticket);
    }
  }
  return std::max(known[&other], other.num_completed) >= ticket;
}

// The list has the only reference to a destroyed stream.
void Runtime::drop_drained_streams() {
  std::erase_if(all_streams_,
                [](const std::shared_ptr<Stream>& s) { return s.use_count() == 1 && s->tasks.empty() && !s->busy; });
}

void Runtime::run_kernel(Device& device, const cudaLaunchConfig_t& config, const KernelCall& call) {
  if (!kernels_run) {
    return;
  }
  KernelLaunch launch{&call,
                      config.gridDim,
                      config.blockDim,
                      config.dynamicSmemBytes,
                      {&device.memory},
                      {},
                      checks && call.is_instrumented(),
                      mode_ == Mode::kRandom ? &random_ : nullptr,
                      max_blocks,
                      traffic.get()};
  for (const auto& other : devices_) {
    if (other.get() != &device) {
      (device.peers.count(other->id) != 0 ? launch.arenas : launch.others).push_back(&other->memory);
    }
  }
  launch.arenas.push_back(&pinned_);
  unsigned int open = 1U << device.id;
  for (const int peer : device.peers) {
    open |= 1U << peer;
  }
  set_open(open);
  need_signal_stack();
  const cudaError_t error = kernel_run_.run(launch);
  if (error != cudaSuccess) {
    device.failed = error;
    last_report = kernel_run_.report();
  }
}

void Runtime::refuse(const std::string& text) {
  last_report = text;
  std::fprintf(stderr, "cuda_emulation: %s\n", text.c_str());
}

void Runtime::fail(Device& device, const std::string& text) {
  device.failed = cudaErrorIllegalAddress;
  refuse(text);
}

void Runtime::reset() {
  for (const auto& stream : all_streams_) {
    if (stream->device->failed == cudaSuccess || stream->busy) {
      continue;
    }
    for (Task& task : stream->tasks) {
      if (task.kind == Task::Kind::kRecord) {
        task.record->done = true;
      }
    }
    stream->num_completed += stream->tasks.size();
    stream->tasks.clear();
  }
  for (const auto& device : devices_) {
    device->failed = cudaSuccess;
  }
  last_report.clear();
}

size_t Runtime::num_queued_tasks() const {
  size_t sum = 0;
  for (const auto& stream : all_streams_) {
    sum += stream->tasks.size();
  }
  return sum;
}

std::string last_report() {
  Call call;
  return call.runtime().last_report;
}

void reset() {
  Call call;
  call.runtime().reset();
  last_error = cudaSuccess;
}

void fail(int device, const std::string& text) {
  Call call;
  call.runtime().fail(call.runtime().device(device), text);
}

bool set_order(const std::string& order) {
  Call call;
  return call.runtime().set_order(order);
}

void set_checks(bool on) {
  Call call;
  call.runtime().checks = on;
}

void run_on_device(cudaStream_t handle, std::function<void()> work) {
  Call call;
  const auto stream = call.runtime().find(handle);
  if (stream == nullptr || stream->device->failed != cudaSuccess) {
    return;
  }
  call.runtime().enqueue(call.lock(), stream,
                         {Task::Kind::kMemory, 1U << stream->device->id, std::move(work), nullptr});
}

size_t num_queued_tasks() {
  Call call;
  return call.runtime().num_queued_tasks();
}

CallCounts call_counts() {
  Call call;
  return call.runtime().counts;
}

std::string module_loading() {
  Call call;
  return call.runtime().module_loading;
}

void set_kernels_run(bool on) {
  Call call;
  call.runtime().kernels_run = on;
}

void set_max_blocks(uint64_t count) {
  Call call;
  call.runtime().max_blocks = count;
}

void start_counting() {
  Call call;
  call.runtime().traffic = std::make_unique<Traffic>();
}

std::vector<KernelTraffic> stop_counting() {
  Call call;
  const std::unique_ptr<Traffic> traffic = std::move(call.runtime().traffic);
  return traffic == nullptr ? std::vector<KernelTraffic>{} : traffic->records();
}

}  // namespace cuda_emulation

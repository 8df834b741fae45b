// A caching allocator.
//
// A request is rounded up to its size class: multiples of 64 bytes up to 256, then four steps per power of two, so that
// at most a fifth of a block is padding. Freed blocks are pushed on the stack of their class and are reused for its
// next requests. The free lists are not stored inside the blocks, because free memory is poisoned and may have left the
// CPU's caches. Blocks below 2 MiB come from the C library; larger ones are mapped at 2 MiB boundaries with
// MADV_HUGEPAGE, for fewer page faults and TLB misses.
//
// A GPU block is reused only on its stream, whose later work runs after all work that may still use the block. Other
// streams get the memory only after it was returned to the driver, which waits for the GPU.
//
// `reserved` counts bytes obtained from the system, `allocated` counts bytes held by tensors; a limit bounds
// `reserved`, as the size of a device's memory would. Cached blocks are returned to the system before OutOfMemory is
// thrown.
#include <tandem/tensor/allocator.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_memory.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tandem { inline namespace v0 {

namespace {

constexpr int kMaxCpuDevices = 64;
constexpr int kMaxGpus = 64;
constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMaxBytes = int64_t{1} << 46;  // half of a process's address space on x86-64 and AArch64
constexpr int kNumClasses = 4 + 4 * (46 - 8);

int size_class(int64_t num_bytes) {
  if (num_bytes <= 256) return static_cast<int>((num_bytes - 1) / 64);
  const uint64_t last = static_cast<uint64_t>(num_bytes - 1);
  const int exponent = std::bit_width(last) - 1;                    // 2^exponent <= last < 2^(exponent + 1)
  const int step = static_cast<int>((last >> (exponent - 2)) & 3);  // which quarter of that range
  return 4 + (exponent - 8) * 4 + step;
}

int64_t class_bytes(int index) {
  if (index < 4) return (index + 1) * 64;
  const int exponent = 8 + (index - 4) / 4;
  return (int64_t{1} << exponent) + (int64_t{(index - 4) % 4 + 1} << (exponent - 2));
}

/// For critical sections of some nanoseconds: one atomic operation where std::mutex needs two.
class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) {
      while (held_.load(std::memory_order_relaxed)) std::this_thread::yield();
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

/// Null if the system has no memory left.
void* system_allocate(Device device, int64_t num_bytes) {
  if (!device.is_cpu()) return cuda::system_allocate(device, num_bytes);
  const size_t size = static_cast<size_t>(num_bytes);
  if (num_bytes < kHugePage) return std::aligned_alloc(kAlignment, size);
  // Map one huge page more than needed, and unmap the parts before and after the aligned range.
  void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapped);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + size, kHugePage - before);
  madvise(begin + before, size, MADV_HUGEPAGE);  // only advice: may fail on a kernel without huge pages
  return begin + before;
}

void system_free(Device device, void* data, int64_t num_bytes) noexcept {
  if (!device.is_cpu()) return cuda::system_free(device, data);
  ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(num_bytes));
  if (num_bytes < kHugePage) {
    std::free(data);
  } else {
    munmap(data, static_cast<size_t>(num_bytes));
  }
}

/// Bytes available from the system; kMaxBytes if unknown.
int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %" SCNd64, &kib) == 1) return kib << 10;
  }
  return kMaxBytes;
}

/// The memory of one device. Thread-safe.
class DeviceMemory {
 public:
  Block allocate(Device device, int64_t num_bytes) {
    const uint64_t stream_id = device.is_cpu() ? 0 : cuda::current_stream_id(device);
    if (num_bytes > kMaxBytes) throw_out_of_memory(device, num_bytes, num_bytes);
    const int index = size_class(num_bytes);
    const int64_t size = class_bytes(index);
    void* data = nullptr;
    {
      std::lock_guard guard(lock_);
      std::vector<Free>& free = classes_[static_cast<size_t>(index)].free;
      auto found = free.rbegin();
      while (found != free.rend() && found->stream_id != stream_id) ++found;
      if (found != free.rend() && fits(stats_.allocated + size)) [[likely]] {
        data = found->data;
        free.erase(std::next(found).base());
        count_allocated(size);
      }
    }
    if (data == nullptr) data = obtain(device, num_bytes, index);
    if (device.is_cpu()) {
      ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(num_bytes));
      ASAN_POISON_MEMORY_REGION(static_cast<char*>(data) + num_bytes, static_cast<size_t>(size - num_bytes));
    }
    return {data, size, stream_id};
  }

  void deallocate(Device device, Block block) noexcept {
    const size_t index = static_cast<size_t>(size_class(block.num_bytes));
    if (device.is_cpu()) ASAN_POISON_MEMORY_REGION(block.data, static_cast<size_t>(block.num_bytes));
    std::lock_guard guard(lock_);
    for (cuda::GraphMemory* graph : graphs_) {
      if (graph->capturing == std::this_thread::get_id() && graph->stream_id != block.stream_id)
        return graph->held.push_back(block);
    }
    // Does not reallocate: obtain() has reserved capacity for every block.
    classes_[index].free.push_back({block.data, block.stream_id});
    stats_.allocated -= block.num_bytes;
  }

  MemoryStats stats() {
    std::lock_guard guard(lock_);
    return stats_;
  }
  void reset_peak() {
    std::lock_guard guard(lock_);
    stats_.peak_allocated = stats_.allocated;
  }
  void set_limit(int64_t num_bytes) {
    std::lock_guard guard(lock_);
    stats_.limit = num_bytes;
  }

  void empty_cache(Device device) {
    free_cached(device, [&](const Free& block) { return !is_of_graph(block); });
  }

  void add(cuda::GraphMemory* graph) {
    std::lock_guard guard(lock_);
    graphs_.push_back(graph);
  }
  /// Returns the graph's cached memory to the system: no other stream can use it.
  void remove(cuda::GraphMemory* graph) {
    {
      std::lock_guard guard(lock_);
      std::erase(graphs_, graph);
    }
    if (is_captured_here()) return;  // of another graph, which does not allow to wait for the device
    free_cached(graph->device, [&](const Free& block) { return block.stream_id == graph->stream_id; });
  }
  void set_capturing(cuda::GraphMemory& graph, std::thread::id thread) {
    std::lock_guard guard(lock_);
    graph.capturing = thread;
  }

 private:
  struct Free {
    void* data;
    uint64_t stream_id;
  };
  struct SizeClass {
    std::vector<Free> free;  // capacity for all num_blocks
    size_t num_blocks = 0;   // in use or free
  };

  /// Returns the cached blocks for which is_freed is true to the system.
  template <class F>
  void free_cached(Device device, F is_freed) {
    struct Freed {
      void* data;
      int64_t num_bytes;
    };
    std::vector<Freed> freed;
    bool is_capturing = false;
    for (int index = 0; index < kNumClasses; ++index) {
      const int64_t size = class_bytes(index);
      std::lock_guard guard(lock_);
      SizeClass& c = classes_[static_cast<size_t>(index)];
      const auto kept =
          std::stable_partition(c.free.begin(), c.free.end(), [&](const Free& block) { return !is_freed(block); });
      const auto num_freed = c.free.end() - kept;
      for (auto block = kept; block != c.free.end(); ++block) freed.push_back({block->data, size});
      c.free.erase(kept, c.free.end());
      c.num_blocks -= static_cast<size_t>(num_freed);
      stats_.reserved -= num_freed * size;
      is_capturing = is_captured();
    }
    // Waits once for all blocks, because each cudaFree waits too. During a graph capture only cudaFree waits: this wait
    // would invalidate the capture.
    if (!device.is_cpu() && !freed.empty() && !is_capturing) cuda::wait_for_work(device);
    for (const Freed& block : freed) system_free(device, block.data, block.num_bytes);
  }

  bool is_captured_here() {
    std::lock_guard guard(lock_);
    return std::any_of(graphs_.begin(), graphs_.end(),
                       [](const cuda::GraphMemory* graph) { return graph->capturing == std::this_thread::get_id(); });
  }
  bool is_captured() const {
    return std::any_of(graphs_.begin(), graphs_.end(),
                       [](const cuda::GraphMemory* graph) { return graph->capturing != std::thread::id(); });
  }
  bool is_of_graph(const Free& block) const {
    return std::any_of(graphs_.begin(), graphs_.end(),
                       [&](const cuda::GraphMemory* graph) { return graph->stream_id == block.stream_id; });
  }
  bool fits(int64_t num_bytes) const { return stats_.limit == 0 || num_bytes <= stats_.limit; }
  void count_allocated(int64_t size) {
    stats_.allocated += size;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  }

  /// A new block from the system; on failure retries once after emptying the cache.
  void* obtain(Device device, int64_t num_bytes, int index) {
    const int64_t size = class_bytes(index);
    for (const bool last_try : {false, true}) {
      if (last_try) {
        if (is_captured_here()) break;  // returning memory to the driver waits, which a captured stream does not allow
        empty_cache(device);
      }
      {
        std::lock_guard guard(lock_);
        if (!fits(stats_.reserved + size)) continue;
        SizeClass& c = classes_[static_cast<size_t>(index)];
        if (c.free.capacity() <= c.num_blocks) c.free.reserve(2 * c.num_blocks + 1);
        ++c.num_blocks;
        stats_.reserved += size;
      }
      void* data = system_allocate(device, size);  // without the lock: it may take milliseconds
      std::lock_guard guard(lock_);
      if (data != nullptr) {
        count_allocated(size);
        return data;
      }
      --classes_[static_cast<size_t>(index)].num_blocks;
      stats_.reserved -= size;
    }
    throw_out_of_memory(device, num_bytes, size);
  }

  [[noreturn]] void throw_out_of_memory(Device device, int64_t num_bytes, int64_t size) {
    const MemoryStats now = stats();
    throw OutOfMemory(with_module_scope(str(
        "allocate: ", device, " is out of memory\n  requested  ", num_bytes, " bytes (", size,
        " rounded up)\n  allocated  ", now.allocated, " bytes\n  limit      ",
        now.limit == 0 ? std::string("none; the operating system refused") : std::to_string(now.limit) + " bytes")));
  }

  SpinLock lock_;
  MemoryStats stats_;
  std::array<SizeClass, kNumClasses> classes_;
  std::vector<cuda::GraphMemory*> graphs_;
};

/// The memory of all devices. One of the library's few process-wide objects, because memory belongs to the process.
struct Registry {
  std::atomic<int> num_cpu_devices{1};
  std::array<DeviceMemory, kMaxCpuDevices> cpu;
  std::array<DeviceMemory, kMaxGpus> gpus;
};

Registry& registry() {
  // Never destroyed: tensors with static storage duration free their memory when the process ends.
  static Registry* const instance = [] {
    const int64_t n = env_int("TANDEM_CPU_DEVICES").value_or(1);
    TANDEM_CHECK(ValueError, n >= 1 && n <= kMaxCpuDevices, "TANDEM_CPU_DEVICES: ", n, " is not in 1 .. ",
                 kMaxCpuDevices);
    auto* made = new Registry;
    made->num_cpu_devices = static_cast<int>(n);
    return made;
  }();
  return *instance;
}

DeviceMemory& memory_of(Device device) {
  Registry& devices = registry();
  if (!device.is_cpu()) {
    cuda::check_device(device);
    return devices.gpus[static_cast<size_t>(device.index)];
  }
  const int count = devices.num_cpu_devices.load(std::memory_order_relaxed);
  TANDEM_CHECK(DeviceError, device.index >= 0 && device.index < count, device, ": there is no such device; ", count,
               count == 1 ? " CPU device is" : " CPU devices are",
               " declared, see TANDEM_CPU_DEVICES and set_cpu_device_count");
  return devices.cpu[static_cast<size_t>(device.index)];
}

}  // namespace

int cpu_device_count() { return registry().num_cpu_devices.load(std::memory_order_relaxed); }

void set_cpu_device_count(int n) {
  TANDEM_CHECK(ValueError, n >= 1 && n <= kMaxCpuDevices, "set_cpu_device_count: ", n, " is not in 1 .. ",
               kMaxCpuDevices);
  Registry& devices = registry();
  for (int i = n; i < devices.num_cpu_devices; ++i) {
    const int64_t allocated = devices.cpu[static_cast<size_t>(i)].stats().allocated;
    TANDEM_CHECK(StateError, allocated == 0, "set_cpu_device_count: ", n, " would remove ", Device(DeviceType::kCPU, i),
                 ", where tensors hold ", allocated, " bytes");
  }
  devices.num_cpu_devices = n;
}

Block allocate(Device device, int64_t num_bytes) {
  DeviceMemory& memory = memory_of(device);
  TANDEM_CHECK(ValueError, num_bytes >= 0, "allocate: num_bytes is ", num_bytes, ", expected at least 0");
  if (num_bytes == 0) return {};
  return memory.allocate(device, num_bytes);
}

void deallocate(Device device, Block block) noexcept {
  if (block.data == nullptr) return;
  // No check: the block proves that the device exists.
  auto* memories = device.is_cpu() ? registry().cpu.data() : registry().gpus.data();
  memories[device.index].deallocate(device, block);
}

int64_t block_bytes(int64_t num_bytes) {
  if (num_bytes <= 0) return 0;
  return num_bytes > kMaxBytes ? num_bytes : class_bytes(size_class(num_bytes));
}

MemoryStats memory_stats(Device device) { return memory_of(device).stats(); }

int64_t free_memory(Device device) {
  const MemoryStats stats = memory_of(device).stats();
  if (stats.limit != 0) return std::max<int64_t>(0, stats.limit - stats.allocated);
  const int64_t available = device.is_cpu() ? available_bytes() : cuda::available_bytes(device);
  return available + stats.reserved - stats.allocated;
}

bool shares_free_memory(Device device) { return device.is_cpu() && memory_of(device).stats().limit == 0; }

void reset_peak_memory(Device device) { memory_of(device).reset_peak(); }

void set_memory_limit(Device device, int64_t num_bytes) {
  TANDEM_CHECK(ValueError, num_bytes >= 0, "set_memory_limit: ", num_bytes, " is negative");
  memory_of(device).set_limit(num_bytes);
}

void empty_cache(Device device) { memory_of(device).empty_cache(device); }

namespace cuda {

GraphMemory::GraphMemory(Device on, uint64_t id) : device(on), stream_id(id) { memory_of(device).add(this); }

GraphMemory::~GraphMemory() {
  memory_of(device).remove(this);
  release();
}

void GraphMemory::set_capturing(bool on) {
  memory_of(device).set_capturing(*this, on ? std::this_thread::get_id() : std::thread::id());
}

void GraphMemory::release() noexcept {
  for (const Block& block : std::exchange(held, {})) deallocate(device, block);
}

}  // namespace cuda

}}  // namespace tandem::v0

#include <tandem/tests/cuda_emulation/library.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <cuda_emulation/control.h>
#include <tandem/tests/cuda_emulation/runtime.h>

namespace cuda_emulation {
namespace {

struct LibraryCalls {
  std::mutex mutex;
  std::vector<std::string> names;
  std::map<std::string, size_t> counts;
  std::map<std::pair<std::string, size_t>, int> failing;  // (name, number of earlier calls of that name) -> status
};

LibraryCalls& recorded() {
  static LibraryCalls* const calls = new LibraryCalls;  // never destroyed: libraries may be called after main
  return *calls;
}

}  // namespace

void end_process(const std::string& text) {
  std::fprintf(stderr, "cuda_emulation: %s\n", text.c_str());
  std::abort();
}

int record_library_call(const std::string& call) {
  LibraryCalls& calls = recorded();
  std::lock_guard lock(calls.mutex);
  const auto failing = calls.failing.find({call, calls.counts[call]++});
  calls.names.push_back(call);
  return failing == calls.failing.end() ? 0 : failing->second;
}

std::vector<std::string> library_calls() {
  LibraryCalls& calls = recorded();
  std::lock_guard lock(calls.mutex);
  return calls.names;
}

void forget_library_calls() {
  LibraryCalls& calls = recorded();
  std::lock_guard lock(calls.mutex);
  calls.names.clear();
  calls.counts.clear();
  calls.failing.clear();
}

void fail_library_call(const std::string& name, size_t occurrence, int status) {
  LibraryCalls& calls = recorded();
  std::lock_guard lock(calls.mutex);
  calls.failing[{name, occurrence}] = status;
}

void check_device_memory(const std::string& what, const void* p, size_t num_bytes, size_t alignment, int device) {
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex());
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0) {
    end_process(what + " is not aligned to " + std::to_string(alignment) + " bytes");
  }
  const Arena& memory = runtime.device(device).memory;
  if (!memory.contains(p) || !memory.live(p, num_bytes)) {
    end_process(what + ": " + std::to_string(num_bytes) +
                " bytes are not inside a live block of cuda:" + std::to_string(device));
  }
}

void check_host_memory(const std::string& what, const void* p) {
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex());
  if (p == nullptr || runtime.device_of(p) != nullptr) end_process(what + " is not in host memory");
}

void check_disjoint(const std::string& what_a, const void* a, size_t a_bytes, const std::string& what_b, const void* b,
                    size_t b_bytes) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a), begin_b = reinterpret_cast<uintptr_t>(b);
  if (begin_a < begin_b + b_bytes && begin_b < begin_a + a_bytes) end_process(what_a + " overlaps " + what_b);
}

void compute_on(cudaStream_t stream, std::function<void()> work) {
  run_on_device(stream, [work = std::move(work)] {
    if (Runtime::get().kernels_run) work();
  });
}

int device_of(const std::string& call, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  std::lock_guard lock(runtime.mutex());
  const auto found = runtime.find(stream);
  if (found == nullptr) end_process(call + ": no such stream");
  return found->device->id;
}

}  // namespace cuda_emulation

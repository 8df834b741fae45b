#include <tandem/tensor/bandwidth.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 {

namespace {

constexpr int64_t kMaxCopied = int64_t{64} << 20;
constexpr int64_t kMinBytes = int64_t{1} << 20;
constexpr int kCopies = 5;  // the first only touches the memory

/// Cached measurements, by the names of the devices. Process-wide, because bandwidth is a property of the machine.
struct Measured {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, double> bytes_per_second;
};

Measured& measured() {
  static Measured* const instance = new Measured;
  return *instance;
}

double measure(Device from, Device to) {
  // A third: source and target may be on one device, and size classes add up to a quarter.
  const int64_t free = std::min(free_memory(from), free_memory(to)) / 3;
  const int64_t num_bytes = std::min(kMaxCopied, free);
  if (num_bytes < kMinBytes) return 0;
  const Tensor source = zeros({num_bytes}, {kUInt8, from});
  const Tensor target = empty({num_bytes}, {kUInt8, to});
  double best = 0;
  for (int i = 0; i < kCopies; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    primitives::copy(source, target);
    for (const Device device : {from, to}) {
      if (!device.is_cpu()) cuda::synchronize(device);
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i > 0) best = std::max(best, static_cast<double>(num_bytes) / time.count());
  }
  return best;
}

}  // namespace

double device_bandwidth(Device from, Device to) {
  const auto key = std::pair(to_string(from), to_string(to));
  std::lock_guard lock(measured().mutex);  // concurrent measurements would disturb each other
  const auto found = measured().bytes_per_second.find(key);
  if (found != measured().bytes_per_second.end()) return found->second;
  const double bandwidth = measure(from, to);
  if (bandwidth > 0) measured().bytes_per_second[key] = bandwidth;
  return bandwidth;
}

}}  // namespace tandem::v0

#include <tandem/tensor/memory_summary.h>

#include <algorithm>
#include <cstddef>

#include <tandem/base/format.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 {

namespace {

constexpr size_t kLargest = 10;
constexpr size_t kDeviceWidth = 6;
constexpr size_t kNumberWidth = 12;

std::string left(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

std::string memory_summary(const std::vector<std::pair<std::string, Tensor>>& named) {
  std::string text = left("device", kDeviceWidth);
  for (const char* column : {"allocated", "peak", "reserved", "limit"}) text += right(column, kNumberWidth);
  std::vector<Device> devices;
  for (int i = 0; i < cpu_device_count(); ++i) devices.emplace_back(DeviceType::kCPU, i);
  for (int i = 0; i < cuda::device_count(); ++i) devices.push_back(Device::cuda(i));
  for (const Device device : devices) {
    const MemoryStats stats = memory_stats(device);
    text += '\n';
    text += left(to_string(device), kDeviceWidth);
    for (const int64_t bytes : {stats.allocated, stats.peak_allocated, stats.reserved})
      text += right(format_bytes(bytes), kNumberWidth);
    text += right(stats.limit == 0 ? "none" : format_bytes(stats.limit), kNumberWidth);
  }

  std::vector<const std::pair<std::string, Tensor>*> largest;
  for (const auto& entry : named) {
    if (entry.second.defined()) largest.push_back(&entry);
  }
  if (largest.empty()) return text;
  for (int i = 0; i < cpu_device_count(); ++i) {
    const Device device(DeviceType::kCPU, i);
    int64_t bytes = 0;
    size_t count = 0;
    for (const auto* entry : largest) {
      if (entry->second.device() != device) continue;
      bytes += entry->second.num_bytes();
      ++count;
    }
    if (count > 0) text += str("\n", count, " named tensors on ", device, ": ", format_bytes(bytes));
  }
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto* a, const auto* b) { return a->second.num_bytes() > b->second.num_bytes(); });
  if (largest.size() > kLargest) largest.resize(kLargest);
  size_t width = 0;
  for (const auto* entry : largest) width = std::max(width, entry->first.size());
  for (const auto* entry : largest) {
    text += "\n  " + left(entry->first, width) + right(format_bytes(entry->second.num_bytes()), kNumberWidth) + "  " +
            describe(entry->second);
  }
  return text;
}

}}  // namespace tandem::v0

#include <tandem/examples/support/devices.h>

#include <tandem/tandem.h>

#include <algorithm>
#include <cmath>

namespace td = tandem;

namespace examples {

int parse_device_flags(int argc, char** argv, const std::string& description, std::vector<ExampleFlag> extra,
                       DeviceFlags& flags) {
  extra.push_back({.name = "--device",
                   .help = "type of the devices; auto: GPUs if there are enough, else CPU devices",
                   .value = &flags.device,
                   .choices = {"cpu", "cuda", "auto"}});
  extra.push_back(
      {.name = "--num-devices", .help = "number of devices", .value = &flags.num_devices, .min = 2, .max = 16});
  return parse_flags(argc, argv, description, extra);
}

std::vector<td::Device> declare_devices(const DeviceFlags& flags) {
  const auto n = static_cast<int>(flags.num_devices);
  const bool are_gpus = flags.device == "cuda" || (flags.device == "auto" && td::cuda::device_count() >= n);
  if (!are_gpus) td::set_cpu_device_count(n);
  std::vector<td::Device> devices;
  for (int i = 0; i < n; ++i) devices.push_back(are_gpus ? td::Device::cuda(i) : td::Device(td::DeviceType::kCPU, i));
  return devices;
}

MemoryLimit::MemoryLimit(td::Device device, int64_t num_bytes) : device_(device) {
  td::set_memory_limit(device, td::memory_stats(device).allocated + num_bytes);
}

MemoryLimit::~MemoryLimit() { td::set_memory_limit(device_, 0); }

PeakMemory::PeakMemory(td::Device device) : device_(device), before_(td::memory_stats(device).allocated) {
  td::reset_peak_memory(device);
}

int64_t PeakMemory::bytes() const { return td::memory_stats(device_).peak_allocated - before_; }

double largest_difference(const td::Tensor& a, const td::Tensor& b) {
  constexpr int64_t kBlock = int64_t{1} << 20;  // a float64 copy of the whole tensor may not fit into memory
  const td::Tensor x = a.flatten();
  const td::Tensor y = b.flatten();
  double largest = 0;
  for (int64_t begin = 0; begin < x.numel(); begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, x.numel());
    const td::Tensor difference =
        x.slice(0, begin, end).cpu().to(td::kFloat64) - y.slice(0, begin, end).cpu().to(td::kFloat64);
    const double square = (difference * difference).max().item();
    if (std::isnan(square)) return square;
    largest = std::max(largest, square);
  }
  return std::sqrt(largest);
}

}  // namespace examples

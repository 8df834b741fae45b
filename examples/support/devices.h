// Devices of the multi-device examples: flags, memory limits and peak memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/examples/support/flags.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/tensor.h>

namespace examples {

struct DeviceFlags {
  std::string device = "cpu";
  int64_t num_devices = 4;
};

/// parse_flags() with --device, --num-devices and the example's `extra` flags.
int parse_device_flags(int argc, char** argv, const std::string& description, std::vector<ExampleFlag> extra,
                       DeviceFlags& flags);

/// The devices that the flags select: cpu, cpu:1, ..., which are created, or cuda:0, cuda:1, ...
std::vector<tandem::Device> declare_devices(const DeviceFlags& flags);

/// While in scope, limits the free memory of a device to `num_bytes`.
class MemoryLimit {
 public:
  MemoryLimit(tandem::Device device, int64_t num_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  tandem::Device device_;
};

/// Peak memory of tensors on a device since the construction, without the tensors that existed before.
class PeakMemory {
 public:
  explicit PeakMemory(tandem::Device device);
  int64_t bytes() const;

 private:
  tandem::Device device_;
  int64_t before_;
};

/// The largest difference of two elements; the tensors may be on different devices. NaN if an element is NaN.
double largest_difference(const tandem::Tensor& a, const tandem::Tensor& b);

}  // namespace examples

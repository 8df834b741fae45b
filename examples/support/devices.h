// The devices of an example: its flags, and what their memory holds.
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

/// parse_flags for an example of several devices with flags of its own.
int parse_device_flags(int argc, char** argv, const std::string& description, std::vector<OwnFlag> own,
                       DeviceFlags& flags);

/// The devices that the flags say: cpu, cpu:1, ..., which are declared, or cuda:0, cuda:1, ...
std::vector<tandem::Device> declare_devices(const DeviceFlags& flags);

/// Leaves a device room for so many bytes more than its tensors take now, while it lives.
class MemoryLimit {
 public:
  MemoryLimit(tandem::Device device, int64_t num_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  tandem::Device device_;
};

/// What tensors on a device took since this was made, at most.
class PeakMemory {
 public:
  explicit PeakMemory(tandem::Device device);
  int64_t bytes() const;

 private:
  tandem::Device device_;
  int64_t before_;
};

/// The largest difference of two elements, wherever the tensors are; not a number where one of them is not.
double largest_difference(const tandem::Tensor& a, const tandem::Tensor& b);

}  // namespace examples

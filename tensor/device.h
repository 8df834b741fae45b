// Devices. A process may declare several CPU devices; like GPUs, they never share tensors implicitly.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Kind of a device.
enum class DeviceType : int8_t { kCPU, kCUDA };
using enum DeviceType;

/// Where a tensor's memory is. "cpu" is cpu:0.
struct TANDEM_API Device {
  DeviceType type = kCPU;  ///< CPU or CUDA GPU
  int8_t index = 0;        ///< number among the devices of its kind

  Device() = default;
  /// An index outside [0, 127] becomes -1, which no device has.
  constexpr Device(DeviceType device_type, int device_index = 0)
      : type(device_type),
        index(device_index >= 0 && device_index <= 127 ? static_cast<int8_t>(device_index) : int8_t{-1}) {}
  /// Parses "cpu", "cpu:1", "cuda", "cuda:0". Throws ValueError for other texts; whether the device exists is checked
  /// on first use.
  Device(const std::convertible_to<std::string_view> auto& text) : Device(parse(text)) {}

  /// GPU number `gpu`; whether it exists is checked on first use.
  static Device cuda(int gpu = 0) { return {kCUDA, gpu}; }

  bool is_cpu() const { return type == kCPU; }  ///< whether it is a CPU device
  friend bool operator==(const Device&, const Device&) = default;

 private:
  static Device parse(std::string_view text);
};

/// "cpu", "cpu:1", "cuda:0".
TANDEM_API std::string to_string(Device device);
TANDEM_API std::ostream& operator<<(std::ostream& out, Device device);

/// Number of CPU devices: the last set_cpu_device_count, else the environment variable TANDEM_CPU_DEVICES, else 1.
TANDEM_API int cpu_device_count();
/// Declares cpu:0 .. cpu:(n-1). Throws ValueError unless 1 <= n <= 64, StateError if this removes a device that holds
/// tensors.
TANDEM_API void set_cpu_device_count(int n);

}}  // namespace tandem::v0

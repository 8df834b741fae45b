#include <tandem/tensor/device.h>

#include <charconv>
#include <ostream>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

Device Device::parse(std::string_view text) {
  Device device;
  std::string_view rest = text;
  if (rest.starts_with("cpu")) {
    rest.remove_prefix(3);
  } else {
    TANDEM_CHECK(ValueError, rest.starts_with("cuda"), "Device: '", text, "' is not one of cpu, cpu:N, cuda, cuda:N");
    device.type = kCUDA;
    rest.remove_prefix(4);
  }
  if (rest.empty()) return device;
  int number = -1;
  const char* end = rest.data() + rest.size();
  // A digit must follow the colon: from_chars alone would take "-0".
  const bool has_number = rest.size() > 1 && rest[0] == ':' && rest[1] >= '0' && rest[1] <= '9';
  TANDEM_CHECK(ValueError,
               has_number && std::from_chars(rest.data() + 1, end, number).ptr == end && number <= 127 && number >= 0,
               "Device: '", text, "' is not one of cpu, cpu:N, cuda, cuda:N");
  device.index = static_cast<int8_t>(number);
  return device;
}

std::string to_string(Device device) {
  if (device.is_cpu()) return device.index == 0 ? "cpu" : "cpu:" + std::to_string(device.index);
  return "cuda:" + std::to_string(device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}}  // namespace tandem::v0

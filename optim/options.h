// Checking and loading options of optimizers and schedules.  Private to optim/.
#pragma once

#include <cmath>
#include <string>

#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace optim {

/// What is wrong with a number that must be finite and >= 0; "" if nothing is.
inline std::string not_negative(const char* name, double value) {
  return std::isfinite(value) && value >= 0 ? "" : str(name, " is ", value, ", expected a finite number >= 0");
}

/// Reads the option `name` below `path`; leaves `value` as it is where there is none of its type.
template <class T>
void read_into(StateReader& reader, const std::string& path, const char* name, T& value) {
  if (const T* saved = reader.read<T>(str(path, ".", name))) value = *saved;
}

}}}  // namespace tandem::v0::optim

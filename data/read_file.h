// A whole file in memory.  Private to data/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::inline v0::data {

/// The bytes of the file.  Throws IoError, its text beginning with `op`, naming the path and the system's reason, where
/// it cannot be read.
std::vector<uint8_t> read_file(const char* op, const std::string& path);

}  // namespace tandem::inline v0::data

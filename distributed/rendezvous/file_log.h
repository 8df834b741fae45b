// File format of a FileStore: eight magic bytes, then records. A record consists of the FNV-1a checksum of its other
// bytes, a kind, and two texts with their lengths. The file is changed only by holders of the write lock, and only at
// its end, so the checksums show where the complete records end. Private to distributed/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace file_log {

enum class RecordKind : uint32_t { kSet = 1, kDelete, kEnd };

/// kSet: key, value. kDelete: key. kEnd: decimal rank, "L" or "F" and the reason.
struct Record {
  RecordKind kind = RecordKind::kSet;
  std::string key;
  std::string value;
};

inline constexpr std::string_view kMagic = "tandem 1";

TANDEM_API std::string encode(const Record& record);
/// Calls f with each complete record at the beginning of `bytes`. Returns the number of bytes of these records.
TANDEM_API size_t parse(std::string_view bytes, FunctionRef<void(const Record& record)> f);

}}}}  // namespace tandem::v0::distributed::file_log

// What the file of a FileStore holds: eight bytes of magic, then records, each the FNV-1a of the rest, a kind, and two
// texts with their lengths. Only holders of the write lock change it, and only at its end, so that the checksums tell
// how far it is whole. Private to distributed/.
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
/// Calls f with each whole record at the beginning of `bytes`, and returns how many bytes those are.
TANDEM_API size_t parse(std::string_view bytes, FunctionRef<void(const Record& record)> f);

}}}}  // namespace tandem::v0::distributed::file_log

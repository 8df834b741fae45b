// Tuning files: measured choices of algorithms. A run with TANDEM_TUNING_WRITE=FILE measures and writes its choices to
// the file. Runs with TANDEM_TUNING_FILE=FILE read them, so that all runs with one file choose the same algorithms and
// have the same results.
//
// The first line of a file is `tandem tuning 1`; each other line is `<key> = <value>`, empty, or a comment that begins
// with #. If a key occurs twice, the first line counts.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// The choices of a tuning file. Concurrent reads are thread-safe.
class TANDEM_API Tuning {
 public:
  /// Empty.
  Tuning() = default;
  /// Throws IoError if the file cannot be read, ValueError for a malformed line.
  explicit Tuning(const std::string& path);
  /// The file named by the environment variable TANDEM_TUNING_FILE, read at the first call; empty if the variable is
  /// unset.
  static const Tuning& from_environment();

  /// The value of the key; null if the key does not exist.
  const std::string* find(const std::string& key) const;
  /// Whether a key begins with `prefix`.
  bool has_prefix(const std::string& prefix) const;
  /// Hash of all choices, compared between ranks; 0 if empty.
  uint64_t hash() const;

  /// Appends a choice to a file; creates the file if it does not exist. Throws IoError.
  static void append(const std::string& path, const std::string& key, const std::string& value);

 private:
  std::map<std::string, std::string> choices_;
};

}}  // namespace tandem::v0

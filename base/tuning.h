// Measured choices of algorithms.  A clock decides once, where somebody asks for it (TANDEM_TUNE): what was measured is written into a
// file, and holds where the file is named, so that runs with one file have one result.
//
// A file's first line is `tandem tuning 1`; the others are `<key> = <value>`, or empty, or begin with #.  The first line of a key holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A file of choices.  Safe to read from many threads.
class TANDEM_API Tuning {
 public:
  /// Without choices.
  Tuning() = default;
  /// Throws IoError where the file cannot be read, ValueError at a line that is none of these.
  explicit Tuning(const std::string& path);
  /// The file that the variable TANDEM_TUNING names, read at the first call; without choices where it is unset.
  static const Tuning& named();

  /// The key's value; null where there is none.
  const std::string* find(const std::string& key) const;
  /// Whether a key begins so.
  bool has_prefix(const std::string& prefix) const;
  /// Of all choices, for ranks to compare; 0 without any.
  uint64_t hash() const;

  /// Appends a choice to a file, which is made where there is none.  Throws IoError.
  static void append(const std::string& path, const std::string& key, const std::string& value);

 private:
  std::map<std::string, std::string> choices_;
};

}}  // namespace tandem::v0

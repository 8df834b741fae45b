// A lock on a folder, against a second run that would write the same files.
#pragma once

#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Holds an exclusive lock (flock) on a file while it lives. The kernel releases the lock when the process ends.
class TANDEM_API LockFile {
 public:
  /// Locks FOLDER/NAME, and creates the file if it is missing; it is never removed. Throws StateError "OP: 'FOLDER' is
  /// in use by another run", with the name of the other process, if another LockFile has locked it, and IoError if the
  /// file cannot be opened. On a file system without locks it locks nothing.
  LockFile(const char* op, const std::string& folder, const std::string& name = "lock");
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  int descriptor_;
};

}}  // namespace tandem::v0

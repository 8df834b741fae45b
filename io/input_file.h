// A file opened for reading.  Private to io/.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/io/atomic_file.h>

namespace tandem::inline v0::io {

/// Reads by position; closes the file.  Every member throws IoError with the path and the system's reason.
class InputFile {
 public:
  /// `op` begins error texts.  Takes regular files alone, so that a size is known and reading never waits.
  InputFile(const char* op, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  /// Reads bytes [offset, offset + num_bytes).
  void read(void* out, int64_t offset, int64_t num_bytes) const;
  /// The whole file.
  std::string text() const;
  /// Of the whole file, read piece by piece.
  FileDigest digest() const;

 private:
  const char* op_;
  std::string path_;
  int descriptor_;
  int64_t size_ = 0;
};

}  // namespace tandem::inline v0::io

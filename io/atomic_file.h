// A file that appears whole or not at all.  Private to io/.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::inline v0::io {

/// Collects bytes in a temporary file beside `path`, which `commit` forces to disk and renames to `path`; without
/// commit the destructor removes it and `path` stays as it was.  Every member throws IoError with the path and the
/// system's reason.
class AtomicFile {
 public:
  /// `op` begins error texts.  Opens "<path>.tmp<k>" with the first k that is free.
  AtomicFile(const char* op, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t num_bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what, const std::string& file) const;

  const char* op_;
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace tandem::inline v0::io

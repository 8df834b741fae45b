// A file that appears whole or not at all.  Private to io/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace io {

/// What a file holds, for comparing.
struct FileDigest {
  int64_t num_bytes = 0;
  uint32_t crc32 = 0;  ///< zlib's
  bool operator==(const FileDigest&) const = default;
};

/// Of the whole file, read piece by piece.
FileDigest digest_of(const InputFile& file);

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
  /// Of what was written: taken from memory, so that it tells damage on the way to the disk too.
  const FileDigest& digest() const { return digest_; }
  void commit();

 private:
  [[noreturn]] void fail(const char* what, const std::string& file) const;

  const char* op_;
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  FileDigest digest_;
};

/// Whether `name` is one that AtomicFile gives its temporaries.
bool is_temporary(const std::string& name);

/// Forces the entries of a folder (names that were made, renamed or removed) to disk.  `op` begins the text of the
/// IoError.
void sync_folder(const char* op, const std::string& folder);

}}}  // namespace tandem::v0::io

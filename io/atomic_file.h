// Atomic replacement of a file. Private to io/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace io {

/// Size and checksum of a file's bytes.
struct FileDigest {
  int64_t num_bytes = 0;
  uint32_t crc32 = 0;  ///< CRC-32 of zlib
  bool operator==(const FileDigest&) const = default;
};

/// The digest of the whole file, which is read in pieces of 1 MiB.  Throws IoError.
FileDigest digest_of(const InputFile& file);

/// Writes a temporary file in the folder of `path`; `commit` flushes it to disk (fsync) and renames it to `path`.
/// Without commit the destructor removes it and `path` is unchanged. Every member throws IoError with the path and the
/// system's reason. Not thread-safe.
class AtomicFile {
 public:
  /// `op` begins error texts. Creates "<path>.tmp<k>" with the smallest k that no other writer uses, and removes the
  /// temporary files of `path` whose writers were killed.
  AtomicFile(const char* op, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t num_bytes);
  /// The digest of the bytes passed to write(). It is computed from memory, so it also detects corruption by the disk.
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

/// Whether `name` is the name of a temporary file of AtomicFile.
bool is_temporary(const std::string& name);

/// Removes the temporary file unless its writer still runs. Ignores errors.
void remove_stale_temporary(const std::string& path);

}}}  // namespace tandem::v0::io

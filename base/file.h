// Files: reading regular files by position, and writing, every failure of which is an IoError.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A regular file that is open for reading; symbolic links are followed.  Every member throws IoError, whose text begins with
/// `op` and has the path and the system's reason.  Safe to read from many threads.
class TANDEM_API InputFile {
 public:
  /// Never blocks: "OP: 'PATH' is a FIFO, not a regular file" for a FIFO, a socket, a device or a folder, and an error for a
  /// file whose size is 0 though it holds bytes (/proc).
  InputFile(const char* op, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  ///< bytes, when it was opened
  /// Reads bytes [offset, offset + num_bytes).
  void read(void* out, int64_t offset, int64_t num_bytes) const;
  /// The first size() bytes.
  std::string text() const;

 private:
  const char* op_;
  std::string path_;
  int64_t size_ = 0;
  int descriptor_;
};

/// The size in bytes of the descriptor's file.  Throws "OP: 'PATH' is a FIFO, not a regular file" unless it is a regular one.
TANDEM_API int64_t regular_file_size(const char* op, const std::string& path, int descriptor);

/// Whether the path names something, through symbolic links.  Throws IoError where that cannot be found out (no permission for a
/// folder, a loop of links, a name that is too long).
TANDEM_API bool path_exists(const char* op, const std::string& path);

/// While it lives, a call of this thread that makes a file longer than RLIMIT_FSIZE allows fails with EFBIG, which otherwise
/// ends the process by SIGXFSZ.  Blocks the signal on the calling thread alone and consumes the one that such a call raises;
/// signal handlers and other threads are not affected.  Keeps errno.
class TANDEM_API FileSizeSignalGuard {
 public:
  FileSizeSignalGuard();
  ~FileSizeSignalGuard();
  FileSizeSignalGuard(const FileSizeSignalGuard&) = delete;
  FileSizeSignalGuard& operator=(const FileSizeSignalGuard&) = delete;

 private:
  sigset_t old_mask_;
  bool was_pending_;  ///< a signal of the program's own, which is not consumed
};

/// Writes all bytes at the descriptor's position, under a FileSizeSignalGuard.  Returns 0, or the errno of the failure.
TANDEM_API int write_all(int descriptor, std::string_view bytes);

enum class WriteMode { kReplace, kAppend };

/// Writes the bytes to the file, which is made if it does not exist.  Throws IoError "OP: cannot write 'PATH': reason"; the
/// file may then hold a part of the bytes.
TANDEM_API void write_file(const char* op, const std::string& path, std::string_view bytes,
                           WriteMode mode = WriteMode::kReplace);

}}  // namespace tandem::v0

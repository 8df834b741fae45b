// Reading regular files by position, and writing files. Every failure is an IoError.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// A regular file opened for reading; symbolic links are followed. Members throw IoError with `op`, the path and the
/// system's reason. Thread-safe.
class TANDEM_API InputFile {
 public:
  /// Never blocks. Throws "OP: 'PATH' is a FIFO, not a regular file" for a FIFO, socket, device or folder, and an error
  /// for a file that contains data although its size is 0 (/proc).
  InputFile(const char* op, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }  ///< as given
  int64_t size() const { return size_; }             ///< in bytes, at the time of opening
  /// Reads bytes [offset, offset + num_bytes).
  void read(void* out, int64_t offset, int64_t num_bytes) const;
  /// The first size() bytes.
  std::string text() const;
  /// The first size() bytes, mapped into memory; null for an empty file. A page is read from the disk when it is first
  /// used, and shares the system's cache with other processes. Writing to a page makes a private copy of it and never
  /// changes the file. The mapping outlives this object. While it exists, the file must not be truncated: using the
  /// lost pages, or a disk error while a page is read, ends the process (SIGBUS). Replacing the file by rename is safe.
  std::shared_ptr<std::byte> map() const;

 private:
  const char* op_;
  std::string path_;
  int64_t size_ = 0;
  int descriptor_;
};

/// Returns `descriptor`, or a duplicate above 2 in its place if it is 0, 1 or 2: the program has closed that standard
/// stream, and what it prints must not be written to the file. Every descriptor that the library opens passes through
/// this function. Returns -1 and sets errno on failure.
TANDEM_API int above_standard(int descriptor);
/// Opens /dev/null in place of closed standard streams, for libraries whose descriptors do not pass through
/// above_standard(). Called when a job or rank starts.
TANDEM_API void open_standard_streams();

/// Creates the folder and its missing parents, and flushes the entries of the created folders to disk. Returns the
/// error.
TANDEM_API std::error_code create_folder(const std::string& folder);

/// Flushes the entries of a folder (created, renamed and removed names) to disk, unless the folder cannot be read or
/// the file system does not support this. Returns the error.
TANDEM_API std::error_code flush_folder(const std::string& folder);

/// Size in bytes of an open file. Throws "OP: 'PATH' is a FIFO, not a regular file" if it is not a regular file.
TANDEM_API int64_t regular_file_size(const char* op, const std::string& path, int descriptor);

/// Whether the path exists; symbolic links are followed. Throws IoError if this cannot be determined (no permission for
/// a folder, a loop of links, a name that is too long).
TANDEM_API bool path_exists(const char* op, const std::string& path);

/// While in scope, a write of this thread beyond RLIMIT_FSIZE fails with EFBIG instead of killing the process by
/// SIGXFSZ. Blocks the signal on the calling thread only and consumes the instance that such a write raises; signal
/// handlers and other threads are not affected. Preserves errno.
class TANDEM_API FileSizeSignalGuard {
 public:
  FileSizeSignalGuard();
  ~FileSizeSignalGuard();
  FileSizeSignalGuard(const FileSizeSignalGuard&) = delete;
  FileSizeSignalGuard& operator=(const FileSizeSignalGuard&) = delete;

 private:
  sigset_t old_mask_;
  bool was_pending_;  ///< the signal was pending before, so it belongs to the program and is not consumed
};

/// Writes all bytes at the descriptor's position, under a FileSizeSignalGuard. Returns 0, or the errno of the failure.
TANDEM_API int write_all(int descriptor, std::string_view bytes);

/// Flushes the bytes of the file to disk (fsync). Returns 0, or the errno of the failure.
TANDEM_API int flush_file(int descriptor);

/// Whether write_file replaces the content of a file or appends to it.
enum class WriteMode { kReplace, kAppend };

/// Writes the bytes to the file; creates it if it does not exist. Throws IoError "OP: cannot write 'PATH': reason"; the
/// file may then contain part of the bytes.
TANDEM_API void write_file(const char* op, const std::string& path, std::string_view bytes,
                           WriteMode mode = WriteMode::kReplace);

}}  // namespace tandem::v0

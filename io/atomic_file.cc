#include <tandem/io/atomic_file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of a digest: small enough for the CPU's caches
constexpr int kMaxTemporaries = 1000;     // concurrent writers of one path
constexpr const char* kTemporarySuffix = ".tmp";

/// Whether `path` still names the open regular file: between open and flock, its writer may have renamed it.
bool is_named(int descriptor, const char* path) {
  struct stat file = {};
  struct stat named = {};
  return ::fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode) && ::lstat(path, &named) == 0 &&
         file.st_ino == named.st_ino && file.st_dev == named.st_dev;
}

/// Creates the temporary file, also in place of one whose writer has ended. Returns a descriptor that has its lock, or
/// -1 with errno: EEXIST if another writer has the file.
int open_temporary(const char* path) {
  remove_stale_temporary(path);
  const int descriptor = above_standard(::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (descriptor < 0) return -1;
  const bool is_locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  // Without support for locks (ENOTSUP, ENOLCK), nobody removes the file.
  if (is_locked ? is_named(descriptor, path) : errno != EWOULDBLOCK) return descriptor;
  ::close(descriptor);
  errno = EEXIST;
  return -1;
}

}  // namespace

FileDigest digest_of(const InputFile& file) {
  FileDigest result;
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(file.size(), kPieceBytes)));
  while (result.num_bytes < file.size()) {
    const int64_t count = std::min(file.size() - result.num_bytes, kPieceBytes);
    file.read(piece.data(), result.num_bytes, count);
    result.crc32 = static_cast<uint32_t>(crc32_z(result.crc32, piece.data(), static_cast<size_t>(count)));
    result.num_bytes += count;
  }
  return result;
}

AtomicFile::AtomicFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  int k = 0;
  for (; k < kMaxTemporaries && descriptor_ < 0; ++k) {
    temporary_ = str(path_, kTemporarySuffix, k);
    descriptor_ = open_temporary(temporary_.c_str());
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail("cannot create", temporary_);
  for (std::error_code ignored; k < kMaxTemporaries; ++k) {
    const std::string next = str(path_, kTemporarySuffix, k);
    if (!std::filesystem::exists(next, ignored)) break;
    remove_stale_temporary(next);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());  // before the lock is released
  ::close(descriptor_);
}

void AtomicFile::write(const void* data, size_t num_bytes) {
  if (num_bytes == 0) return;  // `data` may be null, for which zlib would restart its checksum
  digest_.num_bytes += static_cast<int64_t>(num_bytes);
  digest_.crc32 = static_cast<uint32_t>(crc32_z(digest_.crc32, static_cast<const Bytef*>(data), num_bytes));
  errno = write_all(descriptor_, {static_cast<const char*>(data), num_bytes});
  if (errno != 0) fail("cannot write", temporary_);
}

void AtomicFile::commit() {
  errno = flush_file(descriptor_);
  if (errno != 0) fail("cannot write to disk", temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot replace", path_);
  // The file has been replaced. Flushing the folder makes that survive a power failure.
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail("cannot close", path_);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const std::error_code error = flush_folder(folder.empty() ? "." : folder.string());
  errno = error.value();
  if (error) fail("cannot flush to disk the folder of", path_);
}

void AtomicFile::fail(const char* what, const std::string& file) const {
  const int error = errno;
  throw IoError(str(op_, ": ", what, " '", file, "': ", std::strerror(error)));
}

bool is_temporary(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || name.compare(dot, std::strlen(kTemporarySuffix), kTemporarySuffix) != 0) return false;
  const std::string digits = name.substr(dot + std::strlen(kTemporarySuffix));
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
}

void remove_stale_temporary(const std::string& path) {
  // Writers lock their file, and the kernel releases the lock when they end.
  const int descriptor = above_standard(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (descriptor < 0) return;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_named(descriptor, path.c_str())) ::unlink(path.c_str());
  ::close(descriptor);
}

}}}  // namespace tandem::v0::io

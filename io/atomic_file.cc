#include <tandem/io/atomic_file.h>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace io {

namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of a digest: small enough for the CPU's caches
constexpr int kMaxTemporaries = 1000;     // killed processes leave temporary files
constexpr const char* kTemporarySuffix = ".tmp";

/// fsync, repeated when a signal interrupts it. Returns 0, or -1 with errno.
int sync_descriptor(int descriptor) {
  int status = 0;
  do {
    status = ::fsync(descriptor);
  } while (status != 0 && errno == EINTR);
  return status;
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
  for (int k = 0; k < kMaxTemporaries && descriptor_ < 0; ++k) {
    temporary_ = str(path_, kTemporarySuffix, k);
    descriptor_ = above_standard(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail("cannot create", temporary_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t num_bytes) {
  if (num_bytes == 0) return;  // `data` may be null, for which zlib would restart its checksum
  digest_.num_bytes += static_cast<int64_t>(num_bytes);
  digest_.crc32 = static_cast<uint32_t>(crc32_z(digest_.crc32, static_cast<const Bytef*>(data), num_bytes));
  errno = write_all(descriptor_, {static_cast<const char*>(data), num_bytes});
  if (errno != 0) fail("cannot write", temporary_);
}

void AtomicFile::commit() {
  if (sync_descriptor(descriptor_) != 0) fail("cannot write to disk", temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot replace", path_);
  // The file has been replaced. Flushing the folder makes that survive a power failure.
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail("cannot close", path_);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  sync_folder(op_, folder.empty() ? "." : folder.string());
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

void sync_folder(const char* op, const std::string& folder) {
  const int descriptor = above_standard(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TANDEM_CHECK(IoError, descriptor >= 0, op, ": cannot open the folder '", folder, "': ", std::strerror(errno));
  const int status = sync_descriptor(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some file systems do not support fsync of folders (EINVAL).
  TANDEM_CHECK(IoError, status == 0 || error == EINVAL, op, ": cannot flush the folder '", folder,
               "' to disk: ", std::strerror(error));
}

}}}  // namespace tandem::v0::io

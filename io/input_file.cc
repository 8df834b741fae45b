#include <tandem/io/input_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <tandem/base/error.h>

namespace tandem::inline v0::io {

namespace {
constexpr size_t kLargestRead = size_t{1} << 30;  // Linux reads at most 2 GiB - 4 KiB per call
constexpr int64_t kPiece = 1 << 20;               // of a digest: stays in the caches
}  // namespace

InputFile::InputFile(const char* op, std::string path)
    // O_NONBLOCK: a pipe without a writer is refused below instead of waited for.
    : op_(op), path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  TANDEM_CHECK(IoError, descriptor_ >= 0, op, ": cannot open '", path_, "': ", std::strerror(errno));
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw IoError(str(op, ": '", path_, "' is not a regular file"));
  }
  size_ = status.st_size;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(void* out, int64_t offset, int64_t num_bytes) const {
  auto* to = static_cast<char*>(out);
  while (num_bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, std::min(static_cast<size_t>(num_bytes), kLargestRead), offset);
    if (got < 0 && errno == EINTR) continue;
    TANDEM_CHECK(IoError, got >= 0, op_, ": cannot read '", path_, "': ", std::strerror(errno));
    TANDEM_CHECK(IoError, got > 0, op_, ": '", path_, "' became shorter while it was read");
    to += got;
    offset += got;
    num_bytes -= got;
  }
}

std::string InputFile::text() const {
  std::string result(static_cast<size_t>(size_), '\0');
  read(result.data(), 0, size_);
  return result;
}

FileDigest InputFile::digest() const {
  FileDigest result;
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(size_, kPiece)));
  while (result.num_bytes < size_) {
    const int64_t count = std::min(size_ - result.num_bytes, kPiece);
    read(piece.data(), result.num_bytes, count);
    result.crc32 = static_cast<uint32_t>(crc32_z(result.crc32, piece.data(), static_cast<size_t>(count)));
    result.num_bytes += count;
  }
  return result;
}

}  // namespace tandem::inline v0::io

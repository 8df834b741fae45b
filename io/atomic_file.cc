#include <tandem/io/atomic_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <tandem/base/error.h>

namespace tandem::inline v0::io {

namespace {
constexpr size_t kLargestWrite = size_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB per call
constexpr int kMaxTemporaries = 1000;              // leftovers of killed processes before we give up
}  // namespace

AtomicFile::AtomicFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  for (int k = 0; k < kMaxTemporaries && descriptor_ < 0; ++k) {
    temporary_ = str(path_, ".tmp", k);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
  const auto* from = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t written = ::write(descriptor_, from, std::min(num_bytes, kLargestWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("cannot write", temporary_);
    }
    from += written;
    num_bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot write to disk", temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot replace", path_);
  // From here on the file is in its place; what remains is that the folder remembers it after a power failure.
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail("cannot close", path_);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const int folder_descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) fail("cannot open the folder of", path_);
  const int status = ::fsync(folder_descriptor);
  const int error = errno;
  ::close(folder_descriptor);
  errno = error;
  // Some file systems have no fsync of folders and say EINVAL.
  if (status != 0 && errno != EINVAL) fail("cannot write to disk the folder of", path_);
}

void AtomicFile::fail(const char* what, const std::string& file) const {
  const int error = errno;
  throw IoError(str(op_, ": ", what, " '", file, "': ", std::strerror(error)));
}

}  // namespace tandem::inline v0::io

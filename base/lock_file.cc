#include <tandem/base/lock_file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/file.h>

namespace tandem { inline namespace v0 {

LockFile::LockFile(const char* op, const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  descriptor_ = above_standard(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  TANDEM_CHECK(IoError, descriptor_ >= 0, op, ": cannot open '", path, "': ", std::strerror(errno));
  std::array<char, 64> text = {};
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const ssize_t length = ::pread(descriptor_, text.data(), text.size() - 1, 0);
    ::close(descriptor_);
    const std::string holder(text.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
    throw StateError(str(op, ": '", folder, "' is in use by another run", holder.empty() ? "" : ", " + holder,
                         "\n  wait until it ends, or choose another folder"));
  }
  // Other errors of flock are ignored: some file systems do not support locks.
  ::gethostname(text.data(), text.size() - 1);
  // The holder's name is only for the error message above, so a write error is ignored.
  if (::ftruncate(descriptor_, 0) == 0) write_all(descriptor_, str("process ", ::getpid(), " on ", text.data()));
}

LockFile::~LockFile() { ::close(descriptor_); }

}}  // namespace tandem::v0

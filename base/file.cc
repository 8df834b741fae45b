#include <tandem/base/file.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

namespace {

constexpr size_t kMaxTransfer = size_t{1} << 30;  // Linux reads and writes at most 2 GiB - 4 KiB per call
constexpr int kPipePatienceMs = 2000;             // for the reader of a FIFO that was opened with O_NONBLOCK

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISDIR(mode)) return "a folder";
  return "of an unknown kind";
}

void check_regular_mode(const char* op, const std::string& path, mode_t mode) {
  TANDEM_CHECK(IoError, S_ISREG(mode), op, ": '", path, "' is ", kind_of(mode), ", not a regular file");
}

sigset_t file_size_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

InputFile::InputFile(const char* op, std::string path)
    // O_NONBLOCK: opening a FIFO without a writer would wait for one.
    : op_(op),
      path_(std::move(path)),
      descriptor_(above_standard(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))) {
  if (descriptor_ < 0) {
    const int error = errno;
    struct stat status = {};
    if (::stat(path_.c_str(), &status) == 0) check_regular_mode(op, path_, status.st_mode);  // sockets cannot be opened
    throw IoError(str(op, ": cannot open '", path_, "': ", std::strerror(error)));
  }
  try {
    size_ = regular_file_size(op, path_, descriptor_);
    char byte = 0;
    TANDEM_CHECK(IoError, size_ > 0 || ::pread(descriptor_, &byte, 1, 0) <= 0, op, ": '", path_,
                 "' contains data although its size is 0; copy it to a regular file first");
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(void* out, int64_t offset, int64_t num_bytes) const {
  auto* to = static_cast<char*>(out);
  while (num_bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, std::min(static_cast<size_t>(num_bytes), kMaxTransfer), offset);
    if (got < 0 && errno == EINTR) continue;
    TANDEM_CHECK(IoError, got >= 0, op_, ": cannot read '", path_, "': ", std::strerror(errno));
    TANDEM_CHECK(IoError, got > 0, op_, ": '", path_, "' was truncated while it was being read");
    to += got;
    offset += got;
    num_bytes -= got;
  }
}

std::string InputFile::text() const {
  std::string result;
  try {
    result.resize(static_cast<size_t>(size_));
  } catch (const std::exception&) {  // bad_alloc or length_error: the file may be sparse
    throw IoError(str(op_, ": '", path_, "' has ", size_, " bytes, which do not fit into the memory"));
  }
  read(result.data(), 0, size_);
  return result;
}

std::shared_ptr<std::byte> InputFile::map() const {
  if (size_ == 0) return nullptr;
  const auto num_bytes = static_cast<size_t>(size_);
  // MAP_NORESERVE: otherwise a file larger than the memory is refused, because all of its pages might be written.
  void* const data = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
  TANDEM_CHECK(IoError, data != MAP_FAILED, op_, ": cannot map '", path_, "' into memory: ", std::strerror(errno));
  return {static_cast<std::byte*>(data), [num_bytes](std::byte* begin) { ::munmap(begin, num_bytes); }};
}

int above_standard(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return moved;
}

void open_standard_streams() {
  int descriptor = 0;
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = ::open("/dev/null", O_RDWR);
  if (descriptor >= 0) ::close(descriptor);
}

int64_t regular_file_size(const char* op, const std::string& path, int descriptor) {
  struct stat status = {};
  TANDEM_CHECK(IoError, ::fstat(descriptor, &status) == 0, op, ": cannot open '", path, "': ", std::strerror(errno));
  check_regular_mode(op, path, status.st_mode);
  return status.st_size;
}

bool path_exists(const char* op, const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return true;
  TANDEM_CHECK(IoError, errno == ENOENT || errno == ENOTDIR, op, ": cannot access '", path,
               "': ", std::strerror(errno));
  return false;
}

std::error_code create_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> changed;
  std::error_code error;
  fs::path level;
  for (const fs::path& name : fs::path(folder)) {
    const fs::path parent = level.empty() ? "." : level;
    level /= name;
    if (!fs::exists(level, error)) changed.push_back(parent);
  }
  error.clear();
  if (!folder.empty()) fs::create_directories(folder, error);
  for (auto parent = changed.begin(); !error && parent != changed.end(); ++parent) error = flush_folder(*parent);
  return error;
}

std::error_code flush_folder(const std::string& folder) {
  const int descriptor = above_standard(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int error = descriptor < 0 ? errno : flush_file(descriptor);
  if (descriptor >= 0) ::close(descriptor);
  // EINVAL: the file system does not support fsync of folders.
  return {error == EACCES || error == EINVAL ? 0 : error, std::generic_category()};
}

FileSizeSignalGuard::FileSizeSignalGuard() {
  sigset_t pending;
  was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  const sigset_t signal = file_size_signal();
  pthread_sigmask(SIG_BLOCK, &signal, &old_mask_);
}

FileSizeSignalGuard::~FileSizeSignalGuard() {
  const int error = errno;
  const sigset_t signal = file_size_signal();
  const timespec now = {};
  while (!was_pending_ && sigtimedwait(&signal, nullptr, &now) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  errno = error;
}

int write_all(int descriptor, std::string_view bytes) {
  const FileSizeSignalGuard guard;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    pollfd full_pipe = {descriptor, POLLOUT, 0};
    if (written < 0 && errno == EAGAIN && ::poll(&full_pipe, 1, kPipePatienceMs) != 0) continue;
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int flush_file(int descriptor) {
  while (::fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

void write_file(const char* op, const std::string& path, std::string_view bytes, WriteMode mode) {
  // O_NONBLOCK: opening a FIFO without a reader would wait for one.
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (mode == WriteMode::kAppend ? O_APPEND : O_TRUNC);
  const int descriptor = above_standard(::open(path.c_str(), flags, 0666));
  int error = descriptor < 0 ? errno : write_all(descriptor, bytes);
  if (descriptor >= 0 && ::close(descriptor) != 0 && error == 0) error = errno;
  TANDEM_CHECK(IoError, error == 0, op, ": cannot write '", path, "': ", std::strerror(error));
}

}}  // namespace tandem::v0

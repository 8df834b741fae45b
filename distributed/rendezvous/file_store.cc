#include <tandem/distributed/rendezvous/file_store.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/log.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;
using file_log::Record;
using file_log::RecordKind;

constexpr std::chrono::microseconds kShortestPause{200};
constexpr std::chrono::microseconds kLongestPause{10000};
constexpr std::chrono::milliseconds kWatchPause{50};

/// Growing pauses between polls of a file.
class Pauses {
 public:
  void pause() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(next_ * 2, kLongestPause);
  }

 private:
  std::chrono::microseconds next_ = kShortestPause;
};

/// Locks the whole file for this open file description. Does not block.
bool try_lock(int fd, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

/// Holds the file's lock. Polls, and never sleeps in the kernel, because the current holder may be a stopped process.
class FileStore::Lock {
 public:
  Lock(FileStore& store, short type) : fd_(store.fd_.get()) {
    const auto begin = Clock::now();
    for (Pauses pauses; !try_lock(fd_, type); pauses.pause()) {
      TANDEM_CHECK(IoError, errno == EAGAIN || errno == EACCES || errno == EINTR, "store: cannot lock ", store.path_,
                   ": ", std::strerror(errno));
      const auto given = store.options_.lock_timeout;
      const std::chrono::milliseconds longest = given.count() > 0 ? given : std::chrono::hours(24 * 365);
      // Checked in every round: announce_failure() on another thread waits for the mutex that this thread holds.
      const auto timeout = store.has_announced_ ? std::min(longest, kAnnounceTime) : longest;
      TANDEM_CHECK(CommError, Clock::now() - begin < timeout, "store: cannot lock ", store.path_, " within ",
                   format_seconds(timeout), ": another process holds the lock; check for stopped processes");
    }
  }
  ~Lock() { try_lock(fd_, F_UNLCK); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int fd_;
};

FileStore::FileStore(std::string path, const FileStoreOptions& options) : path_(std::move(path)), options_(options) {
  open_file();
}

FileStore::~FileStore() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    stopped_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
}

void FileStore::open_file() {
  for (;;) {
    fd_ = FileDescriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600));
    TANDEM_CHECK(IoError, bool{fd_}, "store: cannot open ", path_, ": ", std::strerror(errno));
    regular_file_size("store", path_, fd_.get());  // for its check: only regular files can be locked and truncated
    const Lock lock(*this, F_WRLCK);
    struct stat status = {};
    TANDEM_CHECK(IoError, fstat(fd_.get(), &status) == 0, "store: cannot stat ", path_, ": ", std::strerror(errno));
    if (status.st_nlink == 0) continue;  // the ranks of an earlier job have just removed it
    char magic[file_log::kMagic.size()];
    const ssize_t n = pread(fd_.get(), magic, sizeof(magic), 0);
    const std::string_view found(magic, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    TANDEM_CHECK(IoError, n >= 0 && file_log::kMagic.starts_with(found), "store: ", path_, " is not a tandem store");
    if (found != file_log::kMagic) {
      // The file is new, or its creator was killed before it wrote the magic bytes.
      const FileSizeSignalGuard guard;
      const ssize_t written = pwrite(fd_.get(), file_log::kMagic.data(), file_log::kMagic.size(), 0);
      TANDEM_CHECK(IoError, written == static_cast<ssize_t>(file_log::kMagic.size()), "store: cannot write ", path_,
                   ": ", std::strerror(errno));
    }
    read_ = static_cast<int64_t>(file_log::kMagic.size());
    return;
  }
}

void FileStore::refresh() {
  std::string bytes;
  char part[65536];
  for (;;) {
    const ssize_t n = pread(fd_.get(), part, sizeof(part), read_ + static_cast<int64_t>(bytes.size()));
    if (n < 0 && errno == EINTR) continue;
    TANDEM_CHECK(IoError, n >= 0, "store: cannot read ", path_, ": ", std::strerror(errno));
    if (n == 0) break;
    bytes.append(part, static_cast<size_t>(n));
  }
  read_ += static_cast<int64_t>(file_log::parse(bytes, [&](const Record& record) {
    switch (record.kind) {
      case RecordKind::kSet: values_.set(record.key, record.value); return;
      case RecordKind::kDelete: values_.erase(record.key); return;
      case RecordKind::kEnd: {
        int rank = -1;
        std::from_chars(record.key.data(), record.key.data() + record.key.size(), rank);
        const bool known = std::any_of(ends_.begin(), ends_.end(), [&](const auto& end) { return end.rank == rank; });
        const auto end = record.value.starts_with('L') ? RankEnd::kLeft : RankEnd::kFailed;
        if (!known && rank >= 0 && !record.value.empty()) ends_.push_back({rank, end, record.value.substr(1)});
        return;
      }
    }
  }));
}

void FileStore::with_file(bool change, FunctionRef<void()> f) {
  {
    std::lock_guard guard(mutex_);
    const Lock lock(*this, change ? F_WRLCK : F_RDLCK);
    refresh();
    if (change) {
      // No other process writes now: bytes after the last record are from a writer that was killed.
      TANDEM_CHECK(IoError, ftruncate(fd_.get(), read_) == 0, "store: cannot truncate ", path_, ": ",
                   std::strerror(errno));
    }
    f();
  }
  notify_of_changes();
}

void FileStore::append(const Record& record) {
  const std::string bytes = file_log::encode(record);
  const FileSizeSignalGuard guard;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pwrite(fd_.get(), bytes.data() + done, bytes.size() - done, read_ + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    TANDEM_CHECK(IoError, n > 0, "store: cannot write ", path_, ": ", std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  refresh();
}

void FileStore::set(const std::string& key, const std::string& value) {
  with_file(true, [&] { append({RecordKind::kSet, key, value}); });
}

std::string FileStore::get_from(const std::string& key, const std::vector<int>& ranks,
                                std::chrono::milliseconds timeout) {
  const auto deadline = deadline_after(timeout);
  for (Pauses pauses;; pauses.pause()) {
    std::optional<std::string> found;
    // Read before the key: a rank that has failed may have set the key.
    const auto failure = failures_.first_failure(ranks);
    const bool late = Clock::now() >= deadline;
    with_file(false, [&] {
      if (const std::string* value = values_.find(key)) found = *value;
    });
    if (found) return *found;
    if (failure || late) {
      throw CommError(missing_key_text(key, ranks, timeout, failures_), -1, failure ? failure->rank : -1);
    }
  }
}

bool FileStore::contains(const std::vector<std::string>& keys) {
  bool all = false;
  with_file(false, [&] { all = values_.has_all(keys); });
  return all;
}

int64_t FileStore::num_keys() {
  int64_t n = 0;
  with_file(false, [&] { n = values_.size(); });
  return n;
}

int64_t FileStore::add(const std::string& key, int64_t delta) {
  int64_t sum = 0;
  with_file(true, [&] {
    sum = values_.sum(key, delta);
    append({RecordKind::kSet, key, std::to_string(sum)});
  });
  return sum;
}

std::string FileStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  wire::check_size(key, expected, desired);
  std::string after;
  with_file(true, [&] {
    if (values_.matches(key, expected)) append({RecordKind::kSet, key, desired});
    if (const std::string* value = values_.find(key)) after = *value;
  });
  return after;
}

bool FileStore::delete_key(const std::string& key) {
  bool erased = false;
  with_file(true, [&] {
    erased = values_.find(key) != nullptr;
    if (erased) append({RecordKind::kDelete, key, ""});
  });
  return erased;
}

void FileStore::append_end(int rank, RankEnd end, const std::string& reason) {
  append({RecordKind::kEnd, std::to_string(rank), (end == RankEnd::kLeft ? "L" : "F") + reason});
}

void FileStore::announce_failure(int rank, const std::string& reason) {
  has_announced_ = true;
  with_file(true, [&] { append_end(rank, RankEnd::kFailed, reason.substr(0, 64u << 10)); });
}

void FileStore::leave(int rank) {
  try {
    set_offered();
    with_file(true, [&] {
      append_end(rank, RankEnd::kLeft, "left the job");
      if (options_.world_size > 0 && ends_.size() >= static_cast<size_t>(options_.world_size)) unlink(path_.c_str());
    });
  } catch (const Error& e) {
    log(LogLevel::kWarning, "store: rank ", rank, " could not record that it leaves the job: ", e.what());
  }
}

HookHandle FileStore::on_failure(std::function<void(int rank, const std::string& reason)> f) {
  with_file(false, [] {});
  HookHandle handle = failures_.on_failure(std::move(f));
  start_watcher();
  return handle;
}

HookHandle FileStore::watch(const std::string& key, std::function<void(const std::string& value)> f) {
  HookHandle handle = watches_.add(key, std::move(f));
  with_file(false, [] {});
  start_watcher();
  return handle;
}

void FileStore::offer(const std::string& key, const std::string& value) {
  {
    std::lock_guard lock(mutex_);
    offered_.emplace_back(key, value);
  }
  start_watcher();  // the file may be locked for long
}

/// Sets the keys that were offered.
void FileStore::set_offered() {
  std::vector<std::pair<std::string, std::string>> offered;
  {
    std::lock_guard lock(mutex_);
    offered.swap(offered_);
  }
  for (const auto& [key, value] : offered) compare_set(key, "", value);
}

void FileStore::start_watcher() {
  std::lock_guard lock(watch_mutex_);
  if (!watcher_.joinable()) watcher_ = start_thread([this] { run_watcher(); });
}

void FileStore::notify_of_changes() {
  std::vector<RankEndEvent> news;
  std::vector<std::pair<std::string, std::string>> found;
  {
    std::lock_guard lock(mutex_);
    news.assign(ends_.begin() + static_cast<std::ptrdiff_t>(ends_reported_), ends_.end());
    ends_reported_ = ends_.size();
    for (const std::string& key : watches_.keys()) {
      if (const std::string* value = values_.find(key)) found.emplace_back(key, *value);
    }
  }
  for (const auto& [key, value] : found) watches_.notify(key, value);
  for (RankEndEvent& event : news) failures_.report(std::move(event));
}

void FileStore::run_watcher() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kWatchPause, [&] { return stop_; })) {
    lock.unlock();
    try {
      set_offered();
      with_file(false, [] {});
    } catch (const Error& e) {
      failures_.report({-1, RankEnd::kDied, str("the store's file was lost: ", e.what())});
      return;
    }
    lock.lock();
  }
}

std::shared_ptr<Store> make_file_store(const std::string& path, FileStoreOptions options) {
  TANDEM_CHECK(ValueError, !path.empty(), "make_file_store: the path is empty");
  return std::make_shared<FileStore>(path, options);
}

}}}  // namespace tandem::v0::distributed

#include <tandem/distributed/launch/rank_output.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include <tandem/base/error.h>
#include <tandem/base/file.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// Longer lines are split, to bound the memory.
constexpr size_t kMaxLine = 1u << 20;
constexpr int64_t kTailBytes = 16 << 10;
constexpr size_t kTailLines = 10;

// While this much output is pending, the pipes are not read and the ranks block when they are full.
constexpr size_t kMaxPending = 256u << 10;

bool same_file(int a, int b) {
  struct stat first = {};
  struct stat second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

bool RankOutput::Sink::flush(int timeout_ms) {
  while (!pending.empty()) {
    pollfd ready{fd, POLLOUT, 0};
    if (poll(&ready, 1, timeout_ms) <= 0) return false;
    // A ready pipe accepts PIPE_BUF bytes without blocking; the launcher must not block, to handle signals.
    const ssize_t n = write(fd, pending.data(), std::min<size_t>(pending.size(), PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      pending.clear();  // the reader is closed; the ranks continue
      return true;
    }
    pending.erase(0, static_cast<size_t>(n));
  }
  return true;
}

RankOutput::RankOutput(std::string log_dir) : log_dir_(std::move(log_dir)) {
  // If stdout and stderr are the same file they share one sink, so that their lines do not mix.
  sinks_[0].fd = STDOUT_FILENO;
  sinks_[1].fd = same_file(STDOUT_FILENO, STDERR_FILENO) ? -1 : STDERR_FILENO;
  if (log_dir_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(log_dir_, error);
  TANDEM_CHECK(IoError, !error, "launch: cannot create the log directory '", log_dir_, "': ", error.message());
}

void RankOutput::begin(int restart) {
  restart_ = restart;
  truncated_.clear();
  streams_.remove_if([](const Stream& stream) { return stream.rank >= 0; });
}

std::string RankOutput::log_path(int rank) const { return log_path(rank, restart_); }

std::string RankOutput::log_path(int rank, int restart) const {
  if (log_dir_.empty()) return "";
  return restart == 0 ? str(log_dir_, "/rank-", rank, ".log")
                      : str(log_dir_, "/rank-", rank, ".restart-", restart, ".log");
}

FileDescriptor RankOutput::open_log(int rank) {
  // Named by the first rank, because launchers of several hosts can share the folder.
  if (lock_ == nullptr) lock_ = std::make_unique<LockFile>("launch", log_dir_, str("rank-", rank, ".lock"));
  const std::string path = log_path(rank);
  if (truncated_.size() <= static_cast<size_t>(rank)) truncated_.resize(static_cast<size_t>(rank) + 1, false);
  const bool first = !truncated_[static_cast<size_t>(rank)];
  std::error_code ignored;
  for (int later = 1; first && restart_ == 0 && std::filesystem::remove(log_path(rank, later), ignored);) ++later;
  const int truncate = first ? O_TRUNC : 0;
  // O_RDWR and O_NONBLOCK: opening a FIFO without a reader neither waits nor fails, so that the error names it.
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | truncate, 0666));
  TANDEM_CHECK(IoError, bool{fd}, "launch: cannot write '", path, "': ", std::strerror(errno));
  regular_file_size("launch", path, fd.get());  // for its check: a device or FIFO could block, or never end
  truncated_[static_cast<size_t>(rank)] = true;
  return fd;
}

FileDescriptor RankOutput::open(int rank, int fd, OutputTarget target) {
  if (target == OutputTarget::kLog) return open_log(rank);
  const bool plain = target == OutputTarget::kShow && rank <= 0;
  if (plain && rank == 0 && isatty(fd) == 1) return FileDescriptor();
  int ends[2];
  TANDEM_CHECK(IoError, pipe2(ends, O_CLOEXEC) == 0, "launch: cannot create a pipe for rank ", rank, ": ",
               std::strerror(errno));
  Stream stream;
  stream.rank = rank;
  stream.pipe = FileDescriptor(ends[0]);
  FileDescriptor child(ends[1]);
  fcntl(stream.pipe.get(), F_SETFL, O_NONBLOCK);
  if (target == OutputTarget::kShowAndLog) stream.log = open_log(rank);
  stream.sink = fd == STDERR_FILENO && sinks_[1].fd >= 0 ? &sinks_[1] : &sinks_[0];
  if (!plain) stream.prefix = str("[", rank, "] ");
  streams_.push_back(std::move(stream));
  return child;
}

void RankOutput::add_polled(std::vector<pollfd>* polled) const {
  for (const Stream& stream : streams_) {
    if (stream.sink->pending.size() < kMaxPending) polled->push_back({stream.pipe.get(), POLLIN, 0});
  }
  for (const Sink& sink : sinks_) {
    if (!sink.pending.empty()) polled->push_back({sink.fd, POLLOUT, 0});
  }
}

void RankOutput::transfer() {
  for (Stream& stream : streams_) {
    if (stream.sink->pending.size() < kMaxPending) transfer(stream);
  }
  flush(0);
}

void RankOutput::transfer(Stream& stream) {
  char bytes[65536];
  // Bounded, so that a rank that prints continuously does not starve the others.
  for (int piece = 0; piece < 8 && stream.pipe; ++piece) {
    const ssize_t n = read(stream.pipe.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      stream.pipe.reset();
      return;
    }
    std::string_view rest(bytes, static_cast<size_t>(n));
    for (;;) {
      const size_t end = rest.find('\n');
      stream.line.append(rest.substr(0, end));
      const bool ended = end != std::string_view::npos;
      if (!ended && stream.line.size() < kMaxLine) break;
      write_line(stream, ended);
      if (!ended) break;
      rest.remove_prefix(end + 1);
    }
  }
}

void RankOutput::write_line(Stream& stream, bool ended) {
  // Lines with a prefix always end with a newline, so that the next prefix starts a line.
  std::string text = stream.prefix + stream.line;
  if (ended || !stream.prefix.empty()) text += '\n';
  stream.sink->pending += text;
  // Write errors are ignored, because a full disk must not stop the ranks.
  if (stream.log) write_all(stream.log.get(), std::string_view(text).substr(stream.prefix.size()));
  stream.line.clear();
}

void RankOutput::collect_rest() {
  for (Stream& stream : streams_) {
    if (stream.rank >= 0) collect_rest(stream);
  }
}

void RankOutput::collect_rest(int rank) {
  for (Stream& stream : streams_) {
    if (stream.rank == rank) collect_rest(stream);
  }
}

void RankOutput::collect_rest(Stream& stream) {
  // One transfer reads more than the capacity of a pipe (64 KiB by default). Do not read until end of file: a process
  // that the rank started may keep the pipe open.
  transfer(stream);
  if (!stream.line.empty()) write_line(stream, false);
  stream.pipe.reset();
}

void RankOutput::print(const std::string& line) { sinks_[sinks_[1].fd >= 0 ? 1 : 0].pending += line + "\n"; }

bool RankOutput::flush(int timeout_ms) {
  const bool first = sinks_[0].flush(timeout_ms);
  return sinks_[1].flush(timeout_ms) && first;
}

std::string RankOutput::log_tail(int rank) const {
  if (log_dir_.empty()) return "";
  std::string tail;
  try {
    const InputFile file("launch", log_path(rank));
    tail.resize(static_cast<size_t>(std::min(file.size(), kTailBytes)));
    file.read(tail.data(), file.size() - static_cast<int64_t>(tail.size()), static_cast<int64_t>(tail.size()));
  } catch (const IoError&) {
    return "";  // the file was removed or replaced
  }
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < tail.size(); begin += lines.back().size() + 1)
    lines.push_back(tail.substr(begin, tail.find('\n', begin) - begin));
  std::string text;
  for (size_t i = lines.size() > kTailLines ? lines.size() - kTailLines : 0; i < lines.size(); ++i) {
    text += "    " + lines[i] + "\n";
  }
  return text;
}

}}}  // namespace tandem::v0::distributed

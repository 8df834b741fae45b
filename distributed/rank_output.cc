#include <tandem/distributed/rank_output.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <tandem/base/error.h>

namespace tandem::inline v0::distributed {

namespace {

// A longer line is cut: memory stays bounded, whatever a rank prints.
constexpr size_t kMaxLine = 1u << 20;
constexpr int64_t kTailBytes = 16 << 10;
constexpr size_t kTailLines = 10;

/// Writes all of it; what cannot be written is lost, because a closed terminal or a full disk must not end the ranks.
void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 100);
      continue;
    }
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

RankOutput::RankOutput(std::string log_dir) : log_dir_(std::move(log_dir)) {
  if (log_dir_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(log_dir_, error);
  TANDEM_CHECK(IoError, !error, "launch: cannot make the folder '", log_dir_, "' for logs: ", error.message());
}

std::string RankOutput::log_path(int rank) const {
  return log_dir_.empty() ? "" : str(log_dir_, "/rank-", rank, ".log");
}

FileDescriptor RankOutput::open_log(int rank) {
  const std::string path = log_path(rank);
  if (truncated_.size() <= static_cast<size_t>(rank)) truncated_.resize(static_cast<size_t>(rank) + 1, false);
  const int truncate = truncated_[static_cast<size_t>(rank)] ? 0 : O_TRUNC;
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | truncate, 0666));
  TANDEM_CHECK(IoError, bool{fd}, "launch: cannot write '", path, "': ", std::strerror(errno));
  truncated_[static_cast<size_t>(rank)] = true;
  return fd;
}

FileDescriptor RankOutput::open(int rank, int fd, OutputTarget target) {
  if (target == OutputTarget::kLog) return open_log(rank);
  const bool plain = target == OutputTarget::kShow && rank == 0;
  if (plain && isatty(fd) == 1) return FileDescriptor();
  int ends[2];
  TANDEM_CHECK(IoError, pipe2(ends, O_CLOEXEC) == 0, "launch: no pipe for rank ", rank, ": ", std::strerror(errno));
  Stream stream;
  stream.pipe = FileDescriptor(ends[0]);
  FileDescriptor child(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  if (target == OutputTarget::kShowAndLog) stream.log = open_log(rank);
  stream.shown_on = fd;
  if (!plain) stream.prefix = str("[", rank, "] ");
  streams_.push_back(std::move(stream));
  return child;
}

void RankOutput::add_polled(std::vector<pollfd>* polled) const {
  for (const Stream& stream : streams_) polled->push_back({stream.pipe.get(), POLLIN, 0});
}

void RankOutput::transfer() {
  for (Stream& stream : streams_) transfer(stream);
}

void RankOutput::transfer(Stream& stream) {
  char bytes[65536];
  // A rank that prints without end must not keep the launcher from the others: a few pieces at a time.
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
  // Marked lines are always ended, so that the next mark begins a line; what is not marked stays as it was printed.
  std::string text = stream.prefix + stream.line;
  if (ended || !stream.prefix.empty()) text += '\n';
  write_all(stream.shown_on, text);
  if (stream.log) write_all(stream.log.get(), std::string_view(text).substr(stream.prefix.size()));
  stream.line.clear();
}

void RankOutput::finish() {
  for (Stream& stream : streams_) {
    // A grandchild may hold the pipe open for ever; what the rank itself wrote is in the pipe by now.
    for (;;) {
      pollfd ready{stream.pipe.get(), POLLIN, 0};
      if (!stream.pipe || poll(&ready, 1, 0) <= 0) break;
      transfer(stream);
    }
    if (!stream.line.empty()) write_line(stream, false);
  }
}

std::string RankOutput::log_tail(int rank) const {
  std::ifstream in(log_path(rank), std::ios::binary | std::ios::ate);
  if (log_dir_.empty() || !in) return "";
  const int64_t size = in.tellg();
  in.seekg(std::max<int64_t>(0, size - kTailBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  std::string text;
  for (size_t i = lines.size() > kTailLines ? lines.size() - kTailLines : 0; i < lines.size(); ++i) {
    text += "    " + lines[i] + "\n";
  }
  return text;
}

}  // namespace tandem::inline v0::distributed

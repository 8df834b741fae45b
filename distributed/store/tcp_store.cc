#include <tandem/distributed/store/tcp_store.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/distributed/store/memory_store.h>

namespace tandem::inline v0::distributed {

using wire::FrameType;
using wire::PayloadReader;
using wire::PayloadWriter;
using wire::Status;
using Clock = std::chrono::steady_clock;

namespace {

// The host answers everything but a waiting get at once.  A machine may be busy, so this is no measure of its health.
constexpr std::chrono::seconds kReplyTimeout{30};
constexpr std::chrono::seconds kGoodbyeTimeout{2};

/// Waits until the socket is ready; false if the deadline passed.
bool wait_ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd polled{fd, events, 0};
    const int n = poll(&polled, 1, milliseconds_until(deadline));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options) : options_(options) {
  const auto deadline = Clock::now() + options_.connect_timeout;
  fd_ = connect_to(options_.host, options_.port, options_.connect_timeout);
  wake_fd_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TANDEM_CHECK(IoError, bool{wake_fd_}, "store: eventfd: ", std::strerror(errno));
  shake_hands(deadline);
  thread_ = std::thread([this] { run(); });
}

TcpStore::~TcpStore() { disconnect(); }

std::string TcpStore::host_text() const { return str(options_.host, ":", options_.port); }

void TcpStore::shake_hands(Clock::time_point deadline) {
  send_all(wire::encode(FrameType::kHello, 0,
                        PayloadWriter().text(options_.token).number(options_.rank).number(options_.world_size).take()),
           deadline);
  for (;;) {
    if (const auto frame = in_.next(wire::kMaxPayload)) {
      if (frame->type == FrameType::kWelcome) return;
      TANDEM_CHECK(CommError, frame->type == FrameType::kRejected, "store: ", host_text(), " is no store of tandem");
      throw CommError(
          str("store: ", host_text(), " rejected rank ", options_.rank, ": ", PayloadReader(frame->payload).text()),
          options_.rank);
    }
    TANDEM_CHECK(CommError, wait_ready(fd_.get(), POLLIN, deadline), "store: ", host_text(), " did not answer rank ",
                 options_.rank, " within ", format_seconds(options_.connect_timeout));
    char bytes[4096];
    const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    TANDEM_CHECK(CommError, n > 0, "store: ", host_text(), " closed the connection of rank ", options_.rank,
                 " before it joined\n  it belongs to another job, or TANDEM_TOKEN is wrong");
    in_.append(bytes, static_cast<size_t>(n));
  }
}

void TcpStore::send_all(std::string_view bytes, Clock::time_point deadline) {
  std::lock_guard lock(send_mutex_);
  while (!bytes.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (wait_ready(fd_.get(), POLLOUT, deadline)) continue;
      // Half a frame may be out: nothing sensible can follow on this connection.
      shutdown(fd_.get(), SHUT_RDWR);
      throw CommError(str("store: ", host_text(), " does not read what rank ", options_.rank, " sends"), options_.rank);
    }
    throw CommError(str("store: the connection to the store's host ", host_text(), " was lost: ", std::strerror(errno)),
                    options_.rank);
  }
}

std::unique_ptr<TcpStore::Request> TcpStore::call(FrameType type, std::string_view payload, Clock::time_point deadline,
                                                  bool until_failure, uint32_t* id) {
  auto request = std::make_unique<Request>();
  {
    std::lock_guard lock(mutex_);
    if (!lost_.empty()) throw CommError("store: " + lost_, options_.rank);
    *id = next_id_++;
    pending_[*id] = request.get();
  }
  std::exception_ptr send_error;
  try {
    send_all(wire::encode(type, *id, payload), deadline);
  } catch (...) {
    send_error = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  if (!send_error) {
    changed_.wait_until(lock, deadline, [&] {
      return request->done || !lost_.empty() || (until_failure && failures_.first_failure());
    });
  }
  pending_.erase(*id);
  if (request->done) return request;
  if (send_error) std::rethrow_exception(send_error);
  if (!lost_.empty()) throw CommError("store: " + lost_, options_.rank);
  return nullptr;
}

TcpStore::Request TcpStore::call_now(FrameType type, std::string_view payload) {
  uint32_t id = 0;
  const auto request = call(type, payload, Clock::now() + kReplyTimeout, false, &id);
  if (!request) {
    throw CommError(
        str("store: ", host_text(), " did not answer rank ", options_.rank, " within ", format_seconds(kReplyTimeout)),
        options_.rank);
  }
  if (request->status == Status::kError) throw CommError(request->text, options_.rank);
  return std::move(*request);
}

void TcpStore::set(const std::string& key, const std::string& value) {
  call_now(FrameType::kSet, PayloadWriter().text(key).text(value).take());
}

std::string TcpStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  // Where somebody failed already the key is asked for once: what is there can be had, what is not would never come.
  const bool wait = !failures_.first_failure();
  const std::string payload = PayloadWriter().text(key).number(wait ? 1 : 0).take();
  if (!wait) {
    const Request request = call_now(FrameType::kGet, payload);
    if (request.status == Status::kOk) return request.text;
  } else {
    uint32_t id = 0;
    const auto request = call(FrameType::kGet, payload, Clock::now() + timeout, true, &id);
    if (request) return request->text;
    send_all(wire::encode(FrameType::kCancelGet, id, PayloadWriter().text(key).take()), Clock::now() + kReplyTimeout);
  }
  const auto failure = failures_.first_failure();
  throw CommError(missing_key_text(key, timeout, failures_), options_.rank, failure ? failure->rank : -1);
}

int64_t TcpStore::add(const std::string& key, int64_t delta) {
  const Request request = call_now(FrameType::kAdd, PayloadWriter().text(key).number(delta).take());
  return add_to_value(key, request.text, 0);
}

void TcpStore::announce_failure(int rank, const std::string& reason) {
  call_now(FrameType::kAnnounceFailure, PayloadWriter().number(rank).text(reason.substr(0, 64u << 10)).take());
}

HookHandle TcpStore::on_failure(std::function<void(int rank, const std::string& reason)> f) {
  return failures_.on_failure(std::move(f));
}

void TcpStore::leave() {
  try {
    uint32_t id = 0;
    call(FrameType::kGoodbye, "", Clock::now() + kGoodbyeTimeout, false, &id);
  } catch (const CommError&) {
    // Whoever is gone needs no goodbye.
  }
  disconnect();
}

void TcpStore::disconnect() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (lost_.empty()) lost_ = str("rank ", options_.rank, " has left the job");
    changed_.notify_all();
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_.get(), &one, sizeof(one));
  thread_.join();
  shutdown(fd_.get(), SHUT_RDWR);  // the descriptor itself stays until no other thread can be using it
}

void TcpStore::run() {
  try {
    for (;;) {
      while (const auto frame = in_.next(wire::kMaxPayload + 64)) handle(*frame);
      pollfd polled[2] = {{fd_.get(), POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}};
      if (poll(polled, 2, -1) < 0 && errno != EINTR) throw IoError(str("poll: ", std::strerror(errno)));
      {
        std::lock_guard lock(mutex_);
        if (stop_) return;
      }
      if (polled[0].revents == 0) continue;
      char bytes[65536];
      const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n < 0) throw IoError(std::strerror(errno));
      if (n == 0) throw IoError("it closed the connection");
      in_.append(bytes, static_cast<size_t>(n));
    }
  } catch (const Error& e) {
    lose(e.what());
  }
}

void TcpStore::handle(const wire::Frame& frame) {
  PayloadReader payload(frame.payload);
  if (frame.type == FrameType::kReply) {
    const auto status = static_cast<Status>(payload.number());
    std::string text = payload.text();
    std::lock_guard lock(mutex_);
    const auto found = pending_.find(frame.id);
    if (found == pending_.end()) return;  // its caller has given up
    *found->second = {true, status, std::move(text)};
    changed_.notify_all();
  } else if (frame.type == FrameType::kRankEnded) {
    const int rank = static_cast<int>(payload.number());
    const auto end = static_cast<RankEnd>(payload.number());
    failures_.report({rank, end, payload.text()});
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  } else {
    throw IoError(str("it sent a frame of type ", static_cast<uint32_t>(frame.type)));
  }
}

void TcpStore::lose(const std::string& why) {
  const std::string text = str("the connection to the store's host ", host_text(), " was lost: ", why);
  {
    std::lock_guard lock(mutex_);
    lost_ = text;
    changed_.notify_all();
  }
  failures_.report({options_.host_rank, RankEnd::kDied, text});
}

}  // namespace tandem::inline v0::distributed

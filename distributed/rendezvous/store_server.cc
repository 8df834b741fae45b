#include <tandem/distributed/rendezvous/store_server.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 { namespace distributed {

using wire::FrameType;
using wire::PayloadReader;
using wire::PayloadWriter;
using wire::Status;

namespace {

// A rank is disconnected if it does not read and this much data waits for it.
constexpr size_t kMaxOutgoing = 64u << 20;

constexpr size_t kMaxReason = 64u << 10;

// Maximum number of connections to accept before the ranks' connections are served again.
constexpr int kMaxAccepts = 16;

std::string encode_end(const RankEndEvent& event) {
  return PayloadWriter()
      .number(event.rank)
      .number(static_cast<int>(event.end))
      .text(std::string_view(event.reason).substr(0, kMaxReason))
      .take();
}

}  // namespace

StoreServer::StoreServer(StoreServerOptions options) : options_(std::move(options)) {
  TANDEM_CHECK(ValueError, options_.token.size() == wire::kTokenBytes, "store: a token must have ", wire::kTokenBytes,
               " bytes, got ", options_.token.size());
  joined_.resize(static_cast<size_t>(options_.world_size), false);
  left_.resize(static_cast<size_t>(options_.world_size), false);
  listener_ = listen_on(options_.host, options_.port);
  port_ = local_port(listener_.get());
  wake_fd_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TANDEM_CHECK(IoError, bool{wake_fd_}, "store: cannot create an eventfd: ", std::strerror(errno));
}

StoreServer::~StoreServer() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void StoreServer::start() {
  thread_ = start_thread([this] { run(); });
}

void StoreServer::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      write(wake_fd_.get(), &one, sizeof(one));  // fails only if the thread is already awake
}

void StoreServer::report(RankEndEvent event) {
  if (!failures_.report(event)) return;
  std::lock_guard lock(mutex_);
  broadcasts_.push_back(std::move(event));
  wake();
}

void StoreServer::report_exit(int rank, bool success, const std::string& status) {
  std::lock_guard lock(mutex_);
  if (!renewed_ && !joined_[static_cast<size_t>(rank)]) {
    end_rank({rank, success ? RankEnd::kLeft : RankEnd::kDied,
              success ? "left the job" : str("died (", status, ") before it joined")});
  }
  for (Connection& connection : connections_) {
    if (connection.rank != rank) continue;
    // The first call may leave the end of the connection for the next.
    for (int call = 0; call < 2 && !connection.closing; ++call) receive(connection);
    if (connection.closing) continue;
    lose_rank(connection, RankEnd::kDied, str("died (", status, ")"));
    connection.closing = true;
  }
  wake();
}

bool StoreServer::has_joined(int rank) {
  std::lock_guard lock(mutex_);
  return renewed_ || joined_[static_cast<size_t>(rank)];
}

bool StoreServer::wait_until_empty(std::chrono::milliseconds timeout, bool all_joined) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_until(lock, deadline_after(timeout), [&] {
    if (all_joined && std::find(joined_.begin(), joined_.end(), false) != joined_.end()) return false;
    return std::none_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.rank >= 0; });
  });
}

void StoreServer::disconnect(int rank) {
  std::lock_guard lock(mutex_);
  for (Connection& connection : connections_) {
    if (connection.rank == rank) connection.closing = true;
  }
  wake();
}

void StoreServer::run() {
  std::vector<pollfd> polled;
  std::vector<Connection*> connections;
  std::vector<RankEndEvent> ended;
  for (;;) {
    int timeout = -1;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      ended.swap(broadcasts_);
      for (const RankEndEvent& event : ended) {
        for (Connection& connection : connections_) {
          const bool itself = event.rank == connection.rank && event.end == RankEnd::kLeft;
          if (connection.rank >= 0 && !itself) send(connection, FrameType::kRankEnded, 0, encode_end(event));
        }
      }
      ended.clear();
      drop_silent_strangers();
      close_lost_connections();
      remove_closed();
      polled.assign({{wake_fd_.get(), POLLIN, 0}, {out_of_descriptors_ ? -1 : listener_.get(), POLLIN, 0}});
      connections.clear();
      for (Connection& connection : connections_) {
        const int events = POLLIN | (connection.out.empty() ? 0 : POLLOUT);
        polled.push_back({connection.socket.get(), static_cast<short>(events), 0});
        connections.push_back(&connection);
      }
      timeout = poll_timeout_ms();
    }
    if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) {
      log(LogLevel::kError, "store: poll failed: ", std::strerror(errno));
      return;
    }
    std::lock_guard lock(mutex_);
    uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t n = read(wake_fd_.get(), &wakes, sizeof(wakes));
    for (size_t i = 0; i < connections.size(); ++i) {
      const int events = polled[i + 2].revents;
      if ((events & POLLOUT) != 0) flush(*connections[i]);
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(*connections[i]);
    }
    accept_some();
  }
}

int StoreServer::poll_timeout_ms() {
  if (!broadcasts_.empty()) return 0;
  int timeout = out_of_descriptors_ ? 100 : -1;
  out_of_descriptors_ = false;
  if (!connections_.empty()) timeout = std::min(timeout < 0 ? INT_MAX : timeout, milliseconds_until(next_loss_check_));
  for (const Connection& connection : connections_) {
    if (connection.rank >= 0) continue;
    const int left = milliseconds_until(connection.accepted + options_.hello_timeout);
    if (timeout < 0 || left < timeout) timeout = left;
  }
  return timeout;
}

void StoreServer::accept_some() {
  for (int i = 0; i < kMaxAccepts; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    FileDescriptor socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Without a free descriptor or memory the listening socket stays readable. Do not poll it for a short time,
      // instead of spinning.
      out_of_descriptors_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    tune_connection(socket.get());
    const auto is_stranger = [](const Connection& c) { return c.rank < 0 && !c.closing; };
    // All ranks may connect at the same time.
    const size_t limit = kMaxStrangers + joined_.size();
    if (static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), is_stranger)) >= limit) {
      // The connection may belong to a rank that had no time to send its token: request another attempt.
      const std::string why = "too many connections without a token";
      Connection& oldest = *std::find_if(connections_.begin(), connections_.end(), is_stranger);
      send(oldest, FrameType::kNotYet, 0, PayloadWriter().text(why).take());
      drop(oldest, why);
    }
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(socket);
    connection.other_end = address;
    connection.accepted = std::chrono::steady_clock::now();
  }
}

void StoreServer::drop_silent_strangers() {
  const auto now = std::chrono::steady_clock::now();
  for (Connection& connection : connections_) {
    if (connection.rank < 0 && !connection.closing && connection.accepted + options_.hello_timeout <= now) {
      drop(connection, "no token within " + format_seconds(options_.hello_timeout));
    }
  }
}

/// A stopped process (for example in a debugger) is not lost, however long it is stopped. A rank whose machine is gone
/// is lost.
void StoreServer::close_lost_connections() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_loss_check_) return;
  next_loss_check_ = now + SilenceWatch::kInterval;
  for (Connection& connection : connections_) {
    if (connection.closing || !connection.silence.is_lost(connection.socket.get())) continue;
    lose_rank(connection, RankEnd::kLost, "cannot be reached (its connection timed out)");
    connection.closing = true;
  }
}

void StoreServer::receive(Connection& connection) {
  char bytes[65536];
  try {
    while (!connection.closing) {
      const ssize_t n = recv(connection.socket.get(), bytes, sizeof(bytes), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) {
        // A send may have received the errno of a reset. EPIPE means only that the rank has closed the connection.
        const int error = n < 0 ? errno : connection.send_error == EPIPE ? 0 : connection.send_error;
        if (error == 0) {
          lose_rank(connection, RankEnd::kDied, "died (its connection closed)");
        } else {
          lose_rank(
              connection, RankEnd::kLost,
              str("lost its connection to the store at ", options_.host, ":", port_, " (", std::strerror(error), ")"));
        }
        connection.closing = true;
        return;
      }
      connection.in.append(bytes, static_cast<size_t>(n));
      while (!connection.closing) {
        const auto frame = connection.in.next(connection.rank >= 0 ? wire::kMaxPayload : wire::kMaxHelloPayload);
        if (!frame) break;
        handle(connection, *frame);
      }
      if (static_cast<size_t>(n) < sizeof(bytes)) return;  // poll reports the rest; other connections are served first
    }
  } catch (const std::exception& e) {
    lose_rank(connection, RankEnd::kLost, str("violated the store's protocol: ", error_text(e)));
    drop(connection, error_text(e));
  }
}

void StoreServer::handle(Connection& connection, const wire::Frame& frame) {
  if (connection.rank < 0) {
    handle_hello(connection, frame);
    return;
  }
  wire::Request request = wire::read_request(frame);
  const auto answer = [&](std::string_view text) { reply(connection, request.id, Status::kOk, text); };
  switch (request.type) {
    case FrameType::kSet:
      set_value(request.key, std::move(request.value));
      answer("");
      return;
    case FrameType::kGet:
      if (const std::string* value = values_.find(request.key)) {
        answer(*value);
      } else if (request.number != 0) {
        waiters_[request.key].push_back({&connection, request.id});
      } else {
        reply(connection, request.id, Status::kMissing, "");
      }
      return;
    case FrameType::kCancelGet: {
      const auto waiting = waiters_.find(request.key);
      if (waiting == waiters_.end()) return;
      std::erase_if(waiting->second,
                    [&](const Waiter& w) { return w.connection == &connection && w.id == request.id; });
      if (waiting->second.empty()) waiters_.erase(waiting);
      return;
    }
    case FrameType::kAdd:
      try {
        const std::string sum = std::to_string(values_.sum(request.key, request.number));
        set_value(request.key, sum);
        answer(sum);
      } catch (const CommError& e) {
        reply(connection, request.id, Status::kError, e.what());
      }
      return;
    case FrameType::kCompareSet: {
      if (values_.matches(request.key, request.expected)) set_value(request.key, std::move(request.value));
      const std::string* value = values_.find(request.key);
      answer(value == nullptr ? std::string_view() : *value);
      return;
    }
    case FrameType::kDeleteKey: answer(values_.erase(request.key) ? "1" : "0"); return;
    case FrameType::kCheck: answer(values_.has_all(request.keys) ? "1" : "0"); return;
    case FrameType::kNumKeys: answer(std::to_string(values_.size())); return;
    case FrameType::kAnnounceFailure:
      if (request.number < 0 || request.number >= options_.world_size) {
        throw IoError(str("store: received a failure of rank ", request.number, ", which is not in this job"));
      }
      end_rank({static_cast<int>(request.number), RankEnd::kFailed, std::move(request.value)});
      answer("");
      return;
    default:  // kGoodbye: read_request accepts no other type
      left_[static_cast<size_t>(connection.rank)] = true;
      connection.left = true;
      end_rank({connection.rank, RankEnd::kLeft, "left the job"});
      answer("");
  }
}

void StoreServer::handle_hello(Connection& connection, const wire::Frame& frame) {
  if (frame.type != FrameType::kHello) throw IoError("store: the first frame is not a hello frame");
  PayloadReader payload(frame.payload);
  if (!wire::equal_constant_time(payload.text(), options_.token)) throw IoError("store: wrong token");
  const int64_t rank = payload.number();
  const int64_t world_size = payload.number();
  payload.finish();
  std::string why;
  bool again = false;
  if (world_size != options_.world_size) {
    why = str("this job has ", options_.world_size, " ranks, but world_size is ", world_size);
  } else if (rank < 0 || rank >= world_size) {
    why = str("rank ", rank, " is not in [0, ", world_size, ")");
  } else if (joined_[static_cast<size_t>(rank)] && !renew()) {
    const auto failure = failures_.first_failure();
    again = left_[static_cast<size_t>(rank)] && !failure;
    why = str("rank ", rank, " has already joined");
    if (again) why += " and left; other ranks have not left yet";
    if (failure) why += str("\n  rank ", failure->rank, ": ", failure->reason);
  }
  if (!why.empty()) {
    send(connection, again ? FrameType::kNotYet : FrameType::kRejected, 0, PayloadWriter().text(why).take());
    if (again) {
      connection.closing = true;
    } else {
      drop(connection, why);
    }
    return;
  }
  connection.rank = static_cast<int>(rank);
  joined_[static_cast<size_t>(rank)] = true;
  send(connection, FrameType::kWelcome, 0, "");
  for (const RankEndEvent& event : failures_.events()) {
    // An event that is not broadcast yet arrives twice; the rank's board keeps the first.
    send(connection, FrameType::kRankEnded, 0, encode_end(event));
  }
}

bool StoreServer::renew() {
  const auto is_false = [](bool value) { return !value; };
  if (!options_.renew || failures_.first_failure() || std::any_of(left_.begin(), left_.end(), is_false)) return false;
  failures_.clear();
  broadcasts_.clear();
  values_ = {};
  joined_.assign(joined_.size(), false);
  left_.assign(left_.size(), false);
  renewed_ = true;
  return true;
}

void StoreServer::set_value(const std::string& key, std::string value) {
  const auto waiting = waiters_.find(key);
  if (waiting != waiters_.end()) {
    for (const Waiter& waiter : waiting->second) reply(*waiter.connection, waiter.id, Status::kOk, value);
    waiters_.erase(waiting);
  }
  values_.set(key, std::move(value));
}

void StoreServer::send(Connection& connection, FrameType type, uint32_t id, std::string_view payload) {
  if (connection.closing) return;
  connection.out += wire::encode(type, id, payload);
  flush(connection);
  if (connection.out.size() - connection.sent > kMaxOutgoing) {
    lose_rank(connection, RankEnd::kLost, "does not read data from its connection to the store");
    drop(connection, "it does not read data");
  }
}

void StoreServer::reply(Connection& connection, uint32_t id, Status status, std::string_view text) {
  send(connection, FrameType::kReply, id, PayloadWriter().number(static_cast<int>(status)).text(text).take());
}

void StoreServer::flush(Connection& connection) {
  std::string& out = connection.out;
  while (connection.sent < out.size()) {
    const ssize_t n =
        ::send(connection.socket.get(), out.data() + connection.sent, out.size() - connection.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      connection.send_error = errno;
      break;  // recv also detects a broken connection, and handles it
    }
    connection.sent += static_cast<size_t>(n);
  }
  out.clear();
  connection.sent = 0;
}

void StoreServer::drop(Connection& connection, const std::string& why) {
  connection.closing = true;
  drop_log_.warn(connection.other_end, why);
}

void StoreServer::lose_rank(const Connection& connection, RankEnd end, const std::string& why) {
  if (connection.rank >= 0 && !connection.left) end_rank({connection.rank, end, why});
}

void StoreServer::end_rank(RankEndEvent event) {
  // Callbacks of the hosting process run here, on the server's thread, with mutex_ held: they must not call the server.
  if (failures_.report(event)) broadcasts_.push_back(std::move(event));
}

void StoreServer::remove_closed() {
  bool removed_rank = false;
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!it->closing) {
      ++it;
      continue;
    }
    for (auto waiting = waiters_.begin(); waiting != waiters_.end();) {
      std::erase_if(waiting->second, [&](const Waiter& w) { return w.connection == &*it; });
      waiting = waiting->second.empty() ? waiters_.erase(waiting) : std::next(waiting);
    }
    removed_rank = removed_rank || it->rank >= 0;
    it = connections_.erase(it);
  }
  if (removed_rank) emptied_.notify_all();
}

}}}  // namespace tandem::v0::distributed

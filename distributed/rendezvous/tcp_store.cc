#include <tandem/distributed/rendezvous/tcp_store.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 { namespace distributed {

using wire::FrameType;
using wire::PayloadReader;
using wire::PayloadWriter;
using wire::Status;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kGoodbyeTimeout{2};

// After a send has failed, time to wait for the reason of the connection's loss.
constexpr std::chrono::seconds kReasonTime{1};

int64_t to_number(const std::string& reply) {
  const std::optional<int64_t> number = parse_integer(reply);
  TANDEM_CHECK(CommError, number, "store: the server replied '", reply, "', expected an integer");
  return *number;
}

// Time that the host of a failed job waits for ranks that have not joined yet, so that they receive the reason.
constexpr std::chrono::milliseconds kLateRanks{30000};

// Pause between attempts to join while the host may still belong to a job that is ending.
constexpr std::chrono::milliseconds kPause{20};
constexpr int kMuteAttempts = 4;

/// Waits until the socket is ready; false if the deadline passed.
bool wait_ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd polled{fd, events, 0};
    const int n = poll(&polled, 1, milliseconds_until(deadline));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (Clock::now() >= deadline) return false;
  }
}

/// The beginning of the first line of `bytes`, in quotes; unprintable characters are replaced.
std::string shown(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, bytes.find_first_of("\r\n"))) {
    if (text.size() == 40) break;
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return "'" + text + "'";
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options) : options_(options) {
  wake_fd_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TANDEM_CHECK(IoError, bool{wake_fd_}, "store: cannot create an eventfd: ", std::strerror(errno));
  join();
  thread_ = start_thread([this] { run(); });
}

TcpStore::~TcpStore() { disconnect(); }

std::string TcpStore::host_text() const { return str(options_.host, ":", options_.port); }

std::string TcpStore::lost_text(const std::string& why) const {
  return str("the connection to the store's host ", host_text(), " was lost: ", why);
}

void TcpStore::join() {
  const auto deadline = deadline_after(options_.connect_timeout);
  auto pause = kPause;
  std::string not_yet;  // the host's latest answer that permits another attempt
  for (int mute = 0;;) {
    in_ = {};
    fd_ = connect_to(options_.host, options_.port, deadline);
    const Refusal refusal = shake_hands(deadline);
    if (refusal.text.empty()) return;
    // A host that closes the connection without an answer may belong to a job that is just ending.
    mute += refusal.mute ? 1 : 0;
    const bool again = refusal.again || (refusal.mute && mute < kMuteAttempts);
    if (refusal.again) not_yet = refusal.text;
    if (!again || Clock::now() + pause > deadline) {
      const bool is_late = !again && Clock::now() >= deadline;
      throw CommError(is_late && !not_yet.empty() ? not_yet : refusal.text, options_.rank);
    }
    std::this_thread::sleep_for(pause);
    if (refusal.mute) pause *= 3;
  }
}

TcpStore::Refusal TcpStore::shake_hands(Clock::time_point deadline) {
  const auto closed = [&] {
    return Refusal{str("store: ", host_text(), " closed the connection of rank ", options_.rank,
                       " before it joined\n  another job or program uses this port, or TANDEM_TOKEN is wrong"),
                   false, true};
  };
  const std::string hello =
      wire::encode(FrameType::kHello, 0,
                   PayloadWriter().text(options_.token).number(options_.rank).number(options_.world_size).take());
  // The message fits into the socket's buffer. Sending fails only if the host has closed the connection, possibly after
  // it has sent a reason.
  [[maybe_unused]] const ssize_t sent = send(fd_.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  std::string received;
  SilenceWatch watch;
  for (;;) {
    std::optional<wire::Frame> frame;
    try {
      frame = in_.next(wire::kMaxPayload);
      if (frame && frame->type == FrameType::kWelcome) return {};
      if (frame && (frame->type == FrameType::kRejected || frame->type == FrameType::kNotYet)) {
        return {
            str("store: ", host_text(), " rejected rank ", options_.rank, ": ", PayloadReader(frame->payload).text()),
            frame->type == FrameType::kNotYet, false};
      }
      if (frame) throw IoError("unexpected frame type");
    } catch (const IoError&) {
      return {str("store: ", host_text(), " is not a tandem store\n  it sent ", shown(received),
                  "\n  another program listens on this port; choose another one (MASTER_PORT)")};
    }
    if (!wait_ready(fd_.get(), POLLIN, std::min(deadline, Clock::now() + SilenceWatch::kInterval))) {
      const bool is_late = Clock::now() >= deadline;
      if (!is_late && !watch.is_lost(fd_.get())) continue;
      return {str("store: ", host_text(), " did not respond to rank ", options_.rank, " within ",
                  format_seconds(is_late ? options_.connect_timeout : kLostAfter),
                  "\n  another program may be listening on this port; choose another one (MASTER_PORT)")};
    }
    char bytes[4096];
    const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return closed();
    in_.append(bytes, static_cast<size_t>(n));
    if (received.size() < 64) received.append(bytes, static_cast<size_t>(n));
  }
}

void TcpStore::send_all(std::string_view bytes, Clock::time_point deadline) {
  const auto does_not_read = [&] {
    return CommError(str("store: ", host_text(), " does not accept data from rank ", options_.rank,
                         "; it may be stopped or overloaded"),
                     options_.rank);
  };
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return !sending_ || !lost_.empty(); });
  if (sending_) throw lost_.empty() ? does_not_read() : CommError("store: " + lost_, options_.rank);
  sending_ = true;
  lock.unlock();
  struct Turn {
    TcpStore& store;
    ~Turn() {
      std::lock_guard guard(store.mutex_);
      store.sending_ = false;
      store.changed_.notify_all();
    }
  };
  const Turn turn{*this};
  while (!bytes.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (wait_ready(fd_.get(), POLLOUT, deadline)) continue;
      // Part of a frame may have been sent, so the connection cannot be used any more.
      shutdown(fd_.get(), SHUT_RDWR);
      throw does_not_read();
    }
    const int error = errno;
    lock.lock();
    send_error_ = error;
    changed_.notify_all();
    changed_.wait_for(lock, kReasonTime, [&] { return !lost_.empty(); });
    const std::string text = lost_.empty() ? lost_text(std::strerror(error)) : lost_;
    lock.unlock();
    throw CommError("store: " + text, options_.rank);
  }
}

std::unique_ptr<TcpStore::Request> TcpStore::call(FrameType type, std::string_view payload, Clock::time_point deadline,
                                                  const std::vector<int>* awaited, uint32_t* id) {
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
  const auto has_ended = [&] {
    return request->done || !lost_.empty() || (awaited != nullptr && failures_.first_failure(*awaited).has_value());
  };
  if (!send_error) changed_.wait_until(lock, deadline, has_ended);
  pending_.erase(*id);
  if (request->done) return request;
  if (send_error) std::rethrow_exception(send_error);
  if (!lost_.empty()) throw CommError("store: " + lost_, options_.rank);
  return nullptr;
}

Clock::time_point TcpStore::reply_deadline() const {
  const bool any = options_.connect_timeout.count() > 0;
  return any ? Clock::now() + options_.reply_timeout : Clock::time_point::max();
}

TcpStore::Request TcpStore::call_now(FrameType type, std::string_view payload) {
  uint32_t id = 0;
  const auto request = call(type, payload, reply_deadline(), nullptr, &id);
  if (!request) {
    throw CommError(str("store: ", host_text(), " did not respond to rank ", options_.rank, " within ",
                        format_seconds(options_.reply_timeout)),
                    options_.rank);
  }
  if (request->status == Status::kError) throw CommError(request->text, options_.rank);
  return std::move(*request);
}

void TcpStore::set(const std::string& key, const std::string& value) {
  wire::check_size(key, value);
  call_now(FrameType::kSet, PayloadWriter().text(key).text(value).take());
}

std::string TcpStore::get_from(const std::string& key, const std::vector<int>& ranks,
                               std::chrono::milliseconds timeout) {
  const auto payload = [&](bool wait) { return PayloadWriter().text(key).number(wait ? 1 : 0).take(); };
  if (!failures_.first_failure(ranks)) {
    uint32_t id = 0;
    const auto request = call(FrameType::kGet, payload(true), deadline_after(timeout), &ranks, &id);
    if (request) return request->text;
    send_all(wire::encode(FrameType::kCancelGet, id, PayloadWriter().text(key).take()), reply_deadline());
  }
  if (failures_.first_failure(ranks)) {
    // Waiting is useless, but a rank may have set the key before it failed.
    const Request request = call_now(FrameType::kGet, payload(false));
    if (request.status == Status::kOk) return request.text;
  }
  const auto failure = failures_.first_failure(ranks);
  throw CommError(missing_key_text(key, ranks, timeout, failures_), options_.rank, failure ? failure->rank : -1);
}

bool TcpStore::contains(const std::vector<std::string>& keys) {
  PayloadWriter payload;
  payload.number(static_cast<int64_t>(keys.size()));
  for (const std::string& key : keys) payload.text(key);
  return call_now(FrameType::kCheck, payload.take()).text == "1";
}

int64_t TcpStore::num_keys() { return to_number(call_now(FrameType::kNumKeys, "").text); }

int64_t TcpStore::add(const std::string& key, int64_t delta) {
  return to_number(call_now(FrameType::kAdd, PayloadWriter().text(key).number(delta).take()).text);
}

std::string TcpStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  wire::check_size(key, expected, desired);
  return call_now(FrameType::kCompareSet, PayloadWriter().text(key).text(expected).text(desired).take()).text;
}

void TcpStore::offer(const std::string& key, const std::string& value) {
  uint32_t id = 0;
  {
    std::lock_guard lock(mutex_);
    if (!lost_.empty()) return;
    id = next_id_++;  // nobody waits for the reply
  }
  try {
    send_all(wire::encode(FrameType::kCompareSet, id, PayloadWriter().text(key).text("").text(value).take()),
             Clock::now() + kAnnounceTime);
  } catch (const CommError&) {
    // The store is lost; all ranks detect that.
  }
}

HookHandle TcpStore::watch(const std::string& key, std::function<void(const std::string& value)> f) {
  const auto handle = std::make_shared<HookHandle>(watches_.add(key, std::move(f)));
  uint32_t id = 0;
  {
    std::lock_guard lock(mutex_);
    id = next_id_++;
    watched_[id] = key;
  }
  send_all(wire::encode(FrameType::kGet, id, PayloadWriter().text(key).number(1).take()), reply_deadline());
  return HookHandle([this, handle, id, key] {
    handle->remove();
    {
      std::lock_guard lock(mutex_);
      if (watched_.erase(id) == 0 || !lost_.empty()) return;
    }
    try {
      send_all(wire::encode(FrameType::kCancelGet, id, PayloadWriter().text(key).take()), Clock::now() + kAnnounceTime);
    } catch (const CommError&) {  // nothing waits any more
    }
  });
}

bool TcpStore::delete_key(const std::string& key) {
  return call_now(FrameType::kDeleteKey, PayloadWriter().text(key).take()).text == "1";
}

void TcpStore::announce_failure(int rank, const std::string& reason) {
  const std::string payload = PayloadWriter().number(rank).text(reason.substr(0, 64u << 10)).take();
  uint32_t id = 0;
  if (call(FrameType::kAnnounceFailure, payload, Clock::now() + kAnnounceTime, nullptr, &id)) return;
  // A busy host that has received the announcement notifies the other ranks later.
  if (is_delivered(fd_.get())) return;
  const std::string why = str("it did not respond within ", format_seconds(kAnnounceTime));
  std::lock_guard lock(mutex_);
  cut(why);
  throw CommError("store: " + lost_text(why), options_.rank);
}

/// Ends the connection; the control thread then detects the loss. Call with mutex_ held.
void TcpStore::cut(const std::string& why) {
  if (cut_.empty()) cut_ = why;
  shutdown(fd_.get(), SHUT_RDWR);
}

HookHandle TcpStore::on_failure(std::function<void(int rank, const std::string& reason)> f) {
  return failures_.on_failure(std::move(f));
}

bool TcpStore::is_silent() const { return silence(fd_.get()) >= std::chrono::seconds(5); }

void TcpStore::leave() {
  try {
    uint32_t id = 0;
    call(FrameType::kGoodbye, "", Clock::now() + kGoodbyeTimeout, nullptr, &id);
  } catch (const CommError&) {
    // If the host is lost, it needs no goodbye.
  }
  disconnect();
  // Notifies waiting callers of this process, which would otherwise wait forever.
  failures_.report({-1, RankEnd::kLeft, str("rank ", options_.rank, " has left the job")});
  if (server_ == nullptr) return;
  const auto timeout = options_.connect_timeout;
  const bool failed = failures_.first_failure().has_value();
  server_->wait_until_empty(failed && (timeout.count() == 0 || timeout > kLateRanks) ? kLateRanks : timeout, true);
  server_.reset();
}

void TcpStore::leave(int) { leave(); }

void TcpStore::keep(std::unique_ptr<StoreServer> server) { server_ = std::move(server); }

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
  shutdown(fd_.get(), SHUT_RDWR);  // the descriptor stays open until no other thread can use it
}

void TcpStore::run() {
  SilenceWatch watch;
  auto next_look = Clock::now() + SilenceWatch::kInterval;
  try {
    for (;;) {
      while (const auto frame = in_.next(wire::kMaxPayload)) handle(*frame);
      pollfd polled[2] = {{fd_.get(), POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}};
      if (poll(polled, 2, milliseconds_until(next_look)) < 0 && errno != EINTR)
        throw IoError(str("poll failed: ", std::strerror(errno)));
      {
        std::lock_guard lock(mutex_);
        if (stop_) return;
        if (Clock::now() >= next_look) {
          next_look = Clock::now() + SilenceWatch::kInterval;
          if (watch.is_lost(fd_.get())) cut(str("it has not responded for ", format_seconds(kLostAfter)));
        }
      }
      if (polled[0].revents == 0) continue;
      char bytes[65536];
      const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) throw IoError(reason_of_loss(n < 0 ? errno : 0));
      in_.append(bytes, static_cast<size_t>(n));
    }
  } catch (const std::exception& e) {
    lose(error_text(e));
  }
}

/// `error`: errno of recv, or 0 if the host has closed the connection. After a reset only the first system call gets
/// the errno, so a concurrent send may have received it.
std::string TcpStore::reason_of_loss(int error) {
  std::unique_lock lock(mutex_);
  if (!cut_.empty()) return cut_;
  if (error == 0 || error == ENOTCONN) {
    changed_.wait_for(lock, kReasonTime, [&] { return !sending_ || send_error_ != 0; });
    error = send_error_ == EPIPE ? 0 : send_error_;
  }
  return error == 0 ? "it closed the connection" : std::strerror(error);
}

void TcpStore::handle(const wire::Frame& frame) {
  PayloadReader payload(frame.payload);
  if (frame.type == FrameType::kReply) {
    const auto status = static_cast<Status>(payload.number());
    std::string text = payload.text();
    std::unique_lock lock(mutex_);
    if (const auto watched = watched_.extract(frame.id)) {
      lock.unlock();
      watches_.notify(watched.mapped(), text);
      return;
    }
    const auto found = pending_.find(frame.id);
    if (found == pending_.end()) return;  // its caller no longer waits
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
  const std::string text = lost_text(why);
  {
    std::lock_guard lock(mutex_);
    lost_ = text;
    changed_.notify_all();
  }
  failures_.report({options_.host_rank, RankEnd::kDied, text});
}

std::shared_ptr<Store> make_tcp_store(const TcpStoreSettings& settings) {
  TANDEM_CHECK(ValueError, settings.port > 0 && settings.port < 65536,
               "make_tcp_store: port must be in [1, 65535], got ", settings.port);
  TANDEM_CHECK(ValueError, settings.rank >= 0 && settings.rank < settings.world_size, "make_tcp_store: rank ",
               settings.rank, " is not in [0, ", settings.world_size, ")");
  std::string token;
  if (!settings.token.empty()) {
    token = wire::token_from_hex(settings.token);
  } else if (const auto variable = env_string("TANDEM_TOKEN")) {
    token = wire::token_from_hex(*variable);
  } else {
    token = wire::token_from_name(env_string("TORCHELASTIC_RUN_ID").value_or(""));
  }
  std::unique_ptr<StoreServer> server;
  if (settings.is_host) {
    server = std::make_unique<StoreServer>(StoreServerOptions{.host = listening_address(settings.host),
                                                              .port = settings.port,
                                                              .token = token,
                                                              .world_size = settings.world_size,
                                                              .renew = false});
    server->start();
  }
  auto store = std::make_shared<TcpStore>(TcpStoreOptions{.host = settings.host,
                                                          .port = settings.port,
                                                          .token = token,
                                                          .rank = settings.rank,
                                                          .world_size = settings.world_size,
                                                          .connect_timeout = settings.timeout});
  store->keep(std::move(server));
  return store;
}

}}}  // namespace tandem::v0::distributed

#include <tandem/distributed/launch/node_link.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/launch/node_messages.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;

// World size of the launchers' store. It does not depend on --nnodes, so that a launcher with another --nnodes can
// still join and be reported. Ranks from kMaxNodes on are for launchers that report a conflict.
constexpr int kStoreWorldSize = kMaxNodes + 8;

// Duration of one connection attempt; signals are checked between attempts.
constexpr std::chrono::milliseconds kConnectAttempt{500};
constexpr std::chrono::milliseconds kRetryPause{50};
// Time for an accepted connection to complete the handshake.
constexpr std::chrono::seconds kHandshakeTimeout{10};
// Time for messages to be sent, and for other launchers to disconnect, at the end of the job.
constexpr std::chrono::seconds kLeaveTimeout{5};
// Pause before waiting again for a message after a failed wait.
constexpr std::chrono::milliseconds kRetryInterval{20};
constexpr std::chrono::hours kMaxWait{1};

std::string last_line_part(const std::string& text) {
  const size_t colon = text.rfind(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

/// Whether another launcher has already joined the store with this rank.
bool is_rank_taken(const CommError& e) {
  return std::string_view(e.what()).find("has already joined") != std::string_view::npos;
}

}  // namespace

NodeLink::NodeLink(const NodeOptions& options, const std::function<bool()>& interrupted)
    : options_(options), changed_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TANDEM_CHECK(IoError, bool{changed_fd_}, "launch: cannot create an eventfd: ", std::strerror(errno));
  if (options_.node == 0) {
    try {
      server_ = std::make_unique<StoreServer>(StoreServerOptions{.host = listening_address(options_.host),
                                                                 .port = options_.port,
                                                                 .token = options_.token,
                                                                 .world_size = kStoreWorldSize});
    } catch (const IoError& e) {
      report_conflict("two launchers were started as node 0");
      throw IoError(str(e.what(), "\n  node 0 listens on the endpoint, which must be a free port of this host"));
    }
    server_->start();
    options_.port = server_->port();
  }
  const auto deadline = options_.timeout.count() > 0 ? Clock::now() + options_.timeout : Clock::time_point::max();
  for (bool reached = false; !reached;) {
    if (interrupted()) throw CommError("launch: stopped by a signal");
    try {
      connect_to(options_.host, options_.port, Clock::now() + kConnectAttempt);
      reached = true;
    } catch (const CommError& e) {
      std::this_thread::sleep_for(kRetryPause);  // not every failed attempt takes time
      TANDEM_CHECK(CommError, Clock::now() < deadline, "launch: node ", options_.node, " did not reach node 0 at ",
                   options_.host, ":", options_.port, " within ", format_seconds(options_.timeout), ": ",
                   last_line_part(e.what()), loopback_hint(options_.host));
    }
  }
  try {
    store_ = connect(options_.node, kHandshakeTimeout);
  } catch (const CommError& e) {
    if (!is_rank_taken(e)) throw;
    const std::string text = str("two launchers were started as node ", options_.node);
    report_conflict(text);
    throw CommError("launch: " + text);
  }
  watch_ = store_->on_failure([this](int, const std::string&) { notify(); });
  try {
    reader_ = start_thread([this] { receive_messages(); });
    writer_ = start_thread([this] { send_messages(); });
  } catch (...) {
    stop();
    throw;
  }
}

NodeLink::~NodeLink() { stop(); }

void NodeLink::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (store_) store_->disconnect();  // unblocks the threads; leave() could block if the process of node 0 is stopped
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
  watch_.remove();
}

std::unique_ptr<TcpStore> NodeLink::connect(int rank, std::chrono::milliseconds timeout) const {
  return std::make_unique<TcpStore>(TcpStoreOptions{.host = options_.host,
                                                    .port = options_.port,
                                                    .token = options_.token,
                                                    .rank = rank,
                                                    .world_size = kStoreWorldSize,
                                                    .connect_timeout = timeout});
}

void NodeLink::report_conflict(const std::string& text) {
  for (int rank = kMaxNodes; rank < kStoreWorldSize && !store_; ++rank) {
    try {
      store_ = connect(rank, kConnectAttempt);
    } catch (const CommError& e) {
      if (!is_rank_taken(e)) return;  // no server to report to
    }
  }
  if (!store_) return;
  try {
    NodeEvent event;
    event.kind = NodeEvent::Kind::kConflict;
    event.node = options_.node;
    event.text = text;
    store_->set(str("up/", store_->add("up", 1)), encode(event));
  } catch (const CommError&) {
    // The job is over.
  }
  store_->leave();
  store_.reset();
}

void NodeLink::notify() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(changed_fd_.get(), &one, sizeof(one));
}

void NodeLink::send(std::string message) {
  std::lock_guard lock(mutex_);
  outgoing_.push_back(std::move(message));
  changed_.notify_all();
}

void NodeLink::send_messages() {
  std::unique_lock lock(mutex_);
  for (int number = 1;; ++number) {
    changed_.wait(lock, [&] { return stop_ || !outgoing_.empty(); });
    if (stop_) return;
    const std::string message = outgoing_.front();
    lock.unlock();
    try {
      if (options_.node == 0) {
        store_->set(str("down/", number), message);
      } else {
        store_->set(str("up/", store_->add("up", 1)), message);
      }
    } catch (const CommError&) {
      // lost() reports the lost connection.
    }
    lock.lock();
    outgoing_.pop_front();
    changed_.notify_all();
  }
}

void NodeLink::receive_messages() {
  const std::string prefix = options_.node == 0 ? "up/" : "down/";
  for (int number = 1;;) {
    try {
      // Only the loss of node 0 ends the wait: without it no message can arrive.
      std::string message = store_->get_from(str(prefix, number), {0}, kMaxWait);
      std::lock_guard lock(mutex_);
      received_.push_back(std::move(message));
      ++number;
      notify();
    } catch (const CommError&) {
      const auto events = store_->failures().events();
      const auto end = std::find_if(events.begin(), events.end(), [](const auto& e) { return e.rank < 0; });
      std::unique_lock lock(mutex_);
      if (end != events.end()) {
        if (end->end != RankEnd::kLeft) connection_lost_ = end->reason;
        notify();
        return;
      }
      if (changed_.wait_for(lock, kRetryInterval, [&] { return stop_; })) return;
    }
  }
}

std::vector<std::string> NodeLink::received() {
  uint64_t changes = 0;
  [[maybe_unused]] const ssize_t n = read(changed_fd_.get(), &changes, sizeof(changes));
  std::lock_guard lock(mutex_);
  return std::exchange(received_, {});
}

std::vector<std::pair<int, std::string>> NodeLink::lost() {
  std::vector<std::pair<int, std::string>> nodes;
  for (const RankEndEvent& event : store_->failures().events()) {
    if (event.end == RankEnd::kLeft || event.rank < 0 || event.rank >= kMaxNodes) continue;
    if (reported_lost_.insert(event.rank).second) nodes.emplace_back(event.rank, event.reason);
  }
  std::lock_guard lock(mutex_);
  if (const auto why = std::exchange(connection_lost_, std::nullopt)) nodes.emplace_back(0, *why);
  return nodes;
}

void NodeLink::leave(const std::vector<int>& lost_nodes) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLeaveTimeout, [&] { return outgoing_.empty(); });
  }
  store_->leave();
  if (!server_) return;
  for (const int node : lost_nodes) server_->disconnect(node);
  server_->wait_until_empty(kLeaveTimeout);
}

}}}  // namespace tandem::v0::distributed

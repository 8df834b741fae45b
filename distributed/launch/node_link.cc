#include <tandem/distributed/launch/node_link.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/launch/node_messages.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;

// All launchers claim a world of this size, so that one that was told another number of nodes still gets to say so.  The
// places above kMaxNodes are for launchers that complain.
constexpr int kSlots = kMaxNodes + 8;

// One attempt to connect, after which signals are looked at; and what somebody who listens has to answer.
constexpr std::chrono::milliseconds kConnectSlice{500};
constexpr std::chrono::seconds kAnswerTime{10};
// For those who leave after the job's end.
constexpr std::chrono::seconds kLeaveTime{5};
// A letter that could not be waited for is asked for again after this time.
constexpr std::chrono::milliseconds kAskAgain{20};
constexpr std::chrono::hours kLong{1};

std::string last_line_part(const std::string& text) {
  const size_t colon = text.rfind(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

/// Whether somebody else has joined the store in this place.
bool is_taken(const CommError& e) {
  return std::string_view(e.what()).find("has already joined") != std::string_view::npos;
}

}  // namespace

NodeLink::NodeLink(const NodeOptions& options, const std::function<bool()>& interrupted)
    : options_(options), changed_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TANDEM_CHECK(IoError, bool{changed_fd_}, "launch: eventfd: ", std::strerror(errno));
  if (options_.node == 0) {
    try {
      server_ = std::make_unique<StoreServer>(StoreServerOptions{
          .host = options_.host, .port = options_.port, .token = options_.token, .world_size = kSlots});
    } catch (const IoError& e) {
      complain("two launchers were started as node 0");
      throw IoError(str(e.what(), "\n  node 0 listens on the endpoint, which must be a free port of this host"));
    }
    server_->start();
  }
  const auto deadline = options_.timeout.count() > 0 ? Clock::now() + options_.timeout : Clock::time_point::max();
  for (bool reached = false; !reached;) {
    if (interrupted()) throw CommError("launch: stopped by a signal");
    try {
      connect_to(options_.host, options_.port, Clock::now() + kConnectSlice);
      reached = true;
    } catch (const CommError& e) {
      TANDEM_CHECK(CommError, Clock::now() < deadline, "launch: node ", options_.node, " did not reach node 0 at ",
                   options_.host, ":", options_.port, " within ", format_seconds(options_.timeout), ": ",
                   last_line_part(e.what()));
    }
  }
  try {
    store_ = connect(options_.node, kAnswerTime);
  } catch (const CommError& e) {
    if (!is_taken(e)) throw;
    const std::string text = str("two launchers were started as node ", options_.node);
    complain(text);
    throw CommError("launch: " + text);
  }
  watch_ = store_->on_failure([this](int, const std::string&) { notify(); });
  try {
    reader_ = start_thread([this] { read_letters(); });
    writer_ = start_thread([this] { write_letters(); });
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
  if (store_)
    store_->disconnect();  // wakes them where they wait for the store; a node 0 that is stopped answers no goodbye
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
  watch_.remove();
}

std::unique_ptr<TcpStore> NodeLink::connect(int slot, std::chrono::milliseconds timeout) const {
  return std::make_unique<TcpStore>(TcpStoreOptions{.host = options_.host,
                                                    .port = options_.port,
                                                    .token = options_.token,
                                                    .rank = slot,
                                                    .world_size = kSlots,
                                                    .connect_timeout = timeout});
}

void NodeLink::complain(const std::string& text) {
  for (int slot = kMaxNodes; slot < kSlots && !store_; ++slot) {
    try {
      store_ = connect(slot, kConnectSlice);
    } catch (const CommError& e) {
      if (!is_taken(e)) return;  // there is nobody to be told
    }
  }
  if (!store_) return;
  try {
    NodeEvent event;
    event.kind = NodeEvent::Kind::kComplaint;
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

void NodeLink::send(std::string letter) {
  std::lock_guard lock(mutex_);
  outgoing_.push_back(std::move(letter));
  changed_.notify_all();
}

void NodeLink::write_letters() {
  std::unique_lock lock(mutex_);
  for (int number = 1;; ++number) {
    changed_.wait(lock, [&] { return stop_ || !outgoing_.empty(); });
    if (stop_) return;
    const std::string letter = outgoing_.front();
    lock.unlock();
    try {
      if (options_.node == 0) {
        store_->set(str("down/", number), letter);
      } else {
        store_->set(str("up/", store_->add("up", 1)), letter);
      }
    } catch (const CommError&) {
      // The connection is lost, which lost() tells.
    }
    lock.lock();
    outgoing_.pop_front();
    changed_.notify_all();
  }
}

void NodeLink::read_letters() {
  const std::string box = options_.node == 0 ? "up/" : "down/";
  for (int number = 1;;) {
    try {
      // Node 0, and whoever asks, are those without whom no letter comes.
      std::string letter = store_->get_from(str(box, number), {0}, kLong);
      std::lock_guard lock(mutex_);
      letters_.push_back(std::move(letter));
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
      if (changed_.wait_for(lock, kAskAgain, [&] { return stop_; })) return;
    }
  }
}

std::vector<std::string> NodeLink::received() {
  uint64_t changes = 0;
  [[maybe_unused]] const ssize_t n = read(changed_fd_.get(), &changes, sizeof(changes));
  std::lock_guard lock(mutex_);
  return std::exchange(letters_, {});
}

std::vector<std::pair<int, std::string>> NodeLink::lost() {
  std::vector<std::pair<int, std::string>> nodes;
  for (const RankEndEvent& event : store_->failures().events()) {
    if (event.end == RankEnd::kLeft || event.rank < 0 || event.rank >= kMaxNodes) continue;
    if (told_lost_.insert(event.rank).second) nodes.emplace_back(event.rank, event.reason);
  }
  std::lock_guard lock(mutex_);
  if (const auto why = std::exchange(connection_lost_, std::nullopt)) nodes.emplace_back(0, *why);
  return nodes;
}

void NodeLink::leave(const std::vector<int>& given_up) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLeaveTime, [&] { return outgoing_.empty(); });
  }
  store_->leave();
  if (!server_) return;
  for (const int node : given_up) server_->disconnect(node);
  server_->wait_until_empty(kLeaveTime);
}

}}}  // namespace tandem::v0::distributed

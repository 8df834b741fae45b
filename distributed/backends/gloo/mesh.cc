#include <tandem/distributed/backends/gloo/mesh.h>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/gloo/connected_pairs.h>
#include <tandem/distributed/backends/gloo/handshake.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

namespace {

constexpr std::chrono::seconds kGoodbyeTime{1};
constexpr std::chrono::milliseconds kLastDataTime{700};
constexpr std::chrono::milliseconds kCutTime{100};
constexpr std::chrono::milliseconds kLastWordTime{50};
constexpr std::chrono::milliseconds kReasonTime{500};

/// Translates Gloo's error text for a lost connection into the words that the store uses.
std::string reason_of(const std::string& why) {
  const auto says = [&](const char* text) { return why.find(text) != std::string::npos; };
  for (const char* text : {"closed", "reset by peer", "Broken pipe"}) {
    if (says(text)) return "died (its connection closed)";
  }
  if (says("imed out")) return "cannot be reached (its connection timed out)";
  // Gloo's texts begin with a source location.
  return why.rfind('[', 0) == 0 ? "cannot be reached (its connection failed)" : why;
}

/// The part of host_identity() that all ranks with the same running kernel and network share. It excludes the part that
/// users set.
std::string machine_of(const std::string& identity) { return identity.substr(0, identity.rfind('/')); }

std::shared_ptr<::gloo::transport::Device> make_device(const std::string& address) {
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  std::shared_ptr<::gloo::transport::Device> device;
  without_signals([&] { device = ::gloo::transport::tcp::CreateDevice(attributes); });  // starts a thread
  return device;
}

}  // namespace

/// Calls Link::flush on its own thread, and only while Gloo's thread is paused. Gloo's thread polls an eventfd of this
/// class together with the descriptors of its connections; its handler (handleEvents) blocks until the writing is done.
/// Between writes this thread checks for silent peers.
///
/// Gloo's thread must not write itself. If a write fails, Gloo closes the connection. If epoll has reported an event of
/// that connection together with the eventfd, Gloo's thread would then handle a closed connection and terminate the
/// process. This class's thread holds the connection's lock while it writes, so Gloo's thread skips that connection.
class Mesh::Flusher final : public ::gloo::transport::tcp::Handler {
 public:
  explicit Flusher(Mesh& mesh)
      : mesh_(mesh),
        device_(static_cast<::gloo::transport::tcp::Device&>(*mesh.device_)),
        wanted_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    device_.registerDescriptor(wanted_.get(), EPOLLIN, this);
    try {
      writer_ = start_thread([this] { run(); });
    } catch (...) {
      device_.unregisterDescriptor(wanted_.get(), this);
      throw;
    }
  }
  ~Flusher() override {
    device_.unregisterDescriptor(wanted_.get(), this);  // waits until no handleEvents runs
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    writer_.join();
  }

  void want() {
    if (is_wanted_.exchange(true)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wanted_.get(), &one, sizeof(one));
  }

  void handleEvents(int) override {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(wanted_.get(), &count, sizeof(count));
    std::unique_lock lock(mutex_);
    const uint64_t round = ++asked_;
    changed_.notify_all();
    // The wait is bounded: a writer whose connection is being closed waits until this thread polls its events again.
    changed_.wait_for(lock, kLongestWrite, [&] { return done_ >= round; });
  }

 private:
  static constexpr std::chrono::milliseconds kLongestWrite{20};

  void run() {
    Clock::time_point next_look = Clock::now() + SilenceWatch::kInterval;
    std::unique_lock lock(mutex_);
    for (;;) {
      const bool is_asked = changed_.wait_until(lock, next_look, [&] { return stop_ || done_ < asked_; });
      if (stop_) return;
      if (Clock::now() >= next_look) {
        next_look = Clock::now() + SilenceWatch::kInterval;
        lock.unlock();
        mesh_.close_lost_connections();
        lock.lock();
      }
      if (!is_asked) continue;
      const uint64_t round = asked_;
      lock.unlock();
      is_wanted_.store(false);
      for (size_t peer = 0; peer < mesh_.links_.size(); ++peer) {
        if (mesh_.links_[peer] != nullptr && mesh_.links_[peer]->flush()) mesh_.set_send_buffer(peer);
      }
      lock.lock();
      done_ = round;
      changed_.notify_all();
    }
  }

  Mesh& mesh_;
  ::gloo::transport::tcp::Device& device_;
  FileDescriptor wanted_;
  std::atomic<bool> is_wanted_{false};
  std::thread writer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t asked_ = 0;  // rounds of writing
  uint64_t done_ = 0;
  bool stop_ = false;
};

Mesh::Mesh(const ProcessGroupOptions& options, const Tuning& tuning)
    : options_(options),
      tuning_(tuning),
      max_payload_(kInlineBytes + 2048 + 32 * static_cast<size_t>(options.world_size)),
      watches_(static_cast<size_t>(options.world_size)),
      gone_(static_cast<size_t>(options.world_size)),
      silent_(static_cast<size_t>(options.world_size)),
      links_(static_cast<size_t>(options.world_size)),
      lost_(static_cast<size_t>(options.world_size)) {
  if (options.world_size == 1) {
    hosts_ = {host_identity(options)};
    return;
  }
  try {
    join();
  } catch (const ::gloo::Exception& e) {
    close(kCutTime);
    fail_to_join(options_, str("gloo: ", e.what()));
  } catch (const ::gloo::EnforceNotMet& e) {
    close(kCutTime);
    fail_to_join(options_, str("gloo: ", e.what()));
  } catch (...) {
    close(kCutTime);
    throw;
  }
}

Mesh::~Mesh() { close(kGoodbyeTime); }

// --- connecting ---

void Mesh::join() {
  Rendezvous rendezvous(options_, "gloo");
  if (options_.rank == 0) rendezvous.set("token", wire::token_to_hex(wire::random_token()));
  hosts_ = rendezvous.exchange("host", host_identity(options_));
  const std::string token = rendezvous.get("token", 0);
  const bool same_machine = std::all_of(
      hosts_.begin(), hosts_.end(), [&](const std::string& host) { return machine_of(host) == machine_of(hosts_[0]); });
  interface_ = choose_interface(options_, same_machine);
  device_ = make_device(interface_.address);
  connect(rendezvous, token);
  rendezvous.finish();
}

/// Returns when all ranks have opened all their links.
void Mesh::connect(Rendezvous& rendezvous, const std::string& token) {
  Connections connections = connect_ranks(options_, interface_, token, rendezvous);
  const int missing = connections.missing;
  std::string error;
  if (missing < 0) {
    sockets_ = std::move(connections.sockets);
    error = start_links();
  } else if (Clock::now() >= rendezvous.deadline()) {
    fail_to_join(
        options_,
        str("rendezvous timed out after ", format_seconds(options_.timeout), "\n  rank ", job_rank(options_, missing),
            ": no connection over ", interface_.name, " (", interface_.address, ")"),
        missing);
  } else {
    error = str("no connection to rank ", job_rank(options_, missing), connections.error.empty() ? "" : ": ",
                connections.error);
  }
  const std::vector<std::string> errors = rendezvous.exchange("connected", error.empty() ? "ok" : error);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const std::string& text = errors[static_cast<size_t>(rank)];
    if (text == "ok") continue;
    fail_to_join(options_, str("the ranks cannot connect over ", interface_.name, " (", interface_.address,
                               ")\n  rank ", job_rank(options_, rank), ": ", text));
  }
}

/// Returns an empty string, or the reason why a connection cannot be used.
std::string Mesh::start_links() {
  for (const FileDescriptor& socket : sockets_) {
    if (socket) tune_connection(socket.get());
  }
  context_ = device_->createContext(options_.rank, options_.world_size);
  context_->setTimeout(::gloo::kNoTimeout);
  LinkEvents* const events = this;
  try {
    make_connected_pairs(*device_, *context_, sockets_, [&](int peer, ::gloo::transport::Pair& pair) {
      links_[static_cast<size_t>(peer)] =
          std::make_unique<Link>(&pair, options_.rank, peer, tuning_, max_payload_, events);
    });
  } catch (const std::exception& e) {
    return reason_of(e.what());
  }
  flusher_ = std::make_unique<Flusher>(*this);
  for (const auto& link : links_) {
    if (link != nullptr) link->start();
  }
  has_started_ = true;
  return "";
}

/// Sets the size of the send buffer to one data frame. If it is smaller, the rest of a frame waits for the peer's
/// delayed acknowledgement; if it is larger, control records wait behind the data in it.
void Mesh::set_send_buffer(size_t peer) {
  const auto num_bytes = static_cast<int>(tuning_.chunk_bytes);
  setsockopt(sockets_[peer].get(), SOL_SOCKET, SO_SNDBUF, &num_bytes, sizeof(num_bytes));
}

// --- running ---

void Mesh::frame_arrived(Frame frame) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(frame));
  }
  wake();
}

void Mesh::link_moved(int) { wake(); }

void Mesh::flush_wanted() { flusher_->want(); }

void Mesh::link_lost(int peer, const std::string& why, bool left) {
  {
    std::unique_lock lock(mutex_);
    // A rank that throws out of the function that owns the group leaves before its error arrives at the store. So wait
    // for the error here.
    if (left) changed_.wait_for(lock, kReasonTime, [&] { return !polls_; });
    const bool is_silent = silent_[static_cast<size_t>(peer)];
    lost_[static_cast<size_t>(peer)] = reason_of(is_silent ? "timed out" : why);
  }
  wake();
}

void Mesh::close_lost_connections() {
  for (size_t peer = 0; peer < sockets_.size(); ++peer) {
    if (!sockets_[peer] || !watches_[peer].is_lost(sockets_[peer].get())) continue;
    silent_[peer] = true;
    // Then Gloo closes the connection, and the link reports it lost after all frames that have arrived.
    shutdown(sockets_[peer].get(), SHUT_RDWR);
  }
}

void Mesh::stop_polling() {
  {
    std::lock_guard lock(mutex_);
    polls_ = false;
  }
  changed_.notify_all();
}

void Mesh::take(std::vector<Frame>& frames) {
  std::lock_guard lock(mutex_);
  if (frames.empty()) {
    frames.swap(inbox_);
    return;
  }
  std::move(inbox_.begin(), inbox_.end(), std::back_inserter(frames));
  inbox_.clear();
}

std::optional<std::string> Mesh::lost(int peer) const {
  std::lock_guard lock(mutex_);
  return lost_[static_cast<size_t>(peer)];
}

void Mesh::sleep(FunctionRef<bool()> changed, Clock::time_point until) {
  // Sequentially consistent on both sides: either the thread that makes a change sees the sleeper, or the sleeper,
  // which checks again after it has registered, sees the change.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t before = changes_.load(std::memory_order_seq_cst);
  if (!changed()) {
    constexpr std::chrono::hours kLongTimeout{1};
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, std::min(until, Clock::now() + kLongTimeout),
                        [&] { return changes_.load(std::memory_order_seq_cst) != before; });
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Mesh::wake() {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  if (notifies_.load(std::memory_order_acquire)) also_wake_();
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void Mesh::notify(const std::function<void()>& wake) {
  also_wake_ = wake;
  notifies_.store(true, std::memory_order_release);
}

// --- closing ---

void Mesh::expect_nothing_of(int rank) {
  for (int peer = 0; peer < options_.world_size; ++peer) {
    if (rank < 0 || job_rank(options_, peer) == rank) gone_[static_cast<size_t>(peer)] = true;
  }
}

void Mesh::poison(const std::string& payload) {
  stop_polling();
  for (const auto& link : links_) {
    if (link != nullptr) link->send_poison(payload);
  }
  const auto wait = [&](std::chrono::milliseconds longest, bool also_lost) {
    const auto deadline = Clock::now() + longest;
    for (size_t peer = 0; peer < links_.size(); ++peer) {
      const auto& link = links_[peer];
      const auto is_over = [&] { return !also_lost && (link->is_lost() || gone_[peer]); };
      while (link != nullptr && link->reads_memory() && !is_over() && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  };
  wait(kLastDataTime, false);
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer] != nullptr && links_[peer]->reads_memory()) shutdown(sockets_[peer].get(), SHUT_RDWR);
  }
  // From here on the kernel does not read the memory any more. Gloo detects the shutdown a moment later.
  wait(kCutTime, true);
}

void Mesh::close(std::chrono::milliseconds patience) {
  stop_polling();
  for (const auto& link : links_) {
    if (link != nullptr && has_started_) link->send(FrameType::kGoodbye, {});
  }
  // Closing immediately would reset connections that have unread data, and lose data in flight: poison or a goodbye. So
  // wait a short time even for peers from which no acknowledgement is expected.
  const auto begin = Clock::now();
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const auto& link = links_[peer];
    const auto longest = [&] { return link->is_lost() || gone_[peer] ? std::min(kLastWordTime, patience) : patience; };
    while (has_started_ && link != nullptr && !link->all_acked() && Clock::now() - begin < longest()) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  for (const FileDescriptor& socket : sockets_) {
    if (socket) shutdown(socket.get(), SHUT_RDWR);
  }
  for (const auto& link : links_) {
    if (link != nullptr) link->stop();
  }
  flusher_.reset();
  links_.clear();
  context_.reset();
  device_.reset();
  sockets_.clear();
}

}}}  // namespace tandem::v0::distributed::gloo

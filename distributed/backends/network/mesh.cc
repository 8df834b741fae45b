#include <tandem/distributed/backends/network/mesh.h>

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/network/handshake.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

constexpr std::chrono::seconds kGoodbyeTime{1};
constexpr std::chrono::milliseconds kLastWordTime{50};
constexpr int kMaxReady = 16;
constexpr int kMaxTaken = 16;  // frames

/// The part of host_identity() that all ranks with the same running kernel and network share. It excludes the part that
/// users set.
std::string machine_of(const std::string& identity) { return identity.substr(0, identity.rfind('/')); }

}  // namespace

Mesh::Mesh(const ProcessGroupOptions& options, const Tuning& tuning)
    : options_(options),
      tuning_(tuning),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      links_(static_cast<size_t>(options.world_size)),
      ends_(static_cast<size_t>(options.world_size)),
      watches_(static_cast<size_t>(options.world_size)) {
  if (options.world_size == 1) {
    hosts_ = {host_identity(options)};
    return;
  }
  try {
    join();
  } catch (...) {
    close(kLastWordTime);
    throw;
  }
}

Mesh::~Mesh() { close(kGoodbyeTime); }

// --- connecting ---

void Mesh::join() {
  Rendezvous rendezvous(options_, "gloo");
  if (options_.rank == 0) rendezvous.set("token", wire::token_to_hex(wire::random_token()));
  exchange_hosts(rendezvous);
  const std::string token = rendezvous.get("token", 0);
  const bool same_machine = std::all_of(
      hosts_.begin(), hosts_.end(), [&](const std::string& host) { return machine_of(host) == machine_of(hosts_[0]); });
  interface_ = choose_interface(options_, same_machine);
  thread_ = ReceivingThread::get();
  connect(rendezvous, token);
  rendezvous.finish();
}

/// Finds the host of each rank, and whether the ranks of this machine have a core each.
void Mesh::exchange_hosts(Rendezvous& rendezvous) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  const std::string own = host_identity(options_);
  hosts_ = rendezvous.exchange("host", own + std::string(reinterpret_cast<const char*>(&cores), sizeof(cores)));
  int num_ranks = 0;
  for (std::string& host : hosts_) {
    cpu_set_t theirs;
    std::memcpy(&theirs, host.data() + host.size() - sizeof(theirs), sizeof(theirs));
    host.resize(host.size() - sizeof(theirs));
    if (machine_of(host) != machine_of(own)) continue;
    ++num_ranks;
    CPU_OR(&cores, &cores, &theirs);
  }
  has_core_ = num_ranks <= CPU_COUNT(&cores);
}

/// Returns when all ranks have opened all their connections.
void Mesh::connect(Rendezvous& rendezvous, const std::string& token) {
  Connections connections = connect_ranks(options_, interface_, token, rendezvous);
  std::string& error = connections.error;
  try {
    if (connections.missing < 0) open(std::move(connections.sockets));
  } catch (const IoError& e) {
    error = e.what();
  }
  const std::vector<std::string> errors = rendezvous.exchange("connected", error.empty() ? "ok" : error);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const std::string& text = errors[static_cast<size_t>(rank)];
    if (text == "ok") continue;
    fail_to_join(options_, str("the ranks cannot connect over ", interface_.name, " (", interface_.address,
                               ")\n  rank ", job_rank(options_, rank), ": ", text));
  }
}

void Mesh::open(std::vector<FileDescriptor> sockets) {
  const auto watch = [&](int fd, uint32_t events, int rank) {
    epoll_event event = {};
    event.events = events | EPOLLET;
    event.data.u32 = static_cast<uint32_t>(rank);
    TANDEM_CHECK(IoError, epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0,
                 "gloo: epoll_ctl failed: ", std::strerror(errno));
  };
  TANDEM_CHECK(IoError, events_ && signal_, "gloo: cannot wait for connections: no file descriptors are left");
  watch(signal_.get(), EPOLLIN, options_.rank);
  const size_t max_payload = kInlineBytes + 2048 + 32 * sockets.size();
  for (size_t peer = 0; peer < sockets.size(); ++peer) {
    if (!sockets[peer]) continue;
    watch(sockets[peer].get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, static_cast<int>(peer));
    links_[peer] = std::make_unique<Connection>(std::move(sockets[peer]), static_cast<int>(peer), tuning_, max_payload);
  }
}

// --- receiving ---

/// Reads unless another thread does; then that thread reads again. Returns whether anything has changed.
bool Mesh::receive(bool waits) {
  bool moved = false;
  receives_again_ = true;
  while (receives_again_ || waits) {
    std::unique_lock lock(receive_mutex_, std::defer_lock);
    if (std::exchange(waits, false)) {
      lock.lock();
    } else if (!lock.try_lock()) {
      break;
    }
    receives_again_ = false;
    moved |= receive_once();
  }
  if (moved) wake();
  return moved;
}

bool Mesh::receive_once() {
  epoll_event events[kMaxReady] = {};
  const int count = epoll_wait(events_.get(), events, kMaxReady, 0);
  bool moved = count == kMaxReady;  // there may be more
  for (int i = 0; i < count; ++i) {
    Connection* const link = links_[events[i].data.u32].get();
    if (link == nullptr) continue;  // signal_
    const uint32_t end = events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if ((events[i].events & EPOLLIN) != 0 || end != 0) link->set_readable(end != 0);
    if ((events[i].events & EPOLLERR) != 0) link->receive(received_);  // flush() would take the socket's error
    if ((events[i].events & (EPOLLOUT | EPOLLERR)) != 0) moved |= link->flush();
  }
  for (const auto& link : links_) {
    if (link != nullptr) link->receive(received_);
  }
  moved |= !received_.empty();
  std::lock_guard lock(mutex_);
  std::move(received_.begin(), received_.end(), std::back_inserter(inbox_));
  received_.clear();
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer] == nullptr || links_[peer]->ended().empty() || ends_[peer]) continue;
    ends_[peer] = {links_[peer]->has_left(), links_[peer]->ended(), Clock::now()};
    any_ended_ = moved = true;
  }
  return moved;
}

void Mesh::take(std::vector<Frame>& frames, bool waits) {
  receive(waits);
  std::lock_guard lock(mutex_);
  for (int i = 0; i < kMaxTaken && !inbox_.empty(); ++i) {
    frames.push_back(std::move(inbox_.front()));
    inbox_.pop_front();
  }
}

const Backend::PeerEnd* Mesh::end(int peer) const {
  if (!any_ended_) return nullptr;
  std::lock_guard lock(mutex_);
  const auto& end = ends_[static_cast<size_t>(peer)];
  return end ? &*end : nullptr;
}

Mesh::Clock::time_point Mesh::check() {
  const Clock::time_point now = Clock::now();
  std::lock_guard lock(mutex_);
  if (now < next_look_) return next_look_;
  next_look_ = now + SilenceWatch::kInterval;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const bool is_open = links_[peer] != nullptr && !ends_[peer];
    if (is_open && watches_[peer].is_lost(links_[peer]->descriptor())) links_[peer]->give_up();
  }
  return next_look_;
}

// --- sleeping ---

void Mesh::serve_by_thread(bool serve) {
  std::lock_guard lock(serve_mutex_);
  serve |= serves_always_;
  if (thread_ == nullptr || serve == is_served_) return;
  is_served_ = serve;
  serve ? thread_->add(*this) : thread_->remove(*this);
  wake();  // sleepers now wait for other events
}

void Mesh::serve_unsent() {
  const bool is_unsent =
      std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link != nullptr && link->is_unsent(); });
  if (is_unsent) serve_by_thread(true);
}

void Mesh::sleep(FunctionRef<bool()> changed, Clock::time_point until) {
  const uint64_t before = changes_;
  if (changed()) return;
  until = std::min(until, check());
  // Either the thread that makes a change sees the sleeper, or the sleeper, which compares again after it has
  // registered, sees the change.
  ++sleepers_;
  if (is_served_) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return changes_ != before; });
  } else {
    ++polling_sleepers_;
    pollfd ready = {events_.get(), POLLIN, 0};
    if (changes_ == before) poll(&ready, 1, milliseconds_until(until));
    --polling_sleepers_;
  }
  --sleepers_;
}

void Mesh::wake() {
  ++changes_;
  if (notifies_.load(std::memory_order_acquire)) also_wake_();
  if (sleepers_ == 0) return;
  if (polling_sleepers_ > 0) eventfd_write(signal_.get(), 1);
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void Mesh::notify(const std::function<void()>& wake) {
  also_wake_ = wake;
  notifies_.store(true, std::memory_order_release);
  serves_always_ = true;
  serve_by_thread(true);
}

// --- closing ---

void Mesh::cancel() {
  for (const auto& link : links_) {
    if (link != nullptr) link->cancel();
  }
  { const std::lock_guard lock(receive_mutex_); }  // a thread that reads may still have written posted memory
  serves_always_ = true;
  serve_by_thread(true);  // for what could not be written immediately
}

void Mesh::close(std::chrono::milliseconds patience) {
  for (const auto& link : links_) {
    if (link != nullptr) link->send(FrameType::kGoodbye);
  }
  const auto until = Clock::now() + patience;
  for (const auto& link : links_) {
    while (link != nullptr && !link->is_delivered() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  if (thread_ != nullptr) thread_->remove(*this);
}

}}}  // namespace tandem::v0::distributed::network

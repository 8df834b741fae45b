#include <tandem/distributed/rendezvous/rendezvous.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = Rendezvous::Clock;

std::chrono::milliseconds remaining(Clock::time_point deadline) {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
}

// Maximum time until the end of a rank is detected while this rank waits for a key.
constexpr std::chrono::milliseconds kSlice{100};
constexpr int kNoMember = -2;
constexpr const char* kFinished = "finished";

}  // namespace

void fail_to_join(const ProcessGroupOptions& options, const std::string& what, int peer, const std::string& headline) {
  const int rank = job_rank(options, options.rank);
  const std::string who = options.ranks.empty() ? str("rank ", rank, " of ", options.world_size) : str("rank ", rank);
  const std::string text = str("[", who, "] group '", options.name, "': ", what);
  const int peer_in_job = peer < 0 ? peer : job_rank(options, peer);
  if (headline.empty()) throw CommError(text, rank, peer_in_job);
  throw MissingRanksError(headline, text, rank, peer_in_job);
}

std::string host_identity(const ProcessGroupOptions& options) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network = {};
  stat("/proc/self/ns/net", &network);
  const std::string id = options.host_id.empty() ? env_string("TANDEM_HOST_ID").value_or("") : options.host_id;
  return str(boot, "/", network.st_ino, "/", id);
}

Rendezvous::Rendezvous(const ProcessGroupOptions& options, const std::string& part)
    : options_(options),
      prefix_(str("join/", options.name, "/", part, "/")),
      deadline_(options.timeout.count() > 0 ? Clock::now() + options.timeout : Clock::time_point::max()),
      ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      watch_(
          options.store->on_failure([this](int rank, const std::string& reason) { on_peer_failure(rank, reason); })) {
  if (!ended_fd_) fail_to_join(options_, str("cannot create an eventfd: ", std::strerror(errno)));
}

Rendezvous::~Rendezvous() { watch_.remove(); }

void Rendezvous::set(const std::string& key, const std::string& value) {
  keys_.insert(key);
  options_.store->set(prefix_ + key, value);
}

/// Returns the value that `owner` sets. If `stem` is not empty, the higher ranks set values too, under `stem` and
/// their rank; then an error names all missing ranks.
std::string Rendezvous::get(const std::string& key, int owner, const std::string& stem) {
  keys_.insert(key);
  for (;;) {
    // Read before the key: an owner that has ended may have set the key.
    const bool owner_ended = has_ended(owner);
    const auto begin = Clock::now();
    const auto slice = std::clamp(remaining(deadline_), std::chrono::milliseconds(1), kSlice);
    try {
      return options_.store->get_from(prefix_ + key, options_.ranks, slice);
    } catch (const CommError& e) {
      if (e.peer() >= 0) throw_if_rank_ended();
      if (Clock::now() < begin + slice) throw;  // the store itself is lost
    }
    if (owner_ended) fail_for_ended();
    // The owner may have set the key at the last moment.
    if (Clock::now() < deadline_ || options_.store->contains({prefix_ + key})) continue;
    std::vector<int> missing{owner};
    for (int rank = owner + 1; !stem.empty() && rank < options_.world_size; ++rank) {
      if (!options_.store->contains({prefix_ + str(stem, rank)})) missing.push_back(rank);
    }
    fail_for_missing(missing);
  }
}

/// Returns the values of all ranks, by rank.
std::vector<std::string> Rendezvous::exchange(const std::string& key, const std::string& value) {
  const std::string stem = key + "/";
  set(str(stem, options_.rank), value);
  std::vector<std::string> values;
  for (int rank = 0; rank < options_.world_size; ++rank) values.push_back(get(str(stem, rank), rank, stem));
  return values;
}

bool Rendezvous::wait_readable(int fd, Clock::time_point until) {
  pollfd entries[] = {{fd, POLLIN, 0}, {ended_fd_.get(), POLLIN, 0}};
  until = std::min(until, deadline_);
  for (;;) {
    const int ready = poll(entries, 2, milliseconds_until(until));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && Clock::now() < until) continue;
    if (ready <= 0) return false;
    if (entries[0].revents != 0) return true;
    fail_for_ended();
  }
}

/// Throws if another rank has ended or ends soon. Called to find out why the connection to rank 0 closed.
void Rendezvous::throw_if_rank_ended() {
  pollfd entry = {ended_fd_.get(), POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(kSlice.count())) > 0) fail_for_ended();
}

/// Every rank has set or read every key, so the last rank has a list of all keys.
void Rendezvous::finish() {
  try {
    Store& store = *options_.store;
    if (store.add(prefix_ + kFinished, 1) < options_.world_size) return;
    for (const std::string& key : keys_) store.delete_key(prefix_ + key);
    store.delete_key(prefix_ + kFinished);
  } catch (const Error&) {
    // All ranks have joined. If the store is lost, the group is notified as usual.
  }
}

void Rendezvous::fail_for_missing(const std::vector<int>& ranks) {
  MissingRanks in_job{.world_size = options_.ranks.empty() ? options_.world_size : 0,
                      .operation = str("joining group '", options_.name, "'"),
                      .timeout = options_.timeout};
  std::string missing;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const bool is_missing = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    (is_missing ? in_job.missing : in_job.waiting).push_back(shown(rank));
    if (is_missing) missing += str(" ", shown(rank));
  }
  fail_to_join(options_,
               str("rendezvous timed out after ", format_seconds(options_.timeout), "\n  missing: rank",
                   ranks.size() == 1 ? "" : "s", missing),
               ranks.front(), to_headline(in_job));
}

void Rendezvous::on_peer_failure(int rank, const std::string& reason) {
  const int member = member_of(rank);
  if (member == kNoMember) return;  // this rank counts: another thread may have announced its failure
  {
    std::lock_guard lock(mutex_);
    ended_.emplace_back(member, reason);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(ended_fd_.get(), &one, sizeof(one));
}

bool Rendezvous::has_ended(int rank) {
  std::lock_guard lock(mutex_);
  return std::any_of(ended_.begin(), ended_.end(), [&](const auto& end) { return end.first == rank; });
}

int Rendezvous::shown(int rank) const { return rank < 0 ? rank : job_rank(options_, rank); }

/// The rank in the group, -1 for the store's host, or kNoMember.
int Rendezvous::member_of(int rank_in_job) const {
  if (rank_in_job < 0 || options_.ranks.empty()) return rank_in_job;
  const auto found = std::find(options_.ranks.begin(), options_.ranks.end(), rank_in_job);
  return found == options_.ranks.end() ? kNoMember : static_cast<int>(found - options_.ranks.begin());
}

void Rendezvous::fail_for_ended() {
  std::lock_guard lock(mutex_);
  const auto& [rank, reason] = ended_.front();
  fail_to_join(options_, failure_text("rendezvous failed", shown(rank), reason), rank);
}

}}}  // namespace tandem::v0::distributed

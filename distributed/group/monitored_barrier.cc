// Each rank registers in the store and waits for the result. The last rank to arrive writes the result "all". Otherwise
// the first rank whose deadline passes writes a result that lists the ranks that have not registered. Only the first
// result is stored, and later ranks read it. So all ranks agree on the result of each barrier. If a member has ended,
// the ranks that wait for it fail without a result.
#include <tandem/distributed/group/monitored_barrier.h>

#include <algorithm>
#include <map>

#include <tandem/base/error.h>
#include <tandem/distributed/group/operation_watch.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kAllArrived = "all";

class MonitoredBarrier {
 public:
  MonitoredBarrier(const ProcessGroupOptions& options, int64_t number, std::chrono::milliseconds timeout)
      : options_(options),
        store_(*options.store),
        title_(str(rank_label(options), " monitored_barrier #", number)),
        number_(number),
        timeout_(timeout) {}

  void run() {
    ForwardingStore::forget_keys(&store_, prefix(number_ - 2));  // by remove_previous()
    store_.set(arrival(number_, options_.rank), "1");
    const bool is_last = store_.add(prefix(number_) + "count", 1) == options_.world_size;
    const std::string outcome = is_last ? give(kAllArrived) : wait();
    if (is_last) remove_previous();
    if (outcome == kAllArrived) return;
    wire::PayloadReader reader(outcome);
    const auto first = static_cast<int>(reader.number());
    const std::string headline = reader.text();
    throw MissingRanksError(headline, title_ + reader.text(), job_rank(options_, options_.rank), first);
  }

 private:
  using Ends = std::map<int, std::string>;

  // Maximum time until the exit of a rank is detected.
  static constexpr std::chrono::milliseconds kSlice{100};

  std::string prefix(int64_t number) const { return str("group/", options_.name, "/monitored_barrier/", number, "/"); }
  std::string arrival(int64_t number, int rank) const { return str(prefix(number), rank); }
  std::string outcome_key() const { return prefix(number_) + "result"; }

  CommError failure(const std::string& after_title, int peer) const {
    return CommError(title_ + after_title, job_rank(options_, options_.rank), peer);
  }

  std::string give(const std::string& outcome) { return store_.compare_set(outcome_key(), "", outcome); }

  std::string wait() {
    const auto deadline = timeout_.count() > 0 ? Clock::now() + timeout_ : Clock::time_point::max();
    for (;;) {
      // Read before the arrivals: a rank that has ended may have arrived before.
      const auto ends = ended();
      const auto begin = Clock::now();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - begin);
      const auto slice = std::clamp(left, std::chrono::milliseconds(1), kSlice);
      try {
        return store_.get_from(outcome_key(), options_.ranks, slice);
      } catch (const CommError& e) {
        if (e.peer() >= 0) throw failure(failure_text(" failed", e.peer(), ended()[e.peer()]), e.peer());
        if (Clock::now() < begin + slice) throw failure(str(" failed\n  ", e.what()), -1);
      }
      for (int rank = 0; rank < options_.world_size; ++rank) {
        const auto end = ends.find(job_rank(options_, rank));
        if (end == ends.end() || store_.contains({arrival(number_, rank)})) continue;
        throw failure(failure_text(" failed", end->first, end->second), end->first);
      }
      if (Clock::now() >= deadline) return give(time_out());
    }
  }

  /// kAllArrived, or the first missing rank, the headline, and the text after the title in the error of each rank.
  std::string time_out() {
    std::string arrived, missing;
    MissingRanks ranks = missing_ranks(options_, str("monitored_barrier ", number_), timeout_);
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const bool has_arrived = store_.contains({arrival(number_, rank)});
      const int shown = job_rank(options_, rank);
      (has_arrived ? ranks.waiting : ranks.missing).push_back(shown);
      (has_arrived ? arrived : missing) +=
          has_arrived ? str(" ", shown) : str(missing.empty() ? "" : ",", " rank ", shown);
    }
    if (missing.empty()) return kAllArrived;  // during the loop
    const std::string after = format_seconds(timeout_);
    return wire::PayloadWriter()
        .number(ranks.missing.front())
        .text(to_headline(ranks))
        .text(str(" timed out after ", after, "\n  arrived: ranks", arrived, "\n  missing:", missing))
        .take();
  }

  /// The ranks of the job that the store knows to have ended, and the reasons.
  Ends ended() {
    Ends found;
    HookHandle handle = store_.on_failure([&](int rank, const std::string& reason) { found.emplace(rank, reason); });
    handle.remove();
    return found;
  }

  /// All ranks have arrived at this barrier, so no rank reads the keys of the previous one.
  void remove_previous() {
    if (number_ == 1) return;
    for (int rank = 0; rank < options_.world_size; ++rank) store_.delete_key(arrival(number_ - 1, rank));
    store_.delete_key(prefix(number_ - 1) + "count");
    store_.delete_key(prefix(number_ - 1) + "result");
  }

  const ProcessGroupOptions& options_;
  Store& store_;
  const std::string title_;
  const int64_t number_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace

void monitored_barrier(const ProcessGroupOptions& options, int64_t number, std::chrono::milliseconds timeout) {
  if (options.world_size == 1) return;
  MonitoredBarrier(options, number, timeout).run();
}

}}}  // namespace tandem::v0::distributed

// A process is killed, is stopped or throws at any step of joining a group: the other ranks throw an error that names
// it within a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>
#include <tandem/tests/distributed/killed_rank.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/full.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/stopped_process.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWorld = 3;
constexpr int kVictim = 1;
constexpr std::chrono::milliseconds kStoppedTimeout{400};

/// Calls `before` ahead of each store call of a joining rank.
class CountingStore final : public ForwardingStore {
 public:
  CountingStore(std::shared_ptr<Store> store, std::function<void()> before)
      : ForwardingStore(std::move(store)), before_(std::move(before)) {}

  void set(const std::string& key, const std::string& value) override {
    before_();
    ForwardingStore::set(key, value);
  }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    before_();
    return ForwardingStore::get_from(key, ranks, timeout);
  }
  bool contains(const std::vector<std::string>& keys) override {
    before_();
    return ForwardingStore::contains(keys);
  }
  int64_t add(const std::string& key, int64_t delta) override {
    before_();
    return ForwardingStore::add(key, delta);
  }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    before_();
    return ForwardingStore::compare_set(key, expected, desired);
  }

 private:
  const std::function<void()> before_;
};

/// args: the backend, the ranks' hosts, what happens to the victim, ahead of which call, a path.
TANDEM_RANK_MAIN(join_or_fail) {
  const std::string& hosts = args.at(1);
  const std::string& how = args.at(2);
  const int last_step = std::stoi(args.at(3));
  const std::string& path = args.at(4);
  Store& store = *context.store();
  const bool is_victim = context.rank() == kVictim;
  // A rank that starts after the failure is stopped by a signal.
  store.set(str("here ", context.rank()), std::to_string(getpid()));
  for (int rank = 0; rank < kWorld; ++rank) store.get(str("here ", rank), std::chrono::seconds(100));

  store.set(str("joins ", context.rank()), "");
  for (int rank = 0; is_victim && rank < kWorld; ++rank) store.get(str("joins ", rank), std::chrono::seconds(100));

  int step = 0;
  const auto fail = [&] {
    if (!is_victim || ++step != last_step) return;
    std::ofstream(path + "at") << Clock::now().time_since_epoch().count();
    if (how == "throws") throw ValueError("out of data");
    raise(how == "killed" ? SIGKILL : SIGSTOP);
  };
  ProcessGroupOptions options = {.store = std::make_shared<CountingStore>(context.store(), fail),
                                 .rank = context.rank(),
                                 .world_size = kWorld,
                                 .name = "torn",
                                 .backend = args.at(0)};
  if (!hosts.empty()) options.host_id = hosts.substr(static_cast<size_t>(context.rank()), 1);
  options.timeout = how == "stopped" ? kStoppedTimeout : std::chrono::seconds(100);
  const Clock::time_point begin = Clock::now();
  std::string text = "nothing";
  int culprit = -1;
  std::shared_ptr<ProcessGroup> group;  // destroyed later, because its destructor takes longer than the error
  try {
    group = ProcessGroup::create(options);
    if (is_victim && step < last_step) std::ofstream(path + "over") << step;  // no such step
    group->barrier();
    if (is_victim) std::ofstream(path + "passed");  // the result of the store call was not needed
    step = last_step;
  } catch (const CommError& e) {
    text = e.what();
    culprit = e.peer();
  }
  const Clock::time_point notified = Clock::now();
  if (is_victim) return;
  std::ofstream(path + std::to_string(context.rank())) << text;
  if (how == "stopped" && store.add("heard", 1) == kWorld - 1) {
    testing::wake_when_stopped(std::stoi(store.get(str("here ", kVictim), std::chrono::seconds(100))));
  }
  const std::string at = testing::read_file(path + "at");
  if (at.empty() || text == "nothing") return;
  // A stopped rank is detected only by the timeout.
  const Clock::time_point failed = how == "stopped" ? begin : Clock::time_point(Clock::duration(std::stoll(at)));
  std::ofstream(path + "took" + std::to_string(context.rank()))
      << std::chrono::duration<double>(notified - failed).count();
  throw CommError(text, context.rank(), culprit);  // as a rank's function does
}

struct Notified {
  bool is_over = false;     ///< the victim has no such step
  bool has_passed = false;  ///< the step did not matter
  std::vector<std::string> texts;
  double seconds = 0;  ///< until the last error
};

Notified run_once(const Setting& setting, const std::string& how, int step) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "";
  try {
    spawn(kWorld, "join_or_fail", {setting.backend, setting.hosts, how, std::to_string(step), path});
  } catch (const CommError&) {
  }
  Notified notified;
  notified.is_over = !testing::read_file(path + "over").empty();
  notified.has_passed = std::ifstream(path + "passed").good();
  if (notified.has_passed) return notified;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    notified.texts.push_back(testing::read_file(path + std::to_string(rank)));
    const std::string took = testing::read_file(path + "took" + std::to_string(rank));
    notified.seconds = std::max(notified.seconds, took.empty() ? 1e9 : std::stod(took));
  }
  return notified;
}

class RendezvousFailure : public ::testing::TestWithParam<Setting> {
 protected:
  /// Fails the victim at each of its steps, or every `stride`-th, and calls check(errors of ranks 0
  /// and 2).
  static void for_each_step(const std::string& how, int stride, const std::function<void(const Notified&)>& check) {
    // For a stopped rank: the timeout, plus one second in which a complete rendezvous waits for a response.
    const double allowed = how == "stopped" ? 2 : 1;
    if (testing::kThreadSanitizer) stride *= 5;
    int step = 1;
    for (;; step += stride) {
      Notified notified;
      // Retried if it took a second too long, because the machine may be loaded.
      for (int attempt = 0; attempt < 3; ++attempt) {
        notified = run_once(GetParam(), how, step);
        if (notified.has_passed || notified.seconds < allowed) break;
      }
      if (notified.is_over) break;
      if (notified.has_passed) continue;
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, str(how, " at step ", step));
      check(notified);
      EXPECT_LT(notified.seconds, allowed);
    }
    EXPECT_GT(step, 3);  // joining has several steps
  }

  static void expect_named(const std::string& how, const std::string& reason) {
    for_each_step(how, 1, [&](const Notified& notified) {
      for (const std::string& text : notified.texts) {
        EXPECT_THAT(text, ::testing::MatchesRegex(str("\\[rank [02] of 3\\] (group 'torn': rendezvous failed|"
                                                      "barrier #1 failed)\n  rank 1: ",
                                                      reason)));
      }
    });
  }
};

TEST_P(RendezvousFailure, KilledRankIsNamedAtAnyStep) { expect_named("killed", kKilledReason); }

TEST_P(RendezvousFailure, ThrowingRankIsNamedAtAnyStep) { expect_named("throws", "out of data"); }

TEST_P(RendezvousFailure, StoppedRankCausesTimeout) {
  for_each_step("stopped", testing::runs_all_combinations() ? 5 : 12, [](const Notified& notified) {
    // The lower one waits for the victim, the other for either: both have the same deadline.
    EXPECT_THAT(notified.texts[0], ::testing::MatchesRegex("\\[rank 0[^\n]*[^0-9]0\\.4 s[^0-9].*ranks? 1[^0-9]*.*"));
    EXPECT_THAT(notified.texts[1], ::testing::MatchesRegex("\\[rank 2.* (ranks? [01][^0-9].*|rank [01])"));
  });
}

INSTANTIATE_TEST_SUITE_P(Each, RendezvousFailure,
                         ::testing::Values(Setting{3, "shm"}, Setting{3, "gloo"}, Setting{3, "auto", "aab"}),
                         setting_name);

}}}}  // namespace tandem::v0::distributed

// Which operations a failure ends, as a table, and how the failure of one rank reaches the others.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/distributed/group/failure_latch.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/store.h>
#include <tandem/tests/distributed/idle_backend.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Clock = Backend::Clock;
using std::chrono::milliseconds;

/// A backend with one peer whose state the test sets.
class PeerBackend final : public IdleBackend {
 public:
  std::optional<PeerEnd> link;
  bool is_drained = true;

  const PeerEnd* do_peer_end(int rank) override { return rank == 2 && link ? &*link : nullptr; }
  bool do_drain(int) override { return is_drained; }
};

/// What rank 0 of 4 knows. Its operation may need rank 2; rank 1 failed first if any rank has failed.
struct Row {
  const char* name;
  int64_t number = 5;  ///< of the collective; 0: messages
  bool needs = true;
  const char* end = nullptr;   ///< of rank 2, in the store
  const char* link = nullptr;  ///< end of the connection
  bool link_has_left = false;
  bool is_drained = true;
  int64_t first_failed = -1;  ///< of the group's failure; -1: none
  bool is_own = false;        ///< this rank failed first
  bool is_store_lost = false;
  const char* at_once = "waits";  ///< the failure when all that is known
  const char* later = nullptr;    ///< a second later; null: the same
};

const char* const kDied = "died (its connection closed)";
const char* const kLeft = "left the job";
const char* const kGoodbye = "left the group";

const Row kRows[] = {
    // --- a member has died
    {.name = "died, needed", .end = kDied, .at_once = "2: died (its connection closed)"},
    {.name = "died, not needed", .needs = false, .end = kDied},
    {.name = "died, its data may arrive",
     .end = kDied,
     .is_drained = false,
     .later = "2: died (its connection closed)"},
    {.name = "died, connection read to its end",
     .end = "killed by SIGKILL",
     .link = kDied,
     .is_drained = false,
     .at_once = "2: killed by SIGKILL"},
    {.name = "died, needed by a message", .number = 0, .end = kDied, .at_once = "2: died (its connection closed)"},
    {.name = "died, not needed by a message", .number = 0, .needs = false, .end = kDied},
    {.name = "died, data of a message may arrive",
     .number = 0,
     .end = kDied,
     .is_drained = false,
     .later = "2: died (its connection closed)"},
    // --- a member has left
    {.name = "left, needed", .end = kLeft, .at_once = "2: left the job"},
    {.name = "left, not needed", .needs = false, .end = kLeft},
    {.name = "left, its data arrives in any case", .end = kLeft, .is_drained = false},
    {.name = "left, needed by a message", .number = 0, .end = kLeft, .at_once = "2: left the job"},
    {.name = "left, data of a message arrives in any case", .number = 0, .end = kLeft, .is_drained = false},
    // --- only its connection has ended
    {.name = "connection lost", .link = kDied, .at_once = "2: died (its connection closed)"},
    {.name = "connection lost, not needed", .needs = false, .link = kDied},
    {.name = "goodbye: the reason may come", .link = kGoodbye, .link_has_left = true, .later = "2: left the group"},
    {.name = "goodbye, not needed", .needs = false, .link = kGoodbye, .link_has_left = true},
    {.name = "goodbye and lost store",
     .link = kGoodbye,
     .link_has_left = true,
     .is_store_lost = true,
     .at_once = "-1: host gone"},
    // --- the group has failed
    {.name = "failed in this collective", .needs = false, .first_failed = 5, .at_once = "3: no disk"},
    {.name = "failed before this collective", .needs = false, .first_failed = 2, .at_once = "3: no disk"},
    {.name = "failed after this collective", .first_failed = 6},
    {.name = "failed after this collective, which needs an ended rank",
     .end = kLeft,
     .first_failed = 6,
     .at_once = "3: no disk"},
    {.name = "failed after this collective, which needs a closed rank",
     .link = kGoodbye,
     .link_has_left = true,
     .first_failed = 6,
     .at_once = "3: no disk"},
    {.name = "failed, a message", .number = 0, .needs = false, .first_failed = 6, .at_once = "3: no disk"},
    {.name = "failed here, a message",
     .number = 0,
     .is_drained = false,
     .first_failed = 6,
     .is_own = true,
     .at_once = "3: no disk"},
    {.name = "failed here, a collective",
     .is_drained = false,
     .first_failed = 5,
     .is_own = true,
     .at_once = "3: no disk"},
    // --- the store is lost
    {.name = "store lost", .needs = false, .is_store_lost = true, .at_once = "-1: host gone"},
    {.name = "store lost, a message", .number = 0, .needs = false, .is_store_lost = true, .at_once = "-1: host gone"},
};

TEST(StillNeeded, EveryCellOfTheTable) {
  const ProcessGroupOptions options{nullptr, 0, 4};
  const Clock::time_point begin = Clock::now();
  for (const Row& row : kRows) {
    PeerBackend backend;
    backend.is_drained = row.is_drained;
    if (row.link != nullptr) backend.link = {row.link_has_left, row.link, begin};
    FailureLatch::Known known;
    known.ended.resize(4);
    if (row.end != nullptr) known.ended[2] = {row.end, row.end == std::string(kLeft), begin};
    if (row.is_store_lost) known.store = {"host gone", false, begin};
    if (row.first_failed >= 0) {
      known.failure = {
          .culprit = 3, .reason = "no disk", .member = row.is_own ? 0 : 1, .first_failed = row.first_failed};
      known.failed_at = begin;
    }
    const auto needs = [&](int rank) { return row.needs && rank == 2; };
    const auto result = [&](milliseconds after) {
      Clock::time_point again = Clock::time_point::max();
      const auto failure = still_needed({row.number, needs}, known, backend, options, begin + after, again);
      if (!failure) return std::string("waits");
      return str(failure->culprit, ": ", failure->reason);
    };
    const std::string later = row.later != nullptr ? row.later : row.at_once;
    EXPECT_EQ(result(milliseconds(0)), row.at_once) << row.name;
    EXPECT_EQ(result(milliseconds(1000)), later) << row.name << ", later";
    Clock::time_point again = Clock::time_point::max();
    still_needed({row.number, needs}, known, backend, options, begin, again);
    EXPECT_EQ(again < Clock::time_point::max(), row.later != nullptr) << row.name << ": when to look again";
  }
}

TEST(StillNeeded, MessageOfFirstFailedRankMayArrive) {
  const ProcessGroupOptions options{nullptr, 0, 4};
  PeerBackend backend;
  backend.is_drained = false;
  FailureLatch::Known known;
  known.ended.resize(4);
  known.failure = {.culprit = 3, .reason = "no disk", .member = 2, .first_failed = 6};
  known.failed_at = Clock::now();
  Clock::time_point again = Clock::time_point::max();
  const auto needs = [](int rank) { return rank == 2; };
  EXPECT_FALSE(still_needed({0, needs}, known, backend, options, known.failed_at, again));
  EXPECT_EQ(again, known.failed_at + backend.arrival_time());
  EXPECT_TRUE(still_needed({0, needs}, known, backend, options, again, again));
}

TEST(StillNeeded, ReasonOfARankThatLeftMayComeFromASilentStore) {
  class SilentStore final : public ForwardingStore {
   public:
    SilentStore() : ForwardingStore(make_memory_store()) {}
    bool is_silent() const override { return true; }
  };
  const ProcessGroupOptions options{std::make_shared<SilentStore>(), 0, 4};
  PeerBackend backend;
  const Clock::time_point begin = Clock::now();
  backend.link = {true, kGoodbye, begin};
  FailureLatch::Known known;
  known.ended.resize(4);
  const auto fails_after = [&](milliseconds after) {
    Clock::time_point again = Clock::time_point::max();
    return still_needed({5, [](int) { return true; }}, known, backend, options, begin + after, again).has_value();
  };
  EXPECT_FALSE(fails_after(kLostAfter - milliseconds(1)));
  EXPECT_TRUE(fails_after(kLostAfter));
}

TEST(StillNeeded, RankThatLeftIsNotTheReasonIfAnotherOneHasDied) {
  const ProcessGroupOptions options{nullptr, 0, 4};
  PeerBackend backend;
  const Clock::time_point now = Clock::now();
  backend.link = {true, kGoodbye, now};
  FailureLatch::Known known;
  known.ended.resize(4);
  known.ended[1] = {kDied, false, now};
  Clock::time_point again = Clock::time_point::max();
  const auto failure = still_needed({5, [](int rank) { return rank == 2; }}, known, backend, options, now, again);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->culprit, 1);
}

TEST(StillNeeded, EarliestDeathComesBeforeRanksThatLeft) {
  const ProcessGroupOptions options{nullptr, 0, 4};
  PeerBackend backend;
  FailureLatch::Known known;
  const Clock::time_point now = Clock::now();
  known.ended = {std::nullopt, FailureLatch::End{kLeft, true, now - milliseconds(3)},
                 FailureLatch::End{"second", false, now - milliseconds(1)},
                 FailureLatch::End{"first", false, now - milliseconds(2)}};
  Clock::time_point again = Clock::time_point::max();
  const auto failure = still_needed({1, [](int) { return true; }}, known, backend, options, now, again);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->reason, "first");
}

TEST(FailureLatch, FirstFailureReachesAllRanks) {
  const auto store = make_memory_store();
  std::vector<std::unique_ptr<FailureLatch>> latches;
  std::vector<std::string> notified(3);
  for (int rank = 0; rank < 3; ++rank) {
    latches.push_back(std::make_unique<FailureLatch>(ProcessGroupOptions{store, rank, 3}));
    latches.back()->listen([&, rank](const FailureLatch::Known& known) {
      if (known.failure) notified[static_cast<size_t>(rank)] += known.failure->reason + ";";
    });
  }
  latches[1]->set({.culprit = 0, .reason = "first", .is_mismatch = true, .member = 1, .first_failed = 7});
  latches[2]->set({.culprit = 2, .reason = "second", .member = 2, .first_failed = 8});
  for (const auto& latch : latches) {
    EXPECT_TRUE(latch->is_failing());
    FailureLatch::Known known;
    latch->read(known);
    ASSERT_TRUE(known.failure);
    EXPECT_EQ(known.failure->reason, "first");
    EXPECT_EQ(known.failure->culprit, 0);
    EXPECT_TRUE(known.failure->is_mismatch);
    EXPECT_EQ(known.failure->member, 1);
    EXPECT_EQ(known.failure->first_failed, 7);
    EXPECT_EQ(known.failure->error().what(), std::string(": first"));
  }
  EXPECT_EQ(notified[0], "first;");
  // A group that is created after the failure knows it too.
  FailureLatch late(ProcessGroupOptions{store, 0, 3});
  late.listen([](const FailureLatch::Known&) {});
  EXPECT_TRUE(late.is_failing());
  for (const auto& latch : latches) latch->close();
  late.close();
}

TEST(FailureLatch, OnlyEndsOfMembersCount) {
  const auto store = make_memory_store();
  FailureLatch latch({.store = store, .rank = 0, .world_size = 2, .name = "part", .ranks = {1, 4}});
  latch.listen([](const FailureLatch::Known&) {});
  FailureLatch::Known known;
  store->announce_failure(0, "is no member");
  latch.read(known);
  EXPECT_TRUE(known.is_empty());
  store->leave(4);
  latch.read(known);
  ASSERT_TRUE(known.ended[1]);
  EXPECT_TRUE(known.ended[1]->has_left);
  EXPECT_FALSE(latch.is_failing());
  store->announce_failure(1, "out of data");
  latch.read(known);
  EXPECT_TRUE(known.has_own_ended);
  EXPECT_FALSE(known.ended[0]);
  latch.close();
  EXPECT_FALSE(latch.is_failing());
}

}}}}  // namespace tandem::v0::distributed

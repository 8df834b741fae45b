// Ranks that never join the group: waiting ranks are notified of their failure.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

/// The error of creating the group on this rank.
std::string join_error(Context& context) {
  try {
    context.group();
  } catch (const CommError& e) {
    return e.what();
  }
  return "joined";
}

std::string rendezvous_error(int rank, int world_size, const std::string& why) {
  return str("[rank ", rank, " of ", world_size, "] group 'default': rendezvous ", why);
}

/// args: a path, the rank that does not join, and its action instead. The others write their errors to the path
/// plus their rank; the launcher would kill them before if they did not throw in time.
TANDEM_RANK_MAIN(one_does_not_come) {
  Store& store = *context.store();
  store.set(str("here ", context.rank()), "");  // ranks that start after a failure are stopped by a signal
  if (std::to_string(context.rank()) == args.at(1)) {
    for (int rank = 0; rank < context.world_size(); ++rank) store.get(str("here ", rank), std::chrono::seconds(100));
    if (args.at(2) == "throws") throw ValueError("no data");
    return;
  }
  const std::string text = join_error(context);
  std::ofstream(args.at(0) + std::to_string(context.rank())) << text;
  if (args.at(2) == "throws") throw CommError(text, context.rank(), std::stoi(args.at(1)));
}

TEST(Rendezvous, AbsentRankIsNamedAmongProcesses) {
  for (const int absent : {0, 2}) {
    for (const std::string what : {"returns", "throws"}) {
      const testing::TemporaryFolder folder;
      try {
        spawn(3, "one_does_not_come", {folder / "rank", std::to_string(absent), what});
        EXPECT_EQ(what, "returns");
      } catch (const CommError& e) {
        EXPECT_EQ(e.what(), str("spawn: rank ", absent, " of 3 failed (exit status 1): no data"));
      }
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == absent) continue;
        const std::string reason = what == "throws" ? "no data" : "left the job";
        EXPECT_EQ(testing::read_file(folder / str("rank", rank)),
                  rendezvous_error(rank, 3, str("failed\n  rank ", absent, ": ", reason)));
      }
    }
  }
}

TEST(Rendezvous, AbsentRankIsNamedAmongThreads) {
  for (const int absent : {0, 2}) {
    run_threads(3, [&](Context& context) {
      if (context.rank() == absent) return;
      EXPECT_EQ(join_error(context),
                rendezvous_error(context.rank(), 3, str("failed\n  rank ", absent, ": left the job")));
    });
  }
}

TEST(Rendezvous, TimeoutNamesMissingRanks) {
  ThreadRanks ranks{.world_size = 3, .timeout = std::chrono::milliseconds(150)};
  const auto text = [&](int rank) -> std::string {
    try {
      ranks.make(rank);
    } catch (const CommError& e) {
      return e.what();
    }
    return "joined";
  };
  EXPECT_EQ(text(0), rendezvous_error(0, 3, "timed out after 0.1 s\n  missing: ranks 1 2"));
}

TEST(Rendezvous, RankThatAnnouncedFailureDoesNotWait) {
  // As if another thread of this rank had announced it.
  const ThreadRanks ranks{.world_size = 3, .timeout = std::chrono::milliseconds(20000)};
  ranks.store->announce_failure(1, "no disk");
  std::string text = "joined";
  try {
    ranks.make(1);
  } catch (const CommError& e) {
    text = e.what();
  }
  EXPECT_EQ(text, rendezvous_error(1, 3, "failed\n  rank 1: no disk"));
}

TEST(Rendezvous, KeysAreRemovedButGroupNamesStayReserved) {
  for (const char* backend : {"", "gloo"}) {
    const auto store = make_memory_store();
    const int64_t num_parts = backend[0] == 0 ? 1 : 2;  // host layout, and the backend
    for (int i = 0; i < 3; ++i) {
      ThreadRanks ranks{.world_size = 3, .store = store, .name = str("group ", i), .backend = backend};
      ranks.run([](ProcessGroup& group) { group.barrier(); });
      EXPECT_EQ(store->num_keys(), num_parts * (i + 1));
    }
    for (int rank = 0; rank < 3; ++rank) {
      ThreadRanks again{.world_size = 3, .store = store, .name = "group 1", .backend = backend};
      std::string text = "joined";
      try {
        again.make(rank);
      } catch (const CommError& e) {
        text = e.what();
      }
      EXPECT_EQ(text,
                str("[rank ", rank, " of 3] group 'group 1': a group with this name was already created in this job"));
    }
    EXPECT_EQ(store->num_keys(), num_parts * 3);
  }
}

}}}}  // namespace tandem::v0::distributed

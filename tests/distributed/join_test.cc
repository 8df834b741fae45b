// Ranks that never join the group: waiting ranks are notified of their failure.
#include <gtest/gtest.h>

#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/group_store.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
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

// --- keys of groups ---

constexpr size_t kNone = std::string::npos;

/// Uses the group in every way that writes keys.
void use(ProcessGroup& group) {
  const Tensor x = full({3}, 1);
  group.all_reduce(x);
  for (int i = 0; i < 3; ++i) group.monitored_barrier();
  const Work sent = group.isend(x, (group.rank() + 1) % group.size());
  group.recv(zeros({3}), (group.rank() + group.size() - 1) % group.size());
  sent.wait();
}

TEST(GroupKeys, DestroyedGroupsLeaveNothingInStore) {
  for (const Setting& setting : {Setting{3, "shm"}, {3, "gloo"}, {4, "auto", "aabb"}}) {
    const std::shared_ptr<Store> store = make_memory_store();
    const auto make = [&](int rank) {
      return ProcessGroup::create({.store = store,
                                   .rank = rank,
                                   .world_size = setting.world_size,
                                   .thread_ranks = true,
                                   .backend = setting.backend,
                                   .host_id = str(setting.hosts).substr(setting.hosts[0] == 0 ? 0 : rank, 1)});
    };
    for (const bool fails : {false, true}) {
      rethrow_first(run_on_threads(setting.world_size, make, [&](ProcessGroup& group) {
        use(group);
        EXPECT_EQ(text_of<CommError>([&] { make(group.rank()); }),
                  str("[rank ", group.rank(), " of ", group.size(), "] group 'default': a group with this name exists",
                      " in this job; destroy it on all members first"));
        if (!fails) return;
        group.barrier();  // the messages of all ranks are complete
        EXPECT_NE(text_of<CommError>([&] { group.all_reduce(zeros({group.rank() + 1})); }).find("match"), kNone);
      }));
      EXPECT_EQ(store->num_keys(), 0) << setting.backend;  // so the name is free
    }
  }
}

TEST(GroupKeys, IncompleteGroupLeavesNothingAfterLastMember) {
  const std::shared_ptr<Store> store = make_memory_store();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(store->num_keys() > 0, rank > 0);
    const ProcessGroupOptions options{store, rank, 3, "default", std::chrono::milliseconds(50), true};
    EXPECT_NE(text_of<CommError>([&] { ProcessGroup::create(options); }).find("timed out"), kNone);
  }
  EXPECT_EQ(store->num_keys(), 0);
}

TEST(GroupKeys, SubgroupsLeaveNothingInStore) {
  std::latch used(3), abandoned(1);
  run_threads(3, [&](Context& context) {
    for (int i = 0; i < 2; ++i) use(*context.new_group({0, 1, 2}, {.name = "x"}));
    if (context.rank() < 2) use(*context.new_group({0, 1}));
    used.arrive_and_wait();
    if (context.rank() == 0) {
      EXPECT_EQ(context.store()->num_keys(), 0);
      context.new_group({0, 2});  // destroyed before rank 2 joins
      abandoned.count_down();
    } else if (context.rank() == 2) {
      abandoned.wait();
      EXPECT_GT(context.store()->num_keys(), 0);
      EXPECT_NE(text_of<CommError>([&] { context.new_group({0, 2})->barrier(); }).find("rank 0: "), kNone);
      EXPECT_EQ(context.store()->num_keys(), 0);
    }
  });
}

TEST(GroupKeys, LastMemberDeletesKeysOfAll) {
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::shared_ptr<Store>> members;
  for (int rank = 0; rank < 2; ++rank) {
    members.push_back(std::make_shared<GroupStore>(ProcessGroupOptions{.store = store, .rank = rank, .world_size = 2}));
    members.back()->set(str("set by ", rank), "");
    members.back()->add(str("added by ", rank), 1);
    members.back()->compare_set(str("compared by ", rank), "", "1");
  }
  members[0]->delete_key("set by 1");
  members.erase(members.begin());
  EXPECT_EQ(store->get("compared by 0", std::chrono::seconds(1)), "1");
  members.clear();
  EXPECT_EQ(store->num_keys(), 0);
}

}}}}  // namespace tandem::v0::distributed

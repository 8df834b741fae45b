// A rank is killed, is stopped or throws in the middle of each collective or message over shared memory: the
// other ranks throw an error that names it within a second.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/tests/distributed/failing_ranks.h>
#include <tandem/tests/distributed/killed_rank.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

TANDEM_RANK_MAIN(fail_over_shm) {
  fail_in_the_middle(context, args, [](const ProcessGroupOptions& options) {
    return shm::make_shm_backend(
        options, {.slot_bytes = 256, .chunk_bytes = 4096, .slots = 2, .piece_bytes = 1024, .pieces = 2});
  });
}

class ShmRankFailure : public ::testing::TestWithParam<std::string> {};

TEST_P(ShmRankFailure, KilledRankIsNamedOnAllSurvivors) {
  expect_notified("fail_over_shm", GetParam(), "killed", kKilledReason);
}

TEST_P(ShmRankFailure, ExceptionOfOneRankReachesAllSurvivors) {
  expect_notified("fail_over_shm", GetParam(), "throws", "out of data");
}

TEST_P(ShmRankFailure, StoppedRankCausesTimeoutOnSurvivors) {
  const Notified notified = errors_of_survivors("fail_over_shm", GetParam(), "stopped");
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    if (rank == kVictim) continue;
    // The first rank to time out throws; the others are notified.
    const std::string& text = notified.texts[static_cast<size_t>(rank)];
    EXPECT_NE(text.find("timed out after 0.8 s"), std::string::npos) << text;
    if (GetParam() == "send") continue;
    EXPECT_NE(text.find("missing: data of rank "), std::string::npos) << text;
  }
  EXPECT_LT(notified.seconds, seconds_allowed("stopped"));
}

TEST_P(ShmRankFailure, MismatchedCallIsShownOnEveryRank) { expect_disagreement("fail_over_shm", GetParam()); }

INSTANTIATE_TEST_SUITE_P(Operations, ShmRankFailure, ::testing::ValuesIn(failing_operations()),
                         [](const auto& param_info) { return param_info.param; });

TEST(ShmQueuedWork, AllQueuedWorksOfSurvivorsFail) {
  expect_queued_notified("fail_over_shm", "killed", kKilledReason);
  expect_queued_notified("fail_over_shm", "throws", "out of data");
}

TANDEM_RANK_MAIN(die_without_report) {
  const ProcessGroupOptions options = {.store = make_file_store(args.at(0) + "store"),  // it does not report deaths
                                       .rank = context.rank(),
                                       .world_size = context.world_size(),
                                       .name = "unreported"};
  const auto group = ProcessGroupAccess::make(options, shm::make_shm_backend(options));
  group->barrier();
  if (context.rank() == 1) raise(SIGKILL);
  try {
    group->barrier();
  } catch (const CommError& e) {
    std::ofstream(args.at(0) + "error") << e.what();
  }
}

TEST(ShmRankDeath, IsDetectedWithoutReportOfTheStore) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(spawn(2, "die_without_report", {folder / ""}), CommError);
  EXPECT_EQ(testing::read_file(folder / "error"),
            "[rank 0 of 2] barrier #2 failed\n  rank 1: died (its process ended)");
}

std::set<std::string> shared_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().string());
  return names;
}

TEST(ShmSegments, NoSharedFilesRemainAfterFailure) {
  const std::set<std::string> before = shared_files();
  for (const char* how : {"killed", "throws", "stopped"}) {
    errors_of_survivors("fail_over_shm", "all_to_all", how);
    EXPECT_EQ(shared_files(), before) << how;
  }
}

}}}}  // namespace tandem::v0::distributed

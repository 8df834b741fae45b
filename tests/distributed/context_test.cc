// Context::group() under each of the three ways to start ranks; launch's is in launch_test.
#include <tandem/distributed/context.h>

#include <gtest/gtest.h>

#include <string>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/factories.h>

namespace {

namespace td = tandem;
using namespace td::distributed;

/// Sum over ranks of (rank + 1), all-reduced `rounds` times.
void check_sums(Context& context, int rounds) {
  const int n = context.world_size();
  EXPECT_EQ(context.group()->rank(), context.rank());
  EXPECT_EQ(context.group()->size(), n);
  EXPECT_EQ(context.group(), context.group());
  for (int i = 0; i < rounds; ++i) {
    const td::Tensor t = td::full({33}, context.rank() + 1.0);
    context.group()->all_reduce(t);
    EXPECT_EQ(t.to_vector<float>(), std::vector<float>(33, static_cast<float>(n * (n + 1) / 2)));
  }
}

TEST(Context, DefaultGroupSumsAcrossThreadRanks) {
  for (const int n : {1, 2, 3, 4, 7}) run_threads(n, [](Context& context) { check_sums(context, 5); });
}

TANDEM_RANK_MAIN(sums) {
  check_sums(context, 5);
  if (testing::Test::HasFailure()) throw td::Error("wrong sums");
}

TEST(Context, DefaultGroupSumsAcrossProcessRanks) {
  for (const int n : {1, 2, 3, 4}) spawn(n, "sums");
}

TANDEM_RANK_MAIN(leave_at_once) {
  // The last operation is complete on all ranks before the first rank leaves.
  for (int i = 0; i < 3; ++i) context.group()->barrier();
}

TEST(Context, LeavingAfterLastOperationSucceeds) {
  for (int i = 0; i < 10; ++i) {
    spawn(3, "leave_at_once");
    run_threads(3, [](Context& context) { context.group()->barrier(); });
  }
}

TANDEM_RANK_MAIN(leave_early) {
  context.group()->barrier();
  if (context.rank() == 1) return;
  context.group()->barrier();
}

TEST(Context, LeavingEarlyFailsRemainingRanks) {
  try {
    spawn(2, "leave_early");
    FAIL() << "rank 0 waited for nobody";
  } catch (const td::CommError& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("left the job"), std::string::npos) << e.what();
    EXPECT_EQ(e.peer(), 0);
  }
}

TANDEM_RANK_MAIN(fail_in_training) {
  context.group()->barrier();
  if (context.rank() == 2) throw td::ValueError("loss is nan");
  context.group()->barrier();
}

TEST(Context, RankExceptionUnblocksCollectivesAndIsReported) {
  try {
    spawn(3, "fail_in_training");
    FAIL() << "rank 2 failed";
  } catch (const td::CommError& e) {
    EXPECT_STREQ(e.what(), "spawn: rank 2 of 3 failed (exit status 1): loss is nan");
    EXPECT_EQ(e.peer(), 2);
  }
  try {
    run_threads(3, [](Context& context) {
      if (context.rank() == 2) throw td::ValueError("loss is nan");
      context.group()->barrier();
    });
    FAIL() << "rank 2 failed";
  } catch (const td::ValueError& e) {
    EXPECT_STREQ(e.what(), "loss is nan");
  }
}

}  // namespace

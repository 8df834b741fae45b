#include <tandem/base/rank_context.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(RankContext, EachThreadHasItsOwnContext) {
  RankContext& mine = RankContext::current();
  EXPECT_EQ(&mine, &RankContext::current());
  mine.rank = 3;
  std::thread([&] {
    EXPECT_NE(&RankContext::current(), &mine);
    EXPECT_EQ(RankContext::current().rank, 0);
    RankContext::current().grad_enabled = false;
  }).join();
  EXPECT_TRUE(mine.grad_enabled);
  mine.rank = 0;
}

TEST(RankContext, NestedUseRestoresOuterContext) {
  RankContext& outer = RankContext::current();
  RankContext a, b;
  {
    RankContext::Use use_a(a);
    EXPECT_EQ(&RankContext::current(), &a);
    {
      RankContext::Use use_b(b);
      EXPECT_EQ(&RankContext::current(), &b);
    }
    EXPECT_EQ(&RankContext::current(), &a);
  }
  EXPECT_EQ(&RankContext::current(), &outer);
}

TEST(RankContext, UseWorksOnThreadWithoutContext) {
  std::thread([] {
    RankContext given;
    given.rank = 2;
    {
      RankContext::Use use(given);
      EXPECT_EQ(RankContext::current().rank, 2);
    }
    EXPECT_EQ(RankContext::current().rank, 0);
  }).join();
}

TEST(RankContext, CopiesShareSlotsButNotModes) {
  RankContext original;
  original.tensor_slot = std::make_shared<int>(31);
  original.module_scope = make_ref<ScopeName>("Linear 'fc1'");
  RankContext copy = original;
  copy.grad_enabled = false;
  EXPECT_TRUE(original.grad_enabled);
  EXPECT_EQ(copy.tensor_slot, original.tensor_slot);
  EXPECT_EQ(copy.module_scope->text, "Linear 'fc1'");
}

TEST(AvailableCores, CountIsAtLeastOne) { EXPECT_GE(available_cores(), 1); }

}}  // namespace tandem

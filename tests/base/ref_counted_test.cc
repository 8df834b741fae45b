#include <tandem/base/ref_counted.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

struct Counted : RefCounted {
  explicit Counted(int& alive) : alive_(alive) { ++alive_; }
  ~Counted() override { --alive_; }
  int& alive_;
};
struct Derived : Counted {
  using Counted::Counted;
};

TEST(RefPtr, LastOwnerDeletesTheObject) {
  int alive = 0;
  {
    RefPtr<Counted> a = make_ref<Counted>(alive);
    EXPECT_EQ(a->use_count(), 1u);
    RefPtr<Counted> b = a;
    EXPECT_EQ(a->use_count(), 2u);
    EXPECT_EQ(a, b);
    a = nullptr;
    EXPECT_FALSE(a);
    EXPECT_EQ(alive, 1);
    RefPtr<Counted> c = std::move(b);
    EXPECT_FALSE(b);
    EXPECT_EQ(c->use_count(), 1u);
  }
  EXPECT_EQ(alive, 0);
}

TEST(RefPtr, SelfAssignmentKeepsTheObject) {
  int alive = 0;
  RefPtr<Counted> a = make_ref<Counted>(alive);
  RefPtr<Counted>& same = a;
  a = same;
  EXPECT_EQ(a->use_count(), 1u);
  EXPECT_EQ(alive, 1);
}

TEST(RefPtr, ConvertsToPointerToBase) {
  int alive = 0;
  RefPtr<Derived> derived = make_ref<Derived>(alive);
  RefPtr<Counted> copied = derived;
  EXPECT_EQ(derived->use_count(), 2u);
  RefPtr<RefCounted> moved = std::move(derived);
  EXPECT_FALSE(derived);
  EXPECT_EQ(copied->use_count(), 2u);
  moved = nullptr;
  copied = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(RefPtr, DetachTransfersOwnershipToCaller) {
  int alive = 0;
  RefPtr<Counted> a = make_ref<Counted>(alive);
  Counted* raw = a.detach();
  EXPECT_FALSE(a);
  EXPECT_EQ(alive, 1);
  delete raw;
  EXPECT_EQ(alive, 0);
}

TEST(RefPtr, ConcurrentCopiesKeepTheCountCorrect) {
  int alive = 0;
  RefPtr<Counted> shared = make_ref<Counted>(alive);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([mine = shared] {
      for (int i = 0; i < 1000; ++i) RefPtr<Counted> copy = mine;
    });
  }
  shared = nullptr;
  for (auto& thread : threads) thread.join();
  threads.clear();
  EXPECT_EQ(alive, 0);
}

}}  // namespace tandem

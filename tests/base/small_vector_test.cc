#include <tandem/base/small_vector.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using Strings = SmallVector<std::string, 3>;

/// Too long for the small-string optimization, so that leaks and double frees are found on the heap.
std::string text(size_t i) { return "a text that does not fit inside of the object: " + std::to_string(i); }

Strings strings(size_t n) {
  Strings result;
  for (size_t i = 0; i < n; ++i) result.push_back(text(i));
  return result;
}

class SmallVectorSizes : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SmallVectorSizes, ::testing::Values(0, 1, 2, 3, 4, 6, 7, 31, 32, 33));

TEST_P(SmallVectorSizes, PushedElementsAreKeptInOrder) {
  const Strings v = strings(GetParam());
  ASSERT_EQ(v.size(), GetParam());
  EXPECT_EQ(v.empty(), GetParam() == 0);
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], text(i));
  EXPECT_EQ(static_cast<size_t>(v.end() - v.begin()), v.size());
}

TEST_P(SmallVectorSizes, CopyAndMovePreserveElements) {
  const Strings original = strings(GetParam());
  Strings copy(original);
  EXPECT_EQ(copy, original);
  Strings moved(std::move(copy));
  EXPECT_EQ(moved, original);
  EXPECT_TRUE(copy.empty());
  copy.push_back("usable again");
  EXPECT_EQ(copy.back(), "usable again");
  for (size_t other : {0, 2, 5, 33}) {
    Strings target = strings(other);
    target = original;
    EXPECT_EQ(target, original);
    Strings source = strings(GetParam());
    target = strings(other);
    target = std::move(source);
    EXPECT_EQ(target, original);
  }
  moved = *&moved;
  EXPECT_EQ(moved, original);
}

TEST_P(SmallVectorSizes, InsertAndEraseWorkAtEveryPosition) {
  for (size_t position = 0; position <= GetParam(); ++position) {
    Strings v = strings(GetParam());
    v.insert(position, "new");
    ASSERT_EQ(v.size(), GetParam() + 1);
    for (size_t i = 0; i < v.size(); ++i) {
      EXPECT_EQ(v[i], i == position ? "new" : text(i < position ? i : i - 1));
    }
    v.erase(position);
    EXPECT_EQ(v, strings(GetParam()));
  }
}

TEST_P(SmallVectorSizes, ResizeKeepsElementsAndFillsNewOnes) {
  for (size_t size : {0, 1, 3, 4, 33}) {
    Strings v = strings(GetParam());
    v.resize(size, "filler");
    ASSERT_EQ(v.size(), size);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(v[i], i < GetParam() ? text(i) : "filler");
  }
}

TEST(SmallVector, EqualityComparesSizeAndElements) {
  EXPECT_EQ((SmallVector<int, 2>{1, 2, 3}), (SmallVector<int, 2>{1, 2, 3}));
  EXPECT_FALSE((SmallVector<int, 2>{1, 2, 3}) == (SmallVector<int, 2>{1, 2}));
  EXPECT_FALSE((SmallVector<int, 2>{1, 2}) == (SmallVector<int, 2>{1, 3}));
}

TEST(SmallVector, MoveOnlyElementsAreSupported) {
  SmallVector<std::unique_ptr<int>, 2> v;
  for (int i = 0; i < 7; ++i) v.push_back(std::make_unique<int>(i));
  auto moved = std::move(v);
  moved.pop_back();
  EXPECT_EQ(moved.size(), 6u);
  EXPECT_EQ(*moved.front(), 0);
  EXPECT_EQ(*moved.back(), 5);
}

TEST(SmallVector, PushBackOfOwnElementIsSafe) {
  SmallVector<std::string, 1> v{text(0)};
  v.push_back(v[0]);
  EXPECT_EQ(v[1], text(0));
}

}}  // namespace tandem

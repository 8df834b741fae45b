#include <tandem/base/function_ref.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(FunctionRef, InvokesTheReferencedCallable) {
  int total = 0;
  auto add = [&](int value) { return total += value; };
  FunctionRef<int(int)> ref = add;
  EXPECT_EQ(ref(3), 3);
  EXPECT_EQ(ref(4), 7);
  EXPECT_EQ(total, 7);
}

TEST(FunctionRef, ForwardsMoveOnlyArguments) {
  auto read = [](std::unique_ptr<int> value) { return *value; };
  FunctionRef<int(std::unique_ptr<int>)> ref = read;
  EXPECT_EQ(ref(std::make_unique<int>(31)), 31);
}

TEST(FunctionRef, CopiesReferToTheSameObject) {
  auto counter = [n = 0]() mutable { return ++n; };
  FunctionRef<int()> first = counter;
  FunctionRef<int()> second = first;
  EXPECT_EQ(first(), 1);
  EXPECT_EQ(second(), 2);
  EXPECT_EQ(counter(), 3);
}

}}  // namespace tandem

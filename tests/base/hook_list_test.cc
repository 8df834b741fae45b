#include <tandem/base/hook_list.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using Hook = std::function<void()>;

struct Recorder {
  HookList<Hook> hooks;
  std::string calls;

  Hook letter(char name) {
    return [this, name] { calls += name; };
  }
  /// The letters of the hooks that a run calls.
  std::string run() {
    calls.clear();
    hooks.run([](const Hook& hook) { hook(); });
    return calls;
  }
};

TEST(HookList, HooksRunInOrderUntilRemoved) {
  Recorder list;
  EXPECT_TRUE(list.hooks.empty());
  EXPECT_EQ(list.run(), "");
  HookHandle a = list.hooks.add(list.letter('a'));
  const HookHandle b = list.hooks.add(list.letter('b'));
  const HookHandle c = list.hooks.add(list.letter('c'));
  EXPECT_EQ(list.run(), "abc");
  a.remove();
  EXPECT_EQ(list.run(), "bc");
  a = list.hooks.add(list.letter('a'));
  EXPECT_EQ(list.run(), "bca");
  EXPECT_FALSE(list.hooks.empty());
}

TEST(HookList, ListIsEmptyAfterTheLastRemoval) {
  HookList<Hook> hooks;
  {
    const HookHandle handle = hooks.add([] {});
  }
  EXPECT_TRUE(hooks.empty());
}

TEST(HookList, HookMayRemoveItselfAndLaterHooks) {
  Recorder list;
  HookHandle first, second, third;
  const auto held = std::make_shared<std::string>("alive");
  first = list.hooks.add([&, held] {
    first.remove();
    second.remove();
    list.calls += *held;  // the running hook is still there
  });
  second = list.hooks.add(list.letter('2'));
  third = list.hooks.add(list.letter('3'));
  EXPECT_EQ(list.run(), "alive3");
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(list.run(), "3");
}

TEST(HookList, HookAddedDuringARunIsCalledFromTheNextOne) {
  Recorder list;
  std::vector<HookHandle> added;
  const HookHandle handle = list.hooks.add([&] {
    list.calls += 'a';
    added.push_back(list.hooks.add(list.letter('b')));
  });
  EXPECT_EQ(list.run(), "a");
  EXPECT_EQ(list.run(), "ab");
  EXPECT_EQ(list.run(), "abb");
}

TEST(HookList, ExceptionEndsTheRunAndKeepsTheHooks) {
  Recorder list;
  const HookHandle a = list.hooks.add(list.letter('a'));
  HookHandle failing = list.hooks.add([] { throw std::runtime_error("hook"); });
  const HookHandle c = list.hooks.add(list.letter('c'));
  EXPECT_THROW(list.run(), std::runtime_error);
  EXPECT_EQ(list.calls, "a");
  failing.remove();
  EXPECT_EQ(list.run(), "ac");
}

TEST(HookList, RunsMayBeNested) {
  Recorder list;
  int depth = 0;
  const HookHandle outer = list.hooks.add([&] {
    list.calls += 'a';
    if (++depth == 1) list.hooks.run([](const Hook& hook) { hook(); });
  });
  const HookHandle inner = list.hooks.add(list.letter('b'));
  EXPECT_EQ(list.run(), "aabb");
}

TEST(HookList, HookMayDestroyTheList) {
  std::optional<HookList<Hook>> hooks(std::in_place);
  int calls = 0;
  const HookHandle first = hooks->add([&] { hooks.reset(); });
  const HookHandle second = hooks->add([&] { ++calls; });
  hooks->run([](const Hook& hook) { hook(); });
  EXPECT_EQ(calls, 1);
}

TEST(HookList, HandleMayOutliveTheList) {
  HookHandle handle;
  std::weak_ptr<int> captured;
  {
    HookList<Hook> hooks;
    const auto value = std::make_shared<int>(1);
    captured = value;
    handle = hooks.add([value] {});
  }
  EXPECT_TRUE(captured.expired());
  handle.remove();
}

}}  // namespace tandem

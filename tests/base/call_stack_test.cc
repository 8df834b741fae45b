#include <tandem/base/call_stack.h>
#include <tandem/tests/support/test.h>

namespace tandem { inline namespace v0 { namespace call_stack_test {

/// Functions of the library, through a function object of the standard library.
[[gnu::noinline]] CallStack inner(const std::function<CallStack()>& f) { return f(); }
[[gnu::noinline]] CallStack library_function() {
  return inner([] { return CallStack::here(); });
}

}}}  // namespace tandem::v0::call_stack_test

namespace tandem { namespace {

[[gnu::noinline]] CallStack program_function() {
  CallStack stack = call_stack_test::library_function();
  return stack;
}

TEST(CallStack, CallerIsTheInnermostFunctionOutsideTheLibrary) {
  const CallStack stack = program_function();
  EXPECT_EQ(stack.caller(), "call_stack_test.cc:17 in tandem::(anonymous namespace)::program_function");
}

TEST(CallStack, EmptyStackHasNoCaller) { EXPECT_EQ(CallStack().caller(), ""); }

}}  // namespace tandem

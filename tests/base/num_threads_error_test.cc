#include <tandem/base/parallel_for.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

// TANDEM_NUM_THREADS is 0.
TEST(NumThreads, InvalidEnvironmentVariableIsAnErrorUntilThreadsAreSet) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(testing::error_text<ValueError>([] { num_threads(); }), "TANDEM_NUM_THREADS is 0, expected 1 to 4096");
  }
  set_num_threads(2);
  EXPECT_EQ(num_threads(), 2);
}

}}  // namespace tandem

#include <gtest/gtest.h>

#include <tandem/base/parallel_for.h>

namespace tandem { namespace {

// TANDEM_NUM_THREADS is 3.
TEST(NumThreads, EnvironmentVariableIsTheDefault) {
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(2);
  EXPECT_EQ(num_threads(), 2);
  set_num_threads(0);
  EXPECT_EQ(num_threads(), 3);
}

}}  // namespace tandem

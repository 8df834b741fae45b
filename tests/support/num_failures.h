// Tests of helper functions that use EXPECT_*.
#pragma once

#include <functional>

#include <gtest/gtest-spi.h>

namespace tandem::testing {

/// Number of expectations that fail in f, on this thread.
inline int num_failures(const std::function<void()>& f) {
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    f();
  }
  return results.size();
}

}  // namespace tandem::testing

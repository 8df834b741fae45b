#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>

namespace tandem { namespace {

TEST(CpuDevicesEnv, InvalidValueIsRejectedOnEachUse) {
  for (int i = 0; i < 2; ++i) {  // every use throws again
    try {
      empty({3});
      FAIL();
    } catch (const ValueError& error) {
      EXPECT_STREQ(error.what(), "TANDEM_CPU_DEVICES: 65 is not in 1 .. 64");
    }
  }
}

}}  // namespace tandem

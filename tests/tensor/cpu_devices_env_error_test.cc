#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(CpuDevicesEnv, InvalidValueIsRejectedOnEachUse) {
  for (int i = 0; i < 2; ++i) {  // every use throws again
    EXPECT_ERROR(ValueError, empty({3}), "TANDEM_CPU_DEVICES: 65 is not in 1 .. 64");
  }
}

}}  // namespace tandem

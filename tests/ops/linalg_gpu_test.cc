// Linear algebra rejects tensors on GPUs.
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(LinalgOnGpu, EveryFunctionThrowsDeviceError) {
  const Tensor a = ones({2, 3, 3}, {.device = Device("cuda:0")});
  EXPECT_THROW(static_cast<void>(linalg::cholesky(a)), DeviceError);
  EXPECT_THROW(static_cast<void>(linalg::solve(a, a)), DeviceError);
  EXPECT_THROW(static_cast<void>(linalg::inv(a)), DeviceError);
  EXPECT_THROW(static_cast<void>(linalg::det(a)), DeviceError);
  EXPECT_THROW(static_cast<void>(linalg::qr(a)), DeviceError);
  EXPECT_THROW(static_cast<void>(linalg::svd(a)), DeviceError);
  EXPECT_THROW(static_cast<void>(linalg::eigh(a)), DeviceError);
}

TEST(LinalgOnGpu, ErrorSaysWhatToDo) {
  const Tensor a = ones({3, 3}, {.device = Device("cuda:0")});
  EXPECT_ERROR(DeviceError, linalg::inv(a),
               "linalg::inv: it runs on CPUs only\n  A  cuda:0  float32 [3, 3]\n"
               "  move the operands with .cpu(), and the result back");
}

}}  // namespace tandem::testing

// Events that operations record in a trace.
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

/// "category name [flops bytes] module" of each event of f, oldest first.
std::vector<std::string> traced(const std::function<void()>& f) {
  start_trace();
  f();
  std::vector<std::string> lines;
  for (const TraceEvent& e : stop_trace()) {
    lines.push_back(str(e.category, ' ', e.name, " [", e.num_flops, ' ', e.num_bytes, "] ", e.module));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(OpTrace, NothingIsRecordedWhileDisabled) {
  const Tensor x = random_tensor({3, 7}, 1, kFloat32);
  relu(x);
  EXPECT_EQ(traced([] {}), Lines{});
}

TEST(OpTrace, ForwardAndBackwardCountFlopsAndBytes) {
  Tensor x = random_tensor({5, 7}, 1, kFloat32), w = random_tensor({7, 3}, 2, kFloat32);
  w.requires_grad_();
  RankContext::current().module_scope = make_ref<ScopeName>("Linear 'fc1'");
  Tensor y;
  EXPECT_EQ(traced([&] { y = relu(matmul(x, w)); }),
            (Lines{
                "op matmul [210 284] Linear 'fc1'",  // 2 * 5 * 7 * 3; (35 + 21 + 15) floats
                "algorithm direct [0 0] Linear 'fc1'",
                "op relu [0 120] Linear 'fc1'",
            }));
  RankContext::current().module_scope = {};
  const Tensor cotangent = random_tensor({5, 3}, 3, kFloat32);
  EXPECT_EQ(traced([&] { y.backward(cotangent); }),
            (Lines{
                "backward backward [0 0] ",
                "backward relu [0 0] Linear 'fc1'",        // does all its work in
                "op relu_backward [0 180] Linear 'fc1'",   // this operation
                "backward matmul [210 284] Linear 'fc1'",  // cotangent, x and the gradient of w
                "algorithm direct [0 0] Linear 'fc1'",
            }));
}

TEST(OpTrace, OperationsAreRecordedUnderNoGrad) {
  const NoGradGuard off;
  const Tensor x = random_tensor({5, 7}, 1, kFloat64);
  EXPECT_EQ(traced([&] { sum(x, {1}); }), Lines{str("op sum [0 ", 8 * (35 + 5), "] ")});
}

TEST(OpTrace, SumOfFloat32AndHalfIsOneOperation) {
  const Autocast autocast(kBFloat16);
  const Tensor x = random_tensor({64, 8}, 1, kFloat32), half = random_tensor({64, 8}, 2, kBFloat16);
  EXPECT_EQ(traced([&] { x + half; }), Lines{str("op add [0 ", 64 * 8 * (4 + 2 + 4), "] ")});
}

TEST(OpTrace, ViewsCountNoWorkAndCopiesCountBytes) {
  Tensor x = random_tensor({5, 7}, 1, kFloat32);
  x.requires_grad_();
  Tensor y;
  EXPECT_EQ(traced([&] { y = contiguous(transpose(x, 0, 1)); }),
            (Lines{"op contiguous [0 0] ", "op clone [0 0] ", "copy copy [0 280] "}));
  const Tensor cotangent = random_tensor({7, 5}, 3, kFloat32);
  EXPECT_EQ(traced([&] { y.backward(cotangent); }), (Lines{"backward backward [0 0] ", "backward clone [0 0] ",
                                                           "backward transpose [0 0] ", "copy copy [0 280] "}));
}

TEST(OpTrace, SpanEndsWhenOperationThrows) {
  const Tensor x = random_tensor({5, 7}, 1, kFloat32);
  const Lines lines = traced([&] {
    EXPECT_THROW(matmul(x, x), ShapeError);
    relu(x);
  });
  EXPECT_EQ(lines, (Lines{"op matmul [0 280] ", "op relu [0 280] "}));
}

}}  // namespace tandem::testing

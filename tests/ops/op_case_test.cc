// The checks of OpCase detect faults: each test plants a fault in an operation.
#include <tandem/tests/support/op_case.h>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tests/support/num_failures.h>

namespace tandem::testing { namespace {

/// 2 a + b, a case without faults.
OpCase good_case() {
  return {.name = "add",
          .inputs = {{"a", {3, 7}}, {"b", {7}}},
          .run = [](const Tensors& x) { return add(x[1], x[0], 2); },
          .reference = elementwise([](double a, double b) { return 2 * a + b; })};
}

OpCase with_run(std::function<Results(const Tensors&)> run) {
  OpCase op = good_case();
  op.run = std::move(run);
  return op;
}

TEST(OpCaseChecks, AcceptACorrectOperation) {
  OpCase op = with_run([](const Tensors& x) { return add(x[0], x[1], 2); });
  op.reference = elementwise([](double a, double b) { return a + 2 * b; });
  EXPECT_EQ(num_failures([&] { check(op); }), 0);
}

TEST(OpCaseChecks, FindWrongValues) {
  OpCase op = good_case();
  op.reference = elementwise([](double a, double b) { return 2.01 * a + b; });
  EXPECT_GT(num_failures([&] { check_values(op); }), 0);
  op = good_case();
  op.result_dtype = kFloat32;
  EXPECT_GT(num_failures([&] { check_values(op); }), 0);
}

TEST(OpCaseChecks, FindAChangedInput) {
  const OpCase op = with_run([](const Tensors& x) {
    const Tensor result = add(x[1], x[0], 2);
    if (x[0].is_contiguous()) x[0].zero_();
    return result;
  });
  EXPECT_GT(num_failures([&] { check_values(op); }), 0);
}

/// Zero with the gradient of x on the device of the tests; zero elsewhere: on emulated GPUs the gradients are compared
/// with those of the CPU.
Tensor with_wrong_gradient(const Tensor& x) {
  return x.device().type == test_device().type ? x - x.detach() : x.detach() * 0;
}

TEST(OpCaseChecks, FindWrongGradients) {
  EXPECT_EQ(num_failures([] { check_gradients(good_case()); }), 0);
  const OpCase wrong = with_run([](const Tensors& x) { return add(x[1], x[0], 2) + with_wrong_gradient(x[0]); });
  EXPECT_GT(num_failures([&] { check_gradients(wrong); }), 0);
  // Correct only in float64.
  const OpCase wrong_in_half = with_run([](const Tensors& x) {
    return add(x[1], x[0].dtype() == kFloat16 ? x[0] * 1 : x[0], 2) +
           (x[0].dtype() == kFloat16 ? x[0] - x[0].detach() : x[0] * 0);
  });
  EXPECT_GT(num_failures([&] { check_gradients(wrong_in_half); }), 0);
}

TEST(OpCaseChecks, FindWrongSecondGradients) {
  OpCase op{.name = "mul",
            .inputs = {{"a", {3}}},
            // Value and gradient are those of a^2; the second gradient is that of 2 a.
            .run = [](const Tensors& x) {
              const Tensor constant = x[0].detach();
              return x[0].device().type == test_device().type ? x[0] * constant * 2 - constant * constant : x[0] * x[0];
            }};
  EXPECT_GT(num_failures([&] { check_gradients(op); }), 0);
  op.has_second_gradient = false;
  EXPECT_EQ(num_failures([&] { check_gradients(op); }), 0);
}

TEST(OpCaseChecks, FindBitsThatDependOnThreads) {
  const OpCase op = with_run([](const Tensors& x) { return add(x[1], x[0], 2) + num_threads() * 1e-3; });
  EXPECT_GT(num_failures([&] { check_threads(op); }), 0);
}

TEST(OpCaseChecks, FindWrongErrors) {
  EXPECT_GT(num_failures([] { check_errors(good_case()); }), 0) << "the operands have the wrong names";
  OpCase op = with_run([](const Tensors& x) { return add(x[0], x[1]); });
  EXPECT_EQ(num_failures([&] { check_errors(op); }), 0);
  op.name = "sub";
  EXPECT_GT(num_failures([&] { check_errors(op); }), 0);
}

}}  // namespace tandem::testing

#include <tandem/tensor/dlpack.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

TEST(InPlace, StridedSelfMatchesReference) {
  for (Layout layout : {Layout::kTransposed, Layout::kSliced}) {
    const Tensor self = make_tensor(random_dense({3, 7}, 1), kFloat64, layout);
    const Dense before = dense(self);
    self.add_(random_tensor({7}, 2, kFloat64), 2).mul_(3).sub_(1).div_(4);
    const Dense want = dense_map({3, 7}, {before, random_dense({7}, 2)},
                                 [](const Values& v) { return ((v[0] + 2 * v[1]) * 3 - 1) / 4; });
    EXPECT_TRUE(close(self, want, 1e-15));
  }
}

TEST(InPlace, OverlappingOperandsAreReadBeforeWriting) {
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0});
  x.slice(0, 1, 4).add_(x.slice(0, 0, 3));
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 3, 5, 7}));
  x.mul_(x);
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 9, 25, 49}));
  x.slice(0, 0, 3).copy_(x.slice(0, 1, 4));
  EXPECT_EQ(x.to_vector<double>(), (Values{9, 25, 49, 49}));
  // With gradients: y = (2 w)^2.
  Tensor w = tensor({1.0, -2.0});
  w.requires_grad_();
  const Tensor y = w * 2;
  y.mul_(y);
  y.backward(tensor({1.0, 0.5}));
  EXPECT_EQ(w.grad().to_vector<double>(), (Values{8, -8}));
}

TEST(InPlace, FillAndCopyDiscardTheHistory) {
  Tensor x = random_tensor({3}, 1);
  x.requires_grad_();
  const Tensor filled = x * 2;
  filled.fill_(4);
  const Tensor zeroed = x * 3;
  zeroed.zero_();
  const Tensor copied = x * 4;
  copied.copy_(tensor({1, 2, 3}));
  const Tensor output = sum(filled * x + zeroed * x + copied * 5);
  output.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{4, 4, 4}));
  EXPECT_EQ(copied.to_vector<double>(), (Values{1, 2, 3}));
}

TEST(InPlace, FillWithOutOfRangeNumberIsRejected) {
  const Tensor x = tensor({1, 2}).to(kUInt8);
  const std::string rest = " does not fit in uint8 (0 to 255); choose another dtype";
  EXPECT_ERROR(ValueError, x.fill_(300), "fill_: value 300" + rest);
  EXPECT_ERROR(ValueError, x.fill_(NAN), "fill_: value nan" + rest);
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(x.fill_(2.75).to_vector<int64_t>(), (std::vector<int64_t>{2, 2}));
}

TEST(InPlace, ChangeBumpsVersionAndRecordsWriter) {
  const Tensor x = zeros({3});
  x.add_(1);
  x.mul_(x);
  x.fill_(2);
  x.copy_(ones({1}));
  EXPECT_EQ(x.version(), 4u);
  EXPECT_STREQ(x.storage()->last_writer(), "copy_");
  Tensor w = random_tensor({3}, 1);
  w.requires_grad_();
  const Tensor e = exp(w);
  e.add_(1);
  EXPECT_ERROR(StateError, e.backward(ones({3})),
               "exp: 'output' (float32 [3] on cpu) was changed in place by 'add_' after it was saved for backward "
               "(version 1, saved at 0)");
}

TEST(InPlace, OperatorsAndFunctionsChangeSelf) {
  const Tensor x = tensor({1.0, -4.0, 9.0}).to(test_device()), address = x;
  ((x += 1) -= 1) *= tensor({1.0, -1.0, 1.0}).to(test_device());
  x.sqrt_().exp_().log_().clamp_({}, 2.5);
  EXPECT_TRUE(close(x, {{3}, {1, 2, 2.5}}, 1e-5));
  EXPECT_TRUE(x.is_same(address));
  EXPECT_STREQ(x.storage()->last_writer(), "clamp_");
  const Tensor counts = tensor({-3, 4}).to(test_device());
  EXPECT_EQ(counts.abs_().pow_(2).to_vector<int64_t>(), (std::vector<int64_t>{9, 16}));
  EXPECT_EQ(counts.masked_fill_(tensor({true, false}).to(test_device()), 7).to_vector<int64_t>(),
            (std::vector<int64_t>{7, 16}));
  const Tensor mask = tensor({true, false}).to(test_device());
  EXPECT_EQ(mask.masked_fill_(mask, false).to_vector<int64_t>(), (std::vector<int64_t>{0, 0}));
}

TEST(InPlace, FunctionsKeepValuesThatBackwardNeeds) {
  Tensor w = tensor({2.0, 3.0}).to(test_device()).requires_grad_();
  const Tensor y = w * 1;
  y.log_();         // saves a copy of its input
  y.exp_().exp_();  // the second one overwrites what the first one saved
  EXPECT_EQ(error_text<StateError>([&] { y.sum().backward(); }).substr(0, 5), "exp_:");
  const Tensor z = w * 1;
  z.log_().mul_(2).exp_();
  z.sum().backward();
  EXPECT_TRUE(close(w.grad(), {{2}, {4, 6}}, 1e-5));
}

TEST(InPlace, FunctionErrorsLeaveSelfUnchanged) {
  const Tensor counts = tensor({1, 2});
  EXPECT_ERROR(DTypeError, counts.exp_(),
               "exp_: the result is float32, which self cannot represent\n  self  cpu  int64 [2]");
  EXPECT_ERROR(DTypeError, counts.clamp_(0.5),
               "clamp_: the result is float32, which self cannot represent\n  self  cpu  int64 [2]");
  EXPECT_ERROR(DTypeError, tensor({true}).abs_(), "abs_: bool is not accepted\n  self  cpu  bool [1]");
  EXPECT_ERROR(ShapeError, counts.masked_fill_(tensor({true, false, true}).view({3, 1}), 1),
               "masked_fill_: mask does not broadcast to the shape of self\n"
               "  self  cpu  int64 [2]\n"
               "  mask  cpu  bool  [3, 1]");
  EXPECT_ERROR(
      StateError, zeros({1}).expand({2}).abs_(),
      "abs_: self is expanded, several of its elements share memory: clone it first\n  self  cpu  float32 [2]");
  Tensor w = tensor({1.0, 2.0}).requires_grad_();
  EXPECT_EQ(error_text<StateError>([&] { w.relu_(); }).substr(0, 6), "relu_:");
  EXPECT_EQ(counts.to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(w.version(), 0u);
}

TEST(InPlace, SelfKeepsItsDType) {
  const Tensor counts = tensor({1, 2, 3});
  counts.add_(tensor({1, 1, 1}), 2);
  counts.mul_(full({3}, 2, {kInt32}));
  EXPECT_EQ(counts.to_vector<int64_t>(), (std::vector<int64_t>{6, 8, 10}));
  EXPECT_EQ(counts.dtype(), kInt64);
  const Tensor half = ones({2}, {kFloat16});
  half.add_(tensor({0.5, 0.25}));
  EXPECT_EQ(half.dtype(), kFloat16);
  EXPECT_EQ(half.to_vector<double>(), (Values{1.5, 1.25}));
  counts.copy_(tensor({1.75, -1.75, 3.0}));
  EXPECT_EQ(counts.to_vector<int64_t>(), (std::vector<int64_t>{1, -1, 3}));
}

TEST(InPlace, ErrorsLeaveSelfUnchanged) {
  const Tensor counts = tensor({1, 2, 3});
  const Tensor x = tensor({1.0, 2.0, 3.0});
  EXPECT_ERROR(DTypeError, counts.add_(0.5),
               "add_: the result is float32, which self cannot represent\n  self  cpu  int64 [3]");
  EXPECT_ERROR(DTypeError, counts.div_(counts),
               "div_: the result is float32, which self cannot represent\n  self  cpu  int64 [3]");
  EXPECT_ERROR(ShapeError, x.mul_(zeros({2, 3})),
               "mul_: other does not broadcast to the shape of self\n"
               "  self   cpu  float32 [3]\n"
               "  other  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, x.copy_(zeros({2, 3})),
               "copy_: src does not broadcast to the shape of self\n"
               "  self  cpu  float32 [3]\n"
               "  src   cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, x.sub_(zeros({2})),
               "sub_: other does not broadcast to the shape of self\n"
               "  self   cpu  float32 [3]\n"
               "  other  cpu  float32 [2]");
  EXPECT_ERROR(StateError, x.expand({2, 3}).fill_(0),
               "fill_: self is expanded, several of its elements share memory: clone it first\n"
               "  self  cpu  float32 [2, 3]");
  EXPECT_ERROR(DTypeError, tensor({true}).sub_(tensor({true})), "sub_: bool is not accepted\n  self  cpu  bool [1]");
  Tensor w = tensor({1.0, 2.0, 3.0});
  w.requires_grad_();
  EXPECT_ERROR(StateError, w.add_(1),
               "add_: a leaf that requires grad is changed in place (float32 [3] on cpu); do it under a NoGradGuard, "
               "or use the form that returns a new tensor");
  const Tensor y = w * 2;
  EXPECT_ERROR(StateError, y.slice(0, 0, 2).mul_(2),
               "mul_: an in-place change of a view cannot be recorded (float32 [2] on cpu); use index_put_ on the "
               "whole tensor, or the form that returns a new tensor");
  const Tensor outside = tensor({1.0, 2.0, 3.0});
  const Tensor view = outside.view({3, 1});
  EXPECT_ERROR(StateError, outside.mul_(w),
               "mul_: the tensor (float32 [3] on cpu) would become part of the graph, but other tensors share its "
               "memory; use the form that returns a new tensor");
  EXPECT_EQ(view.to_vector<double>(), (Values{1, 2, 3}));
  const Tensor z = w * 3;
  z.detach().add_(1);
  EXPECT_ERROR(StateError, z.mul_(2),
               "mul_: input 0 (float32 [3] on cpu, made by 'mul') was changed in place by 'add_' through another "
               "tensor that shares its memory, so its gradient would be wrong; clone one of them");
  EXPECT_ERROR(StateError, z.copy_(w),
               "copy_: input 0 (float32 [3] on cpu, made by 'mul') was changed in place by 'add_' through another "
               "tensor that shares its memory, so its gradient would be wrong; clone one of them");
  EXPECT_EQ(z.to_vector<double>(), (Values{4, 7, 10}));
  EXPECT_EQ(counts.to_vector<double>(), (Values{1, 2, 3}));
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 2, 3}));
  EXPECT_EQ(w.to_vector<double>(), (Values{1, 2, 3}));
  EXPECT_EQ(y.to_vector<double>(), (Values{2, 4, 6}));
  EXPECT_EQ(x.version(), 0u);
  {
    const NoGradGuard no_grad;
    w.add_(1);
  }
  EXPECT_EQ(w.to_vector<double>(), (Values{2, 3, 4}));
}

TEST(InPlace, AccumulateWithGraphIsRecorded) {
  Tensor a = tensor({1.0, 2.0});
  a.requires_grad_();
  const Tensor sum = autograd::accumulate_with_graph(a, tensor({0.5, 0.5}));
  EXPECT_EQ(sum.to_vector<double>(), (Values{1.5, 2.5}));
  EXPECT_TRUE(sum.requires_grad());
}

TEST(Assignment, ToAnExpressionCopiesIntoItsMemory) {
  const Tensor x = arange(6, {kFloat32}).view({2, 3});
  x[0] = tensor({7, 8, 9});
  x.slice(1, 2, 3) = 1.5;
  x[1][0] = x[1][1] = -1;
  EXPECT_EQ(x.to_vector<double>(), (Values{7, 8, 1.5, -1, -1, 1.5}));
  x.index({Slice(), 0}) = x.index({Slice(), 1}) + 1;
  x.t()[2] = full({}, true, {kBool});
  EXPECT_EQ(x.to_vector<double>(), (Values{9, 8, 1, 0, -1, 1}));
  x[0] = x[0];
  x.slice(1, 1, 3) = x.slice(1, 0, 2);
  EXPECT_EQ(x.to_vector<double>(), (Values{9, 9, 8, 0, 0, -1}));
  const Tensor row = x[0].clone();
  x[0] = x[1];
  x[1] = row;
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 0, -1, 9, 9, 8}));
  x[1].detach() = 3;
  x[1] += 1;
  x[0].view_as(zeros({1, 3})) = x[0].cpu() + 5;
  EXPECT_EQ(x.to_vector<double>(), (Values{5, 5, 4, 4, 4, 4}));
  x.expand_as(x) = x.cpu() = 2;
  make_view(x.storage(), kFloat32, {2}, {1}, 4) = 3;
  EXPECT_EQ(x.to_vector<double>(), (Values{2, 2, 2, 2, 3, 3}));
  EXPECT_EQ(x.version(), 16u);

  std::vector<float> memory(2);
  from_blob(memory.data(), {2}) = 3;
  EXPECT_EQ(memory, (std::vector<float>{3, 3}));
  const Tensor shared = zeros({2});
  from_dlpack(to_dlpack(shared)) = 4;
  EXPECT_EQ(shared.to_vector<double>(), (Values{4, 4}));

  Tensor w = tensor({1.0, -2.0});
  w.requires_grad_();
  const Tensor y = w * w;
  y.retain_grad();
  sum(y).backward();
  const Tensor slot = w.grad();
  w.grad() = w.grad() / 2;
  y.grad() = 5;
  EXPECT_TRUE(w.grad().is_same(slot));
  EXPECT_EQ(slot.to_vector<double>(), (Values{1, -2}));
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{5, 5}));

  Tensor a = zeros({2}), b = a;
  std::move(a) = tensor({1, 2});
  EXPECT_TRUE(a.is_same(b));
  std::move(a) = a;
  std::move(a) = a.flip({0});
  EXPECT_EQ(b.to_vector<double>(), (Values{2, 1}));
}

TEST(Assignment, ErrorTexts) {
  const Tensor x = zeros({2, 3}), counts = from_vector<int8_t>({1, 2}, {2});
  Tensor w = ones({3}), alone = zeros({2});
  w.requires_grad_();
  const std::string lost =
      ") that nothing else refers to, so the values would be lost; assign to a variable or a view, or use index_put_ "
      "or "
      "masked_fill_";
  EXPECT_ERROR(StateError, relu(x) = 1, "operator=: the left side is a new tensor (float32 [2, 3] on cpu" + lost);
  EXPECT_ERROR(StateError, x.index({x == 0}) = w,
               "operator=: the left side is a new tensor (float32 [6] on cpu" + lost);
  EXPECT_ERROR(StateError, exp(w) = w, "operator=: the left side is a new tensor (float32 [3] on cpu" + lost);
  EXPECT_ERROR(StateError, std::move(alone) = 1, "operator=: the left side is a new tensor (float32 [2] on cpu" + lost);
  EXPECT_ERROR(StateError, relu(x)[0] = 1, "operator=: the left side is a new tensor (float32 [3] on cpu" + lost);
  EXPECT_ERROR(StateError, x.index({x == 0})[0] = 1,
               "operator=: the left side is a new tensor (float32 [] on cpu" + lost);
  EXPECT_ERROR(StateError, x.to(kFloat64)[0][1] = 1,
               "operator=: the left side is a new tensor (float64 [] on cpu" + lost);
  EXPECT_ERROR(StateError, x.index({x == 0}) += 1,
               "operator+=: the left side is a new tensor (float32 [6] on cpu" + lost);
  EXPECT_ERROR(StateError, relu(x)[0] /= w, "operator/=: the left side is a new tensor (float32 [3] on cpu" + lost);
  EXPECT_ERROR(StateError, w.grad() = w,
               "operator=: the left side is undefined; assign to a variable, or use set_grad for a gradient");
  EXPECT_ERROR(StateError, x[0] = w,
               "copy_: an in-place change of a view cannot be recorded (float32 [3] on cpu); use index_put_ on the "
               "whole tensor, or the form that returns a new tensor");
  EXPECT_ERROR(StateError, w[0] = 1,
               "fill_: an in-place change of a view cannot be recorded (float32 [] on cpu); use index_put_ on the "
               "whole tensor, or the form that returns a new tensor");
  EXPECT_ERROR(ValueError, counts[0] = 300,
               "fill_: value 300 does not fit in int8 (-128 to 127); choose another dtype");
  EXPECT_ERROR(StateError, x[0] = Tensor(),
               "copy_: src is undefined\n  self  cpu        float32 [3]\n  src   undefined");
  x.index_put_({0}, w);
  const NoGradGuard no_grad;
  w[0] = 4;
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(w.to_vector<double>(), (Values{4, 1, 1}));
}

TEST(Assignment, ToAVariableRefersToTheOtherTensor) {
  static_assert(!std::is_assignable_v<const Tensor&, Tensor> && !std::is_assignable_v<Tensor&, double>);
  static_assert(std::is_nothrow_move_assignable_v<Tensor>);
  struct Pair {
    Tensor first, second;
  };
  const Tensor x = zeros({2}), y = ones({2});
  Tensor a = x, b;
  std::swap(a, b);
  EXPECT_TRUE(b.is_same(x) && !a.defined());
  std::tie(a, b) = std::pair(b, y);
  EXPECT_TRUE(a.is_same(x) && b.is_same(y));
  EXPECT_TRUE(std::exchange(a, y).is_same(x) && a.is_same(y));
  Pair pair{x, y};
  pair = Pair{y, x};
  EXPECT_TRUE(pair.first.is_same(y) && pair.second.is_same(x));
  std::optional<Tensor> optional = x;
  optional = y;
  *optional = x;
  EXPECT_TRUE(optional->is_same(x));
  std::vector<Tensor> list = {x, x, y};
  list.erase(list.begin());
  std::swap(list[0], list[1]);
  EXPECT_TRUE(list[0].is_same(y) && list[1].is_same(x));
  list[0] = x;
  a = x[0];
  a = y[0];
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 0}));
}

}}  // namespace tandem::testing

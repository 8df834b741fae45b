#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

TEST(View, ViewsShareMemoryAndVersion) {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  const Tensor views[] = {x.view({6, 4}),       x.reshape({24}),  x.flatten(1),      x.transpose(0, 2),
                          x.permute({1, 2, 0}), x.slice(1, 0, 2), x.select(0, 0),    x.expand({5, 2, 3, 4}),
                          x.unsqueeze(0),       x.squeeze(0),     x.view({6, 4}).t()};
  for (const Tensor& view : views) {
    EXPECT_EQ(view.data_ptr(), x.data_ptr());
    EXPECT_TRUE(view.impl().is_view);
  }
  views[0].fill_(3);
  EXPECT_EQ(x.version(), 1u);
  EXPECT_EQ(x.to_vector<double>(), Values(24, 3));
  // Requires a copy:
  EXPECT_NE(x.transpose(0, 2).reshape({24}).data_ptr(), x.data_ptr());
}

TEST(View, ViewOfStridedTensorComputesStrides) {
  const Tensor x = random_tensor({4, 6}, 1);
  EXPECT_EQ(x.slice(0, 0, 4, 2).view({2, 2, 3}).strides(), (Shape{12, 3, 1}));
  EXPECT_EQ(x.t().view({2, 3, 4}).strides(), (Shape{3, 1, 6}));
  EXPECT_EQ(x.slice(1, 0, 6, 2).view({12}).strides(), (Shape{2}));
  EXPECT_EQ(x.view({4, 1, 6}).expand({4, 3, 6}).view({4, 3, 2, 3}).strides(), (Shape{6, 0, 3, 1}));
}

TEST(View, SelectAndSliceAcceptEmptyTensors) {
  EXPECT_EQ(zeros({3, 0, 2}).select(0, 2).shape(), (Shape{0, 2}));
  EXPECT_EQ(zeros({3, 0, 2}).slice(0, 1, 3).shape(), (Shape{2, 0, 2}));
}

TEST(View, CatPromotesDTypes) {
  EXPECT_EQ(cat({tensor({1, 2}), tensor({0.5})}).to_vector<double>(), (Values{1, 2, 0.5}));
}

TEST(View, SizesOfSplitAndChunk) {
  const auto sizes = [](const std::vector<Tensor>& parts) {
    std::vector<int64_t> result;
    for (const Tensor& part : parts) result.push_back(part.size(0));
    return result;
  };
  using Sizes = std::vector<int64_t>;
  const Tensor x = random_tensor({5}, 1);
  EXPECT_EQ(sizes(x.split(2)), (Sizes{2, 2, 1}));
  EXPECT_EQ(sizes(x.split(9)), (Sizes{5}));
  EXPECT_EQ(sizes(x.split(INT64_MAX)), (Sizes{5}));
  EXPECT_EQ(sizes(x.chunk(4)), (Sizes{2, 2, 1}));  // one fewer than requested
  EXPECT_EQ(sizes(x.chunk(9)), (Sizes{1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(zeros({0, 3}).split(2)), (Sizes{0}));
  EXPECT_EQ(sizes(zeros({0, 3}).chunk(3)), (Sizes{0, 0, 0}));  // as in PyTorch
  EXPECT_EQ(sizes(split(x, {5})), (Sizes{5}));
  EXPECT_EQ(split(zeros({0}), Shape{}).size(), 0u);
  for (const Tensor& part : x.split(2)) EXPECT_EQ(part.storage(), x.storage());
}

TEST(View, GradientsOfSplitPartsAreSummed) {
  Tensor x = random_tensor({4}, 1).requires_grad_();
  const std::vector<Tensor> parts = x.split(3);
  const Tensor outputs[] = {parts[0], parts[1], parts[0]};
  const Tensor inputs[] = {x};
  const Tensor cotangents[] = {tensor({1.0, 2.0, 3.0}), tensor({4.0}), tensor({10.0, 20.0, 30.0})};
  EXPECT_EQ(grad(outputs, inputs, cotangents)[0].to_vector<double>(), (Values{11, 22, 33, 4}));
}

TEST(View, StackPromotesDTypes) {
  EXPECT_EQ(stack({tensor({1, 2}), tensor({0.5, 1.5})}, 1).to_vector<double>(), (Values{1, 0.5, 2, 1.5}));
}

TEST(View, GradientFlowsThroughChainedViews) {
  Tensor x = random_tensor({4, 6}, 3, kFloat64);
  x.requires_grad_();
  const Tensor y = x.t().slice(0, 1, 5, 2).select(1, 2).unsqueeze(0).expand({3, 2});
  (y * y).backward(ones({3, 2}, {kFloat64}));
  const Values values = x.to_vector<double>();
  Values want(24, 0);
  for (size_t column : {1, 3}) want[2 * 6 + column] = 3 * 2 * values[2 * 6 + column];
  EXPECT_TRUE(close(x.grad(), {{4, 6}, want}, 1e-15));
}

TEST(View, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(ShapeError, x.view({4, -1}), "view: 6 elements do not fit shape [4, -1]\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, zeros({0}).reshape({0, -1}),
               "reshape: 0 elements do not fit shape [0, -1]\n  input  cpu  float32 [0]");
  EXPECT_ERROR(ShapeError, x.reshape({-1, -1}),
               "reshape: 6 elements do not fit shape [-1, -1]\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, x.t().view({6}),
               "view: the strides [1, 3] do not permit shape [6] without a copy\n"
               "  input  cpu  float32 [3, 2]\n"
               "  use reshape({6}), which copies");
  const Tensor maps = conv2d(ones({4, 3, 6, 6}), ones({20, 3, 3, 3}));
  EXPECT_ERROR(ShapeError, maps.view({-1, 320}),
               "view: the strides [320, 1, 80, 20] do not permit shape [-1, 320] without a copy, because input is "
               "channels-last, as results of convolutions are\n"
               "  input  cpu  float32 [4, 20, 4, 4]\n"
               "  use reshape({-1, 320}), which copies");
  EXPECT_ERROR(ShapeError, conv1d(ones({4, 3, 6}), ones({20, 3, 3})).view(-1, 80),
               "view: the strides [80, 1, 20] do not permit shape [-1, 80] without a copy, because input is "
               "channels-last, as results of convolutions are\n"
               "  input  cpu  float32 [4, 20, 4]\n"
               "  use reshape({-1, 80}), which copies");
  EXPECT_ERROR(ShapeError, x.flatten(1, 0), "flatten: start_dim 1 is after end_dim 0\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, zeros({2, 1, 3}).t(),
               "t: input must have at most two dimensions\n  input  cpu  float32 [2, 1, 3]");
  EXPECT_ERROR(ShapeError, x.permute({0, 0}),
               "permute: dims [0, 0] do not name each dimension once\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ValueError, x.slice(0, 0, 2, 0), "slice: step is 0, must be at least 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(IndexError, zeros({}).slice(0, 0, 1), "slice: input has no dimensions\n  input  cpu  float32 []");
  EXPECT_ERROR(IndexError, x.select(1, 3),
               "select: index 3 is out of range for dimension 1 of size 3\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, x.expand({3, 3}), "expand: input does not expand to [3, 3]\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(IndexError, x.transpose(0, 2),
               "transpose: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_ERROR(ValueError, cat({}), "cat: no tensors");
  EXPECT_ERROR(ShapeError, cat({x, x, zeros({2, 4})}, 0),
               "cat: sizes differ in a dimension other than 0\n"
               "  tensors[0]  cpu  float32 [2, 3]\n"
               "  tensors[2]  cpu  float32 [2, 4]");
  EXPECT_ERROR(ValueError, stack({}), "stack: no tensors");
  EXPECT_ERROR(ShapeError, stack({x, x, zeros({2, 4})}),
               "stack: shapes differ\n"
               "  tensors[0]  cpu  float32 [2, 3]\n"
               "  tensors[2]  cpu  float32 [2, 4]");
  EXPECT_ERROR(IndexError, stack({x}, 3), "stack: dimension 3 is out of range [-3, 3) of a tensor with 3 dimensions");
  EXPECT_ERROR(ValueError, x.split(0), "split: split_size is 0, must be at least 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ValueError, split(x, {4, -1}, 1),
               "split: split_sizes [4, -1] contain a negative size\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, split(x, {2}, 1),
               "split: split_sizes [2] do not add up to dimension 1 of size 3\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(
      ShapeError, split(x, {INT64_MAX, INT64_MAX, 5}, 1),
      "split: split_sizes [9223372036854775807, 9223372036854775807, 5] do not add up to dimension 1 of size 3\n"
      "  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(IndexError, zeros({}).split(1), "split: input has no dimensions\n  input  cpu  float32 []");
  EXPECT_ERROR(ValueError, x.chunk(-1), "chunk: chunks is -1, must be at least 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(StateError, view(Tensor(), {2}), "view: input is undefined\n  input  undefined");
}

}}  // namespace tandem::testing

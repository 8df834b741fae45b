#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(Embedding, GradientSumsRepeatedRowsAndAccumulates) {
  Tensor weight = zeros({4, 2}, {kFloat64}).requires_grad_();
  const Tensor indices = tensor({2, 0, 2, 2});
  const Tensor cotangent = from_vector<double>({1, 2, 4, 8, 16, 32, 64, 128}, {4, 2});
  embedding(indices, weight).backward(cotangent);
  EXPECT_EQ(weight.grad().to_vector<double>(), (std::vector<double>{4, 8, 0, 0, 81, 162, 0, 0}));
  embedding(indices, weight).backward(cotangent);
  EXPECT_EQ(weight.grad().to_vector<double>(), (std::vector<double>{8, 16, 0, 0, 162, 324, 0, 0}));
}

TEST(Embedding, GradientAfterZeroGradIsOverwritten) {
  Tensor weight = zeros({3, 1}).requires_grad_();
  embedding(tensor({0, 1, 2}), weight).backward(full({3, 1}, 7));
  weight.zero_grad();
  embedding(tensor({1}), weight).backward(full({1, 1}, 5));
  EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{0, 5, 0}));
}

TEST(Embedding, PaddingRowHasNoGradient) {
  const Device device = test_device();
  const TensorOptions options = {kFloat64, device};
  const Tensor indices = tensor({2, 0, 2, 3}).to(device);
  const Tensor cotangent = from_vector<double>({1, 2, 4, 8, 16, 32, 64, 128}, {4, 2}, options);
  for (const int64_t padding : {2, -2}) {
    Tensor weight = from_vector<double>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}, options).requires_grad_();
    const Tensor y = embedding(indices, weight, padding);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{5, 6, 1, 2, 5, 6, 7, 8}));
    y.backward(cotangent);
    EXPECT_EQ(weight.grad().to_vector<double>(), (std::vector<double>{4, 8, 0, 0, 0, 0, 64, 128}));
    embedding(indices, weight, padding).backward(cotangent);
    EXPECT_EQ(weight.grad().to_vector<double>(), (std::vector<double>{8, 16, 0, 0, 0, 0, 128, 256}));
    // The gradient is linear in the cotangent, whose rows at padding have no effect.
    const Tensor seed = cotangent.clone().requires_grad_();
    const Tensor gradient = grad({embedding(indices, weight, padding)}, {weight}, {seed}, {.create_graph = true})[0];
    EXPECT_EQ(gradient.to_vector<double>(), (std::vector<double>{4, 8, 0, 0, 0, 0, 64, 128}));
    const Tensor second = grad({gradient}, {seed}, {weight.detach()})[0];
    EXPECT_EQ(second.to_vector<double>(), (std::vector<double>{0, 0, 1, 2, 0, 0, 7, 8}));
  }
  EXPECT_ERROR(IndexError, embedding(tensor({1}), zeros({4, 2}), 4),
               "embedding: padding_idx is 4, expected -4 to 3\n"
               "  indices  cpu  int64   [1]\n"
               "  weight   cpu  float32 [4, 2]");
}

TEST(Embedding, IndexIntoEmptyWeightIsRejected) {
  const Device device = test_device();
  const Tensor weight = zeros({0, 3}, {kFloat32, device});
  EXPECT_ERROR(IndexError, embedding(zeros({2, 2}, {kInt64, device}), weight),
               "embedding: index 0 at position [0, 0] is outside [0, 0)");
  EXPECT_EQ(embedding(zeros({0, 2}, {kInt64, device}), weight).shape(), (Shape{0, 2, 3}));
}

TEST(Embedding, InvalidArgumentsAreNamedInErrors) {
  const Tensor weight = zeros({4, 2});
  EXPECT_ERROR(IndexError, embedding(tensor({1, 3, 4, -1}), weight),
               "embedding: index 4 at position 2 is outside [0, 4)");
  EXPECT_ERROR(IndexError, embedding(tensor({1, 3, 2, 0, -7, 9}).view({2, 3}).t(), weight),
               "embedding: index -7 at position [1, 1] is outside [0, 4)");
  EXPECT_ERROR(IndexError, embedding(scalar_tensor(5, {kInt64}), weight),
               "embedding: index 5 at position [] is outside [0, 4)");
  EXPECT_ERROR(DTypeError, embedding(zeros({3}, {kInt32}), weight),
               "embedding: indices must be int64\n"
               "  indices  cpu  int32   [3]\n"
               "  weight   cpu  float32 [4, 2]");
  EXPECT_ERROR(DTypeError, embedding(tensor({0}), zeros({4, 2}, {kInt64})),
               "embedding: weight must be floating\n  weight  cpu  int64 [4, 2]");
  EXPECT_ERROR(ShapeError, embedding(tensor({0}), zeros({4})),
               "embedding: weight must be [V, d]\n"
               "  indices  cpu  int64   [1]\n"
               "  weight   cpu  float32 [4]");
}

}}  // namespace tandem::testing

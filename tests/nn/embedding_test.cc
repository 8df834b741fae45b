#include <tandem/nn/embedding.h>

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

TEST(Embedding, RowsAreLookedUpAndReceiveGradients) {
  nn::Embedding layer(3, 2);
  td::primitives::copy(td::from_vector<float>({1, 2, 10, 20, 100, 200}, {3, 2}), layer.weight);
  const td::Tensor y = layer(td::tensor({2, 0, 2}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{100, 200, 1, 2, 100, 200}));
  y.backward(td::from_vector<float>({1, -1, 0.5, 3, 2, 4}, {3, 2}));
  EXPECT_EQ(layer.weight.grad().to_vector<float>(), (std::vector<float>{0.5, 3, 0, 0, 3, 3}));
}

TEST(Embedding, PaddingRowIsZeroAndNotTrained) {
  for (const int64_t padding : {1, -2}) {
    nn::Embedding layer(3, 2, {.padding_idx = padding});
    const auto values = layer.weight.to_vector<float>();
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(values[i] == 0, i / 2 == 1) << i;
    layer(td::tensor({1, 0, 1})).backward(td::ones({3, 2}));
    EXPECT_EQ(layer.weight.grad().to_vector<float>(), (std::vector<float>{1, 1, 0, 0, 0, 0}));
    EXPECT_EQ(layer.extra_repr(), td::str("3, 2, padding index ", padding));
  }
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Embedding(3, 2, {.padding_idx = 3}); }),
            "Embedding: padding_idx is 3, expected -3 to 2");
}

TEST(Embedding, InitialValuesAreStandardNormal) {
  td::manual_seed(3);
  const nn::Embedding layer(100, 200);
  double sum = 0;
  double squares = 0;
  for (const double value : layer.weight.to_vector<double>()) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 5 / std::sqrt(20000.0));
  EXPECT_NEAR(squares / 20000, 1, 5 * std::sqrt(2 / 20000.0));
}

TEST(Embedding, InvalidArgumentsAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { nn::Embedding(0, 3); }),
            "Embedding: num_embeddings is 0 and embedding_dim 3, expected at least 1 each");
  nn::Module root;
  auto& layer = root.add<nn::Embedding>("wte", 3, 2);
  const std::string text = error_text<td::IndexError>([&] { layer(td::tensor({0, 3})); });
  EXPECT_TRUE(text.ends_with("\n  in Embedding 'wte'")) << text;
}

}  // namespace

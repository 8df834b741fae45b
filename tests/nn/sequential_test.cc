#include <tandem/nn/sequential.h>

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/nn/activation.h>
#include <tandem/nn/layers.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

TEST(Sequential, LayersRunInOrder) {
  td::manual_seed(1);
  nn::Sequential net;
  auto& first = net.append<nn::Linear>(3, 4);
  net.append<nn::ReLU>();
  auto& last = net.append<nn::Linear>(4, 2, nn::LinearOptions{.bias = false});
  const td::Tensor x = td::from_vector<float>({1, -2, 3, 0.5, 0, -1}, {2, 3});
  EXPECT_EQ(net(x).to_vector<float>(), last(nn::ReLU()(first(x))).to_vector<float>());
  EXPECT_EQ(net.size(), 3);
  EXPECT_EQ(&net[0], &first);
  EXPECT_EQ(&net[2], &last);
}

TEST(Sequential, LayersAreNamedByIndex) {
  nn::Module root;
  root.add<nn::Sequential>("mlp", std::make_unique<nn::Linear>(3, 4), std::make_unique<nn::ReLU>(),
                           std::make_unique<nn::Linear>(4, 2, nn::LinearOptions{.bias = false}));
  std::vector<std::string> paths;
  for (const auto& [path, tensor] : root.named_parameters()) paths.push_back(path);
  EXPECT_EQ(paths, (std::vector<std::string>{"mlp.0.weight", "mlp.0.bias", "mlp.2.weight"}));
}

TEST(Sequential, EmptySequentialReturnsItsInput) {
  nn::Sequential net;
  const td::Tensor x = td::ones({3});
  EXPECT_TRUE(net(x).is_same(x));
}

TEST(Sequential, SequentialCanBeNested) {
  nn::Sequential net(std::make_unique<nn::Sequential>(std::make_unique<nn::ReLU>()), std::make_unique<nn::Flatten>());
  EXPECT_EQ(net(td::full({2, 3, 4}, -1)).to_vector<float>(), std::vector<float>(24, 0));
  net.eval();
  EXPECT_FALSE(static_cast<nn::Sequential&>(net[0])[0].is_training());
}

TEST(Sequential, OutOfRangeIndexIsRejected) {
  nn::Sequential net;
  net.append<nn::ReLU>();
  try {
    net[1];
    FAIL();
  } catch (const td::IndexError& error) {
    EXPECT_STREQ(error.what(), "Sequential: index is 1, expected 0 <= index < 1");
  }
  EXPECT_THROW(net[-1], td::IndexError);
}

}  // namespace

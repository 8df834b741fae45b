// Tied parameters: one tensor with several paths.

#include <tandem/io/safetensors.h>
#include <tandem/io/state_file.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

/// An embedding table that is tied to the weight of the head.
struct Net : nn::Module {
  struct Head : nn::Layer {
    explicit Head(const td::Tensor& tied) : weight(add_parameter("weight", tied)) {}
    td::Tensor forward(const td::Tensor& x) override { return td::linear(x, weight); }
    td::Tensor& weight;
  };
  nn::Embedding& table = add<nn::Embedding>("table", 5, 3);
  Head& head = add<Head>("head", table.weight);
};

TEST(TiedWeights, TiedTensorIsListedOnceAndSumsGradients) {
  Net net;
  ASSERT_EQ(net.parameters().size(), 1u);
  EXPECT_EQ(net.named_parameters()[0].first, "table.weight");
  td::optim::SGD sgd(net.parameters(), {.lr = 1});
  const auto before = net.table.weight.to_vector<float>();
  // Gradients of table[2] . weight[4]: row 4 for row 2, and row 2 for row 4.
  const td::Tensor cotangent = td::from_vector<float>({0, 0, 0, 0, 1}, {1, 5});
  net.head(net.table(td::tensor({2}))).backward(cotangent);
  sgd.step();
  const auto after = net.head.weight.to_vector<float>();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(after[6 + i], before[6 + i] - before[12 + i]);
    EXPECT_EQ(after[12 + i], before[12 + i] - before[6 + i]);
    EXPECT_EQ(after[i], before[i]);
  }
}

TEST(TiedWeights, TiedTensorIsSavedOnce) {
  const Net net;
  const std::string path = ::testing::TempDir() + "tied.safetensors";
  td::io::save_state(path, net.state_dict());
  EXPECT_LT(std::filesystem::file_size(path), 2 * net.table.weight.num_bytes() + 512);
  const td::io::SafetensorsFile file = td::io::load_safetensors(path);
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[1].first, "head.weight");
  EXPECT_EQ(file.tensors[0].second.data_ptr(), file.tensors[1].second.data_ptr());

  Net other;
  EXPECT_NE(other.table.weight.to_vector<float>(), net.table.weight.to_vector<float>());
  other.load_state_dict(td::io::load_state(path));
  EXPECT_EQ(other.table.weight.to_vector<float>(), net.table.weight.to_vector<float>());
  EXPECT_TRUE(other.table.weight.is_same(other.head.weight));
}

TEST(TiedWeights, EitherPathLoadsTheTiedTensor) {
  const Net net;
  for (const std::string path : {"table.weight", "head.weight"}) {
    td::State state;
    state.set(path, td::full({5, 3}, 7));
    Net other;
    other.load_state_dict(state);
    EXPECT_EQ(other.head.weight.to_vector<float>(), std::vector<float>(15, 7));
  }
  Net other;
  EXPECT_ERROR(td::StateError, other.load_state_dict(td::State()),
               "load_state_dict: the state does not fit Net"
               "\n  missing     table.weight"
               "\n  missing     head.weight");
}

}  // namespace

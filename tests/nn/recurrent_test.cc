#include <tandem/tests/nn/nn.h>
#include <tandem/tests/support/allocations.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Shape;
using td::Tensor;
using td::testing::error_text;

namespace {

void expect_near(const Tensor& actual, const Tensor& expected, double tolerance = 1e-6) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], e[i], tolerance) << i;
}

/// Copies parameters by name: "weight_ih_l0" to "weight_ih" for an empty `to` suffix.
void copy_parameters(const nn::Module& from, const std::string& from_suffix, nn::Module& to,
                     const std::string& to_suffix) {
  const td::NoGradGuard no_grad;
  for (const char* name : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
    to.get_parameter(name + to_suffix).copy_(from.get_parameter(name + from_suffix));
  }
}

TEST(RecurrentLayers, InitialValuesAreUniformInTheOrderOfParameters) {
  td::manual_seed(3);
  const nn::GRU gru(5, 16, {.num_layers = 2});
  td::manual_seed(3);
  for (const auto& [name, parameter] : gru.named_parameters()) {
    const Tensor expected = nn::init::uniform_(td::empty(parameter.shape()), -0.25, 0.25);
    EXPECT_EQ(parameter.to_vector<float>(), expected.to_vector<float>()) << name;
  }
  td::manual_seed(4);
  const nn::LSTMCell cell(5, 16);
  td::manual_seed(4);
  for (const auto& [name, parameter] : cell.named_parameters()) {
    const Tensor expected = nn::init::uniform_(td::empty(parameter.shape()), -0.25, 0.25);
    EXPECT_EQ(parameter.to_vector<float>(), expected.to_vector<float>()) << name;
  }
}

TEST(RecurrentLayers, UnbatchedCellInputIsABatchOfOne) {
  const nn::GRUCell cell(3, 4);
  const Tensor x = td::randn({3}), h = td::randn({4});
  expect_near(cell(x, h), cell(x.unsqueeze(0), h.unsqueeze(0))[0], 0);
  EXPECT_EQ(nn::LSTMCell(3, 4)(x).c.shape(), Shape({4}));
}

TEST(RecurrentLayers, DropoutAppliesBetweenLayersInTrainingOnly) {
  nn::RNN rnn(3, 4, {.num_layers = 2, .dropout = 1});
  const Tensor x = td::randn({5, 2, 3});
  const Tensor dropped = rnn(x).output;
  rnn.eval();
  const Tensor kept = rnn(x).output;
  // All inputs of the second layer are zero.
  nn::RNN second(4, 4);
  copy_parameters(rnn, "_l1", second, "_l0");
  expect_near(dropped, second(td::zeros({5, 2, 4})).output, 0);
  EXPECT_GT((dropped - kept).abs().max().item(), 1e-3);
}

TEST(RecurrentLayers, FrozenParametersGetNoGradient) {
  nn::LSTM lstm(3, 4);
  lstm.get_parameter("weight_hh_l0").requires_grad_(false);
  const Tensor x = td::randn({5, 2, 3});
  lstm(x).output.sum().backward();
  EXPECT_FALSE(lstm.get_parameter("weight_hh_l0").grad().defined());
  EXPECT_TRUE(lstm.get_parameter("weight_ih_l0").grad().defined());
  EXPECT_FALSE(x.grad().defined());
}

TEST(RecurrentLayers, StatesCarryGradientsAcrossCalls) {
  // Two halves of a sequence, linked by the states, have the gradients of the whole.
  nn::LSTM lstm(3, 4);
  lstm.to(td::kFloat64);
  const Tensor x = td::randn({6, 2, 3}, {td::kFloat64});
  lstm(x).output.sum().backward();
  const Tensor whole = lstm.get_parameter("weight_hh_l0").grad().clone();
  lstm.zero_grad();
  const auto first = lstm(x.slice(0, 0, 3));
  const auto second = lstm(x.slice(0, 3, 6), first.h_n, first.c_n);
  (first.output.sum() + second.output.sum()).backward();
  expect_near(lstm.get_parameter("weight_hh_l0").grad(), whole, 1e-12);
}

TEST(RecurrentLayers, StepsAllocateNoMemory) {
  const nn::LSTM lstm(3, 40);
  const auto num_blocks = [&](int64_t length) {
    const Tensor x = td::randn({length, 2, 3}).requires_grad_();
    lstm.zero_grad();
    const int64_t before = td::testing::block_allocations();
    lstm(x).output.sum().backward();
    return td::testing::block_allocations() - before;
  };
  num_blocks(30);  // the gradients of the parameters
  EXPECT_EQ(num_blocks(30), num_blocks(60));
}

TEST(RecurrentLayers, ReprNamesSettings) {
  EXPECT_EQ(nn::LSTM(3, 4).extra_repr(), "3, 4");
  EXPECT_EQ(nn::GRU(3, 4, {.num_layers = 2, .bias = false, .batch_first = true, .dropout = 0.1, .bidirectional = true})
                .extra_repr(),
            "3, 4, layers 2, no bias, batch first, dropout 0.1, bidirectional");
  EXPECT_EQ(nn::RNNCell(3, 4, {.bias = false}).extra_repr(), "3, 4, no bias");
}

TEST(RecurrentLayers, InvalidSettingsAreErrors) {
  EXPECT_ERROR(td::ValueError, nn::LSTM(0, 4), "LSTM: input_size is 0 and hidden_size 4, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::GRU(3, 4, {.num_layers = 0}), "GRU: num_layers is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, nn::RNN(3, 4, {.dropout = 1.5}), "RNN: dropout is 1.5, expected 0 <= dropout <= 1");
  EXPECT_ERROR(td::ValueError, nn::GRUCell(3, 0),
               "GRUCell: input_size is 3 and hidden_size 0, expected at least 1 each");
}

TEST(RecurrentLayers, WrongShapesAreErrors) {
  nn::Module root;
  auto& lstm = root.add<nn::LSTM>("lstm", 3, 4);
  EXPECT_ERROR(
      td::ShapeError, lstm(td::ones({5, 2, 4})),
      "LSTM: input is float32 [5, 2, 4] on cpu, expected [T, N, 3], or [T, 3] without a batch\n  in LSTM 'lstm'");
  EXPECT_ERROR(td::ShapeError, lstm(td::ones({5, 2, 3}), {}, td::ones({1, 3, 4})),
               "LSTM: c_0 is float32 [1, 3, 4] on cpu, expected [1, 2, 4]\n  in LSTM 'lstm'");
  EXPECT_ERROR(td::ShapeError, nn::GRUCell(3, 4)(td::ones({2, 3}), td::ones({4})),
               "GRUCell: a state is float32 [4] on cpu, expected as many dimensions as input has, 2\n  in GRUCell");
  EXPECT_ERROR(td::ShapeError, nn::GRUCell(3, 4)(td::ones({2, 2})),
               "GRUCell: input is float32 [2, 2] on cpu, expected [N, 3] or [3]\n  in GRUCell");
}

TEST(RecurrentLayers, LayerOnAnotherDeviceIsNamed) {
  td::set_cpu_device_count(std::max(2, td::cpu_device_count()));
  nn::Module root;
  auto& gru = root.add<nn::GRU>("gru", 3, 4);
  root.to(td::Device("cpu:1"));
  const std::string text = error_text<td::DeviceError>([&] { gru(td::ones({5, 2, 3})); });
  EXPECT_TRUE(text.starts_with("gru: operands are on different devices\n")) << text;
  EXPECT_TRUE(text.ends_with("\n  in GRU 'gru'")) << text;
  EXPECT_EQ(gru(td::ones({5, 2, 3}).to(td::Device("cpu:1"))).output.device(), td::Device("cpu:1"));
}

TEST(RecurrentOps, WrongArgumentsAreErrors) {
  const Tensor x = td::ones({5, 2, 3}), h = td::ones({1, 2, 4}), w_ih = td::ones({16, 3}), w_hh = td::ones({16, 4});
  const Tensor bias = td::ones({16});
  EXPECT_ERROR(td::ValueError, td::lstm(x, {h}, {w_ih, w_hh, bias, bias}),
               "lstm: hx has 1 tensors, expected 2, h and c");
  EXPECT_ERROR(td::ValueError, td::lstm(x, {h, h}, {w_ih, w_hh}),
               "lstm: params has 2 tensors, expected 4, 4 for each direction of each layer");
  EXPECT_ERROR(td::ValueError, td::gru(x, h, {}, {.num_layers = 0}), "gru: num_layers is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, td::gru(x, h, {}, {.dropout = -1}), "gru: dropout is -1, expected 0 <= dropout <= 1");
  EXPECT_ERROR(td::ShapeError, td::lstm(x, {h, h}, {w_ih, w_ih}, {.has_biases = false}),
               "lstm: params[1] must have shape [16, 4]\n"
               "  input      cpu  float32 [5, 2, 3]\n"
               "  hx[0]      cpu  float32 [1, 2, 4]\n"
               "  hx[1]      cpu  float32 [1, 2, 4]\n"
               "  params[0]  cpu  float32 [16, 3]\n"
               "  params[1]  cpu  float32 [16, 3]");
  EXPECT_ERROR(td::ShapeError, td::lstm_cell(td::ones({2, 3}), {td::ones({2, 4}), td::ones({1, 4})}, w_ih, w_hh),
               "lstm_cell: hx[1] must have shape [2, 4]\n"
               "  input  cpu  float32 [2, 3]\n"
               "  hx[0]  cpu  float32 [2, 4]\n"
               "  hx[1]  cpu  float32 [1, 4]\n"
               "  w_ih   cpu  float32 [16, 3]\n"
               "  w_hh   cpu  float32 [16, 4]");
  EXPECT_ERROR(td::ShapeError,
               td::rnn_tanh(td::ones({0, 2, 3}), h, {td::ones({4, 3}), td::ones({4, 4})}, {.has_biases = false}),
               "rnn_tanh: input must have at least one step\n"
               "  input      cpu  float32 [0, 2, 3]\n"
               "  hx         cpu  float32 [1, 2, 4]\n"
               "  params[0]  cpu  float32 [4, 3]\n"
               "  params[1]  cpu  float32 [4, 4]");
}

TEST(RecurrentOps, InvalidBatchSizesAreErrors) {
  const Tensor x = td::ones({5, 3}), h = td::ones({1, 3, 4}), w_ih = td::ones({4, 3}), w_hh = td::ones({4, 4});
  const auto text = [&](const Tensor& batch_sizes) {
    return error_text<td::Error>([&] {
      td::rnn_relu(x, h, {w_ih, w_hh}, {.has_biases = false, .batch_sizes = batch_sizes});
    });
  };
  const auto sizes = [](const std::vector<int64_t>& values) {
    return td::from_vector<int64_t>(values, {static_cast<int64_t>(values.size())});
  };
  EXPECT_EQ(text(td::ones({2})), "rnn_relu: batch_sizes is float32 [2] on cpu, expected int64 [T] on the CPU");
  EXPECT_EQ(text(sizes({2, 3})), "rnn_relu: batch_sizes[1] is 3, expected numbers of at least 1 that do not increase");
  EXPECT_EQ(text(sizes({3, 0})), "rnn_relu: batch_sizes[1] is 0, expected numbers of at least 1 that do not increase");
  EXPECT_EQ(text(sizes({3, 1})), "rnn_relu: batch_sizes add up to 4, but the input has 5 rows");
}

}  // namespace

// Rules of layers that pytorch_layers_test.cc does not show: arguments and defaults that its cases do not reach, fused
// forms, initial values, dropout, errors.
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::testing::error_text;

namespace {

/// Expects that parameters are uniform in [-limit, limit], and that a seed repeats them.
template <class Make>
void expect_initial_values(double limit, Make make) {
  td::manual_seed(7);
  const auto layer = make();
  td::manual_seed(7);
  const auto again = make();
  for (size_t p = 0; p < layer.parameters().size(); ++p) {
    const auto values = layer.parameters()[p].template to_vector<double>();
    EXPECT_EQ(again.parameters()[p].template to_vector<double>(), values);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, -limit * 1.000001);
    EXPECT_LE(*high, limit * 1.000001);
    EXPECT_LT(*low, -0.8 * limit);
    EXPECT_GT(*high, 0.8 * limit);
    double sum = 0;
    for (const double value : values) sum += value;
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(sum / n, 0, 10 * limit / std::sqrt(12 * n));
  }
}

TEST(Layers, InitialValuesAreUniformAsInPyTorch) {
  expect_initial_values(0.1, [] { return nn::Linear(100, 200); });
  expect_initial_values(0.1, [] { return nn::Bilinear(100, 5, 40); });
  expect_initial_values(1 / std::sqrt(25.0 * 2 * 4), [] { return nn::Conv2d(50, 100, {2, 4}, {.groups = 2}); });
  // PyTorch's fan-in: the second size of the weight times the taps.
  expect_initial_values(1 / std::sqrt(50.0 * 4), [] { return nn::ConvTranspose1d(50, 100, 4, {.groups = 2}); });
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

TEST(Embedding, PaddingRowIsZero) {
  for (const int64_t padding : {1, -2}) {
    const auto values = nn::Embedding(3, 2, {.padding_idx = padding}).weight.to_vector<float>();
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(values[i] == 0, i / 2 == 1) << i;
  }
}

TEST(Linear, FusedReluMatchesSeparateRelu) {
  td::manual_seed(5);
  nn::Linear fused(7, 33, {.activation = nn::Activation::kRelu});
  nn::Linear plain(7, 33);
  plain.load_state_dict(fused.state_dict());
  const td::Tensor x = td::randn({31, 7});
  const td::Tensor cotangent = td::randn({31, 33});
  const td::Tensor y = fused(x);
  const td::Tensor expected = plain(x).relu();
  EXPECT_EQ(y.to_vector<float>(), expected.to_vector<float>());
  y.backward(cotangent);
  expected.backward(cotangent);
  EXPECT_EQ(fused.weight.grad().to_vector<float>(), plain.weight.grad().to_vector<float>());
  EXPECT_EQ(fused.bias.grad().to_vector<float>(), plain.bias.grad().to_vector<float>());
}

TEST(Linear, ActivationMatchesSeparateActivation) {
  for (const auto activation : {nn::Activation::kGelu, nn::Activation::kGeluTanh, nn::Activation::kRelu6}) {
    nn::Linear fused(7, 33, {.activation = activation});
    nn::Linear plain(7, 33);
    plain.load_state_dict(fused.state_dict());
    const td::Tensor x = td::randn({5, 7});
    EXPECT_EQ(fused(x).to_vector<float>(), nn::activate(plain(x), activation).to_vector<float>());
  }
}

TEST(Conv, FusedReluMatchesSeparateRelu) {
  nn::Conv1dOptions options{.stride = 2, .padding = 1, .dilation = 3, .groups = 2};
  nn::Conv1d plain(4, 6, 3, options);
  options.activation = nn::Activation::kRelu;
  nn::Conv1d fused(4, 6, 3, options);
  fused.load_state_dict(plain.state_dict());
  const td::Tensor x = td::randn({2, 4, 15});
  EXPECT_EQ(fused(x).to_vector<float>(), plain(x).relu().to_vector<float>());
  nn::Conv2dOptions options2d{.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2};
  nn::Conv2d plain2d(4, 6, {3, 2}, options2d);
  options2d.activation = nn::Activation::kRelu;
  nn::Conv2d fused2d(4, 6, {3, 2}, options2d);
  fused2d.load_state_dict(plain2d.state_dict());
  const td::Tensor image = td::randn({2, 4, 7, 5});
  EXPECT_EQ(fused2d(image).to_vector<float>(), plain2d(image).relu().to_vector<float>());
}

TEST(Layers, ArgumentsAndDefaultsReachTheOperation) {
  const td::Tensor x = td::arange(-4, 8, td::kFloat32).view({2, 1, 2, 3});
  const std::vector<std::pair<td::Tensor, td::Tensor>> results = {
      {nn::Hardtanh()(x), td::hardtanh(x, -1, 1)},
      {nn::Hardtanh(-2, 0.5)(x), td::hardtanh(x, -2, 0.5)},
      {nn::Softplus()(x), td::softplus(x, 1, 20)},
      {nn::LogSoftmax(0)(x), td::log_softmax(x, 0)},
      {nn::UpsamplingNearest2d({.size = {3, 5}})(x), td::interpolate(x, {.size = {3, 5}})},
  };
  for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(td::equal(results[i].first, results[i].second)) << i;
}

TEST(ConvTranspose, OutputSizeChoosesOutputPadding) {
  nn::ConvTranspose1d signal(4, 6, 3, {.stride = 3, .groups = 2, .bias = false});
  const td::Tensor x = td::randn({2, 4, 2});
  EXPECT_EQ(
      signal(x, 8).to_vector<float>(),
      td::conv_transpose1d(x, signal.weight, {}, {.stride = 3, .output_padding = 2, .groups = 2}).to_vector<float>());
  EXPECT_ERROR(
      td::ValueError, signal(x, 9),
      "ConvTranspose1d: output_size has length 9, expected 6 to 8 for an input of length 2\n  in ConvTranspose1d");
  nn::ConvTranspose2d layer(2, 3, 3, {.stride = 2, .padding = 1});
  EXPECT_ERROR(
      td::ValueError, layer(td::randn({1, 2, 4, 5}), {9, 9}),
      "ConvTranspose2d: output_size has height 9, expected 7 to 8 for an input of height 4\n  in ConvTranspose2d");
  EXPECT_ERROR(
      td::ValueError, layer(td::randn({1, 2, 4, 5}), {7, 8}),
      "ConvTranspose2d: output_size has width 8, expected 9 to 10 for an input of width 5\n  in ConvTranspose2d");
}

TEST(MaxUnpool2d, OutputSizeMayBeGiven) {
  const td::Tensor x = td::arange(20, {td::kFloat32}).view({1, 1, 4, 5});
  const td::ValuesIndices rows = nn::MaxPool2d(2).with_indices(x);
  const std::vector<float> values = nn::MaxUnpool2d(2)(rows.values, rows.indices, td::Size2d(4, 5)).to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], i == 6 || i == 8 || i == 16 || i == 18 ? static_cast<float>(i) : 0) << i;
  }
}

TEST(Identity, ReturnsItsInput) {
  const td::Tensor x = td::ones({2});
  EXPECT_TRUE(nn::Identity()(x).is_same(x));
}

TEST(Dropout, ElementsAreDroppedInTrainingOnly) {
  td::manual_seed(3);
  nn::Dropout dropout(0.25);
  const td::Tensor x = td::full({10000}, 3);
  int dropped = 0;
  for (const float value : dropout(x).to_vector<float>()) {
    EXPECT_TRUE(value == 0 || value == 4);
    dropped += value == 0;
  }
  EXPECT_NEAR(dropped, 2500, 5 * std::sqrt(10000 * 0.25 * 0.75));
  dropout.eval();
  EXPECT_EQ(dropout(x).to_vector<float>(), x.to_vector<float>());
}

TEST(Dropout, WholeChannelsAreDropped) {
  td::manual_seed(3);
  nn::Dropout1d one(0.25);
  nn::Dropout2d two(0.25);
  const auto check = [](nn::Layer& layer, const td::Tensor& x, int64_t values) {
    int64_t dropped = 0;
    const auto result = layer(x).to_vector<float>();
    for (size_t i = 0; i < result.size(); ++i) {
      EXPECT_TRUE(result[i] == 0 || result[i] == 4) << i;
      EXPECT_EQ(result[i], result[i / static_cast<size_t>(values) * static_cast<size_t>(values)]) << i;
      dropped += result[i] == 0;
    }
    EXPECT_NEAR(static_cast<double>(dropped / values), 500, 5 * std::sqrt(2000 * 0.25 * 0.75));
    layer.eval();
    EXPECT_EQ(layer(x).to_vector<float>(), x.to_vector<float>());
    layer.train();
  };
  check(one, td::full({40, 50, 3}, 3), 3);
  check(one, td::full({2000, 3}, 3), 3);
  check(two, td::full({40, 50, 3, 2}, 3), 6);
}

TEST(Layers, InvalidOptionsAreRejected) {
  EXPECT_ERROR(td::ValueError, nn::PReLU(0), "PReLU: num_parameters is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, nn::Conv2d(0, 2, 3),
               "Conv2d: in_channels is 0 and out_channels 2, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Conv2d(1, 2, {3, 0}, {.dilation = 2}),
               "Conv2d: kernel_size is [3, 0], stride [1, 1] and dilation [2, 2], expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Conv2d(1, 2, 3, {.padding = {0, -1}}),
               "Conv2d: padding is [0, -1], expected at least 0");
  EXPECT_ERROR(td::ValueError, nn::Conv2d(4, 6, 3, {.groups = 4}),
               "Conv2d: groups is 4, expected a divisor of in_channels 4 and out_channels 6");
  EXPECT_ERROR(td::ValueError, nn::Conv2d(4, 6, 3, {.groups = 0}),
               "Conv2d: groups is 0, expected a divisor of in_channels 4 and out_channels 6");
  EXPECT_ERROR(td::ValueError, nn::Conv2d(2, 3, 3, {.stride = {2, 1}, .padding = td::kSame}),
               "Conv2d: stride is [2, 1], expected 1 if padding is kSame");
  EXPECT_ERROR(td::ValueError, nn::Conv1d(2, 3, 0),
               "Conv1d: kernel_size is 0, stride 1 and dilation 1, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Conv1d(2, 3, 1, {.padding = -1}), "Conv1d: padding is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, nn::Conv1d(2, 3, 1, {.groups = 2}),
               "Conv1d: groups is 2, expected a divisor of in_channels 2 and out_channels 3");
  EXPECT_ERROR(td::ValueError, nn::ReplicationPad2d({1, 2}),
               "ReplicationPad2d: padding is [1, 2], expected one number or 4");
  EXPECT_ERROR(td::ValueError, nn::CircularPad1d({1, 2, 3, 4}),
               "CircularPad1d: padding is [1, 2, 3, 4], expected one number or 2");
  EXPECT_ERROR(td::ValueError, nn::Embedding(3, 2, {.padding_idx = 3}),
               "Embedding: padding_idx is 3, expected -3 to 2");
  EXPECT_ERROR(td::ValueError, nn::Embedding(0, 3),
               "Embedding: num_embeddings is 0 and embedding_dim 3, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Linear(0, 2),
               "Linear: in_features is 0 and out_features 2, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Linear(2, -1),
               "Linear: in_features is 2 and out_features -1, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Bilinear(2, 0, 4),
               "Bilinear: in1_features is 2, in2_features 0 and out_features 4, expected at least 1 each");
  EXPECT_ERROR(td::ValueError, nn::Dropout(1.5), "Dropout: p is 1.5, expected 0 <= p <= 1");
  EXPECT_ERROR(td::ValueError, nn::Dropout(-0.1), "Dropout: p is -0.1, expected 0 <= p <= 1");
  EXPECT_ERROR(td::ValueError, nn::Dropout(std::nan("")), "Dropout: p is nan, expected 0 <= p <= 1");
}

/// The end of the text of the error that layer(args...) throws.
template <class L, class... Args>
std::string scope_of_error(L& layer, const Args&... args) {
  const std::string text = error_text<td::Error>([&] { layer(args...); });
  return text.substr(std::min(text.size(), text.rfind("\n  in ")));
}

TEST(Layers, ErrorsNameTheLayer) {
  nn::Module root;
  const td::Tensor x = td::ones({2, 4, 5, 5});
  EXPECT_EQ(scope_of_error(root.add<nn::Conv2d>("conv1", 3, 2, 3), x), "\n  in Conv2d 'conv1'");
  EXPECT_EQ(scope_of_error(root.add<nn::Linear>("fc1", 3, 2), x), "\n  in Linear 'fc1'");
  EXPECT_EQ(scope_of_error(root.add<nn::Embedding>("wte", 3, 2), td::tensor({0, 3})), "\n  in Embedding 'wte'");
  EXPECT_EQ(scope_of_error(root.add<nn::MaxUnpool1d>("up", 2), x, x), "\n  in MaxUnpool1d 'up'");
  EXPECT_EQ(scope_of_error(root.add<nn::MSELoss>("loss"), x, td::ones({3})), "\n  in MSELoss 'loss'");
  EXPECT_EQ(scope_of_error(root.add<nn::CrossEntropyLoss>("labels"), td::ones({1, 2}), td::tensor({2})),
            "\n  in CrossEntropyLoss 'labels'");
}

}  // namespace

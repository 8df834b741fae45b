// A language model: an LSTM that predicts the next token of a periodic text. Its first losses are PyTorch's.
#include <tandem/optim/adam.h>
#include <tandem/tests/nn/drawn.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing { namespace {

constexpr int64_t kTokens = 12, kPeriod = 24, kLength = 16, kBatch = 8;

struct LanguageModel : nn::Layer {
  nn::Embedding& embedding = add<nn::Embedding>("embedding", kTokens, 16);
  nn::LSTM& lstm = add<nn::LSTM>("lstm", 16, 32, {.num_layers = 2, .batch_first = true});
  nn::Linear& head = add<nn::Linear>("head", 32, kTokens);

  Tensor forward(const Tensor& tokens) override { return head(lstm(embedding(tokens)).output); }
};

/// A period of the text, drawn by a linear congruential generator.
std::vector<int64_t> make_text() {
  std::vector<int64_t> text;
  uint64_t state = 7;
  for (int64_t i = 0; i < kPeriod; ++i) {
    state = (state * 1103515245 + 12345) % 2147483648;
    text.push_back(static_cast<int64_t>(state / 65536) % kTokens);
  }
  return text;
}

/// The tokens of sequence n of a step: at the positions (step * kBatch + n) * 5 + first + 0 ... kLength - 1.
Tensor tokens(const std::vector<int64_t>& text, int64_t step, int64_t first) {
  std::vector<int64_t> values;
  for (int64_t n = 0; n < kBatch; ++n) {
    const int64_t begin = (step * kBatch + n) * 5 + first;
    for (int64_t t = 0; t < kLength; ++t) values.push_back(text[static_cast<size_t>((begin + t) % kPeriod)]);
  }
  return from_vector<int64_t>(values, {kBatch, kLength});
}

/// The losses of training steps.
std::vector<double> train(DType dtype, int64_t steps) {
  LanguageModel model;
  draw_weights(model);
  model.to(dtype);
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  const std::vector<int64_t> text = make_text();
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    adam.zero_grad();
    const Tensor loss = cross_entropy(model(tokens(text, step, 0)).flatten(0, 1), tokens(text, step, 1).flatten());
    loss.backward();
    adam.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(LanguageModel, FirstLossesArePyTorchs) {
  expect_recorded_losses(train(kFloat64, 20), "language_model", 1e-10);
  expect_recorded_losses(train(kFloat32, 20), "language_model", 1e-3);
}

TEST(LanguageModel, LearnsAPeriodicText) {
  const std::vector<double> losses = train(kFloat32, 200);
  EXPECT_GT(losses.front(), 2.3);  // log(12) = 2.48
  EXPECT_LT(losses.back(), 0.1);
}

}}  // namespace tandem::testing

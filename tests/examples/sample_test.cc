#include <tandem/examples/language_model/documentation.h>
#include <tandem/examples/language_model/sample.h>
#include <tandem/models/gpt2.h>
#include <tandem/models/lstm.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>

namespace {

TEST(Documentation, EmbeddedTextContainsKnownPages) {
  const std::string_view text = examples::documentation();
  EXPECT_GT(text.size(), 20000u);
  EXPECT_NE(text.find("# tandem\n"), std::string_view::npos);
  EXPECT_NE(text.find("# Data-parallel training\n"), std::string_view::npos);
  EXPECT_EQ(text.find('\0'), std::string_view::npos);
}

void expect_sampling_obeys_options(tandem::nn::Layer& model) {
  const tandem::text::CharVocabulary vocabulary("abcd");
  const auto sample = [&](const examples::SampleOptions& options) {
    return examples::sample(model, /*context=*/3, vocabulary, options, {});
  };
  tandem::manual_seed(5);
  const examples::SampleOptions likeliest = {.length = 12, .prompt = "ab", .temperature = 1, .top_k = 1};
  const std::string once = sample(likeliest);
  EXPECT_EQ(once.size(), 12u);
  EXPECT_EQ(once, sample(likeliest));  // top_k = 1 is deterministic
  EXPECT_TRUE(model.is_training());
  const std::string text = sample({.length = 400, .prompt = "a", .temperature = 100, .top_k = 0});
  for (const char c : {'a', 'b', 'c', 'd'}) EXPECT_GT(std::count(text.begin(), text.end(), c), 50) << c;
  const std::string of_two = sample({.length = 100, .prompt = "a", .temperature = 100, .top_k = 2});
  EXPECT_LT(std::count(of_two.begin(), of_two.end(), 'a'), 100);
  EXPECT_THROW(sample({.length = 1, .prompt = ""}), tandem::ValueError);
}

TEST(Sample, SamplingFromGptObeysTemperatureAndTopK) {
  tandem::models::Gpt2 model({.vocab_size = 4, .n_positions = 3, .n_embd = 4, .n_layer = 1, .n_head = 1});
  expect_sampling_obeys_options(model);
}

TEST(Sample, SamplingFromLstmObeysTemperatureAndTopK) {
  tandem::models::LstmLanguageModel model({.vocabulary = 4, .width = 4, .layers = 1});
  expect_sampling_obeys_options(model);
}

}  // namespace

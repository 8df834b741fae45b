#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include <tandem/examples/gpt_char/documentation.h>
#include <tandem/examples/gpt_char/sample.h>
#include <tandem/tandem.h>

namespace {

TEST(Documentation, EmbeddedTextContainsKnownPages) {
  const std::string_view text = examples::documentation();
  EXPECT_GT(text.size(), 20000u);
  EXPECT_NE(text.find("# tandem\n"), std::string_view::npos);
  EXPECT_NE(text.find("# Data-parallel training\n"), std::string_view::npos);
  EXPECT_EQ(text.find('\0'), std::string_view::npos);
}

TEST(Sample, SamplingObeysTemperatureAndTopK) {
  const tandem::data::CharVocabulary vocabulary("abcd");
  models::Gpt model({.vocabulary = 4, .context = 3, .layers = 1, .heads = 1, .width = 4});
  tandem::manual_seed(5);
  const examples::SampleOptions likeliest = {.length = 12, .prompt = "ab", .temperature = 1, .top_k = 1};
  const std::string once = examples::sample(model, vocabulary, likeliest, {});
  EXPECT_EQ(once.size(), 12u);
  EXPECT_EQ(once, examples::sample(model, vocabulary, likeliest, {}));  // top_k = 1 is deterministic
  EXPECT_TRUE(model.is_training());
  const examples::SampleOptions any = {.length = 400, .prompt = "a", .temperature = 100, .top_k = 0};
  const std::string text = examples::sample(model, vocabulary, any, {});
  for (const char c : {'a', 'b', 'c', 'd'}) EXPECT_GT(std::count(text.begin(), text.end(), c), 50) << c;
  const examples::SampleOptions two = {.length = 100, .prompt = "a", .temperature = 100, .top_k = 2};
  const std::string of_two = examples::sample(model, vocabulary, two, {});
  EXPECT_LT(std::count(of_two.begin(), of_two.end(), 'a'), 100);
  EXPECT_THROW(examples::sample(model, vocabulary, {.length = 1, .prompt = ""}, {}), tandem::ValueError);
}

}  // namespace

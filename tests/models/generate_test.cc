#include <tandem/models/causal_language_model.h>

#include <tandem/models/gpt2.h>
#include <tandem/nn/init.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using models::Gpt2, models::Gpt2Config, models::sample_token;

/// A model with large weights, so that its choices differ.
struct TinyGpt2 : Gpt2 {
  TinyGpt2() : Gpt2({.vocab_size = 11, .n_positions = 16, .n_embd = 8, .n_layer = 2, .n_head = 2}) {
    for (const Tensor& parameter : parameters()) {
      if (parameter.dim() == 2) nn::init::normal_(parameter, 0, 0.8);
    }
  }
};

Tensor tokens(const std::vector<int64_t>& values) {
  return from_vector(values, {1, static_cast<int64_t>(values.size())});
}

TEST(Generate, GreedyTokensDoNotDependOnTheCache) {
  TinyGpt2 model;
  const Tensor start = cat({tokens({3, 1, 4}), tokens({1, 5, 9})}, 0);
  const Tensor result = model.generate(start, {.max_new_tokens = 14});
  EXPECT_EQ(result.shape(), Shape({2, 17}));
  EXPECT_TRUE(model.is_training());
  model.eval();
  const NoGradGuard no_grad;
  Tensor expected = start;
  for (int i = 0; i < 14; ++i)
    expected = cat({expected, model(expected).select(1, -1).argmax(-1, /*keepdim=*/true)}, 1);
  EXPECT_EQ(result.to_vector<int64_t>(), expected.to_vector<int64_t>());
}

/// Predicts token + 1, and 0 after 10.
struct Counter : models::CausalLanguageModel {
  Counter() : CausalLanguageModel(/*num_layers=*/0, /*max_positions=*/16) {}
  Tensor hidden_states(const Tensor& ids, int64_t, std::vector<nn::KeyValueCache>*) override {
    return embedding(ids, eye(11).roll({1}, {1}));
  }
  Tensor logits(const Tensor& hidden) override { return hidden; }
};

TEST(Generate, EndedSequencesAreFilledUntilAllHaveEnded) {
  Counter model;
  const Tensor result =
      model.generate(cat({tokens({3, 4}), tokens({1, 9})}, 0), {.max_new_tokens = 14, .eos_token_id = 6});
  ASSERT_EQ(result.shape(), Shape({2, 10}));
  EXPECT_EQ(result[0].to_vector<int64_t>(), (std::vector<int64_t>{3, 4, 5, 6, 6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(result[1].to_vector<int64_t>(), (std::vector<int64_t>{1, 9, 10, 0, 1, 2, 3, 4, 5, 6}));
}

TEST(Generate, SamplesDependOnTheGeneratorOnly) {
  TinyGpt2 model;
  Generator a(5), b(5), c(6);
  const auto draw = [&](Generator& generator, int64_t top_k) {
    return model
        .generate(tokens({3}), {.max_new_tokens = 15, .do_sample = true, .top_k = top_k, .generator = &generator})
        .to_vector<int64_t>();
  };
  const auto first = draw(a, 50);
  EXPECT_EQ(draw(b, 50), first);
  EXPECT_NE(draw(c, 50), first);
  EXPECT_EQ(draw(c, 1), model.generate(tokens({3}), {.max_new_tokens = 15}).to_vector<int64_t>());
}

TEST(SampleToken, FollowsTemperatureAndTopK) {
  const Tensor logits = from_vector(std::vector<float>{0, 2, 1, -1}, {4}).expand({4000, 4});
  Generator generator(1);
  const auto counts = [&](double temperature, int64_t top_k) {
    std::vector<int> result(4);
    for (const int64_t token : sample_token(logits, temperature, top_k, &generator).to_vector<int64_t>())
      ++result[static_cast<size_t>(token)];
    return result;
  };
  // softmax: 0.087, 0.644, 0.237, 0.032; standard deviation of the counts: at most 32.
  const auto all = counts(1, 0);
  EXPECT_NEAR(all[0], 349, 130);
  EXPECT_NEAR(all[1], 2576, 130);
  EXPECT_NEAR(all[2], 947, 130);
  EXPECT_NEAR(all[3], 128, 130);
  EXPECT_GT(all[3], 0);
  const auto two = counts(1, 2);  // 0.731, 0.269
  EXPECT_EQ(two[0] + two[3], 0);
  EXPECT_NEAR(two[1], 2924, 130);
  const auto hot = counts(100, 0);
  for (const int count : hot) EXPECT_NEAR(count, 1000, 130);
  EXPECT_EQ(sample_token(logits[0], 1, 1).to_vector<int64_t>(), std::vector<int64_t>{1});
}

TEST(Generate, WrongArgumentsAreRejected) {
  TinyGpt2 model;
  EXPECT_ERROR(ShapeError, model.generate(zeros({3}, {kInt64})),
               "TinyGpt2.generate: input_ids is int64 [3] on cpu, expected int64 [N, T] with T >= 1");
  EXPECT_ERROR(ValueError, model.generate(tokens({1}), {.max_new_tokens = 0}),
               "TinyGpt2.generate: max_new_tokens is 0, expected at least 1");
  EXPECT_ERROR(ValueError, model.generate(tokens({1, 2}), {.max_new_tokens = 16}),
               "TinyGpt2.generate: input_ids has 2 tokens and max_new_tokens is 16, but the model has 16 positions; "
               "shorten one of them");
  EXPECT_ERROR(ValueError, sample_token(zeros({3}), 0),
               "sample_token: temperature is 0, expected a positive number; for the most likely token use argmax");
  EXPECT_ERROR(ValueError, sample_token(zeros({3}), 1, -1), "sample_token: top_k is -1, expected at least 0");
}

TEST(CausalLanguageModel, WrongCallsAreRejected) {
  TinyGpt2 model;
  EXPECT_ERROR(ShapeError, model(zeros({3}, {kInt64})),
               "TinyGpt2: tokens is int64 [3] on cpu, expected int64 [N, T]\n  in TinyGpt2");
  EXPECT_ERROR(ValueError, model(zeros({1, 17}, {kInt64})),
               "TinyGpt2: 0 + 17 tokens, but the model has 16 positions; pass shorter sequences\n  in TinyGpt2");
  auto caches = model.make_caches(4);
  caches.pop_back();
  EXPECT_ERROR(ValueError, model(tokens({1}), caches),
               "TinyGpt2: 1 caches for 2 layers; use make_caches()\n  in TinyGpt2");
}

}}  // namespace tandem::testing

#include <tandem/models/causal_language_model.h>

#include <algorithm>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/nn/training_modes.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace models {

Tensor sample_token(const Tensor& logits, double temperature, int64_t top_k, Generator* generator) {
  TANDEM_CHECK(ValueError, temperature > 0, "sample_token: temperature is ", temperature,
               ", expected a positive number; for the most likely token use argmax");
  TANDEM_CHECK(ValueError, top_k >= 0, "sample_token: top_k is ", top_k, ", expected at least 0");
  const int64_t vocabulary = logits.size(-1);
  const auto likeliest = topk(logits / temperature, top_k == 0 ? vocabulary : std::min(top_k, vocabulary));
  const Tensor choice = multinomial(softmax(likeliest.values, -1), 1, /*replacement=*/false, generator);
  return likeliest.indices.gather(-1, choice);
}

Tensor CausalLanguageModel::forward(const Tensor& tokens) { return logits(checked_hidden_states(tokens, nullptr)); }

Tensor CausalLanguageModel::operator()(const Tensor& tokens, std::vector<nn::KeyValueCache>& caches) {
  return call(tokens, [&](const Tensor& ids) { return logits(checked_hidden_states(ids, &caches)); });
}

std::vector<nn::KeyValueCache> CausalLanguageModel::make_caches(int64_t max_length) const {
  return std::vector<nn::KeyValueCache>(static_cast<size_t>(num_layers_), nn::KeyValueCache(max_length));
}

Tensor CausalLanguageModel::checked_hidden_states(const Tensor& tokens, std::vector<nn::KeyValueCache>* caches) {
  TANDEM_CHECK(ShapeError, tokens.dim() == 2, type_name(), ": tokens is ", describe(tokens), ", expected int64 [N, T]");
  int64_t begin = 0;
  if (caches != nullptr) {
    TANDEM_CHECK(ValueError, static_cast<int64_t>(caches->size()) == num_layers_, type_name(), ": ", caches->size(),
                 " caches for ", num_layers_, " layers; use make_caches()");
    begin = caches->empty() ? 0 : caches->front().length();
  }
  TANDEM_CHECK(ValueError, begin + tokens.size(1) <= max_positions_, type_name(), ": ", begin, " + ", tokens.size(1),
               " tokens, but the model has ", max_positions_, " positions; pass shorter sequences");
  return hidden_states(tokens, begin, caches);
}

Tensor CausalLanguageModel::generate(const Tensor& input_ids, const GenerateOptions& options) {
  TANDEM_CHECK(ShapeError, input_ids.dim() == 2 && input_ids.size(1) >= 1, type_name(), ".generate: input_ids is ",
               describe(input_ids), ", expected int64 [N, T] with T >= 1");
  TANDEM_CHECK(ValueError, options.max_new_tokens >= 1, type_name(), ".generate: max_new_tokens is ",
               options.max_new_tokens, ", expected at least 1");
  const int64_t length =
      saturating_add(input_ids.size(1) - 1, options.max_new_tokens);  // the last token is not an input
  TANDEM_CHECK(ValueError, length <= max_positions_, type_name(), ".generate: input_ids has ", input_ids.size(1),
               " tokens and max_new_tokens is ", options.max_new_tokens, ", but the model has ", max_positions_,
               " positions; shorten one of them");
  const NoGradGuard no_grad;
  const nn::TrainingModes modes(*this, /*training=*/false);
  std::vector<nn::KeyValueCache> caches = make_caches(length);
  std::vector<Tensor> parts = {input_ids};
  Tensor ended;  // [N, 1]
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const Tensor hidden = checked_hidden_states(parts.back(), &caches);
    const Tensor last = logits(hidden.narrow(1, hidden.size(1) - 1, 1)).squeeze(1);
    Tensor next = options.do_sample ? sample_token(last, options.temperature, options.top_k, options.generator)
                                    : last.argmax(-1, /*keepdim=*/true);
    if (options.eos_token_id) {
      if (ended.defined()) next = next.masked_fill(ended, *options.eos_token_id);
      ended = next == *options.eos_token_id;
    }
    parts.push_back(next);
    if (ended.defined() && ended.all().item<bool>()) break;
  }
  return cat(parts, 1);
}

Tensor LanguageModelHead::forward(const Tensor& x) { return linear(x, weight); }

}}}  // namespace tandem::v0::models

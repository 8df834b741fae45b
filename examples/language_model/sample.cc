#include <tandem/examples/language_model/sample.h>

#include <tandem/models/causal_language_model.h>

#include <algorithm>
#include <span>
#include <vector>

namespace examples {

namespace td = tandem;

std::string sample(td::nn::Layer& model, int64_t context, const td::text::CharVocabulary& vocabulary,
                   const SampleOptions& options, td::Device device) {
  const td::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const std::vector<uint16_t> prompt_tokens = vocabulary.encode(options.prompt);
  std::vector<int64_t> tokens(prompt_tokens.begin(), prompt_tokens.end());
  if (tokens.empty()) throw td::ValueError("sample: the prompt is empty; expected at least one character");
  const size_t prompt = tokens.size();
  while (static_cast<int64_t>(tokens.size() - prompt) < options.length) {
    const auto seen = std::min(tokens.size(), static_cast<size_t>(context));
    const td::Tensor input = td::empty({1, static_cast<int64_t>(seen)}, {td::kInt64});
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(), input.data<int64_t>());
    const td::Tensor logits = model(input.to(device))[0][-1];  // of the next character
    tokens.push_back(td::models::sample_token(logits, options.temperature, options.top_k).item<int64_t>());
  }
  model.train(was_training);
  return vocabulary.decode(std::span(tokens).subspan(prompt));
}

}  // namespace examples

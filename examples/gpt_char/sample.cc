#include <tandem/examples/gpt_char/sample.h>

#include <algorithm>
#include <span>
#include <vector>

namespace examples {

namespace td = tandem;

std::string sample(models::Gpt& model, const td::data::CharVocabulary& vocabulary, const SampleOptions& options,
                   td::Device device) {
  const td::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const std::vector<uint16_t> prompt_tokens = vocabulary.encode(options.prompt);
  std::vector<int64_t> tokens(prompt_tokens.begin(), prompt_tokens.end());
  if (tokens.empty()) throw td::ValueError("sample: the prompt is empty; expected at least one character");
  const size_t prompt = tokens.size();
  const int64_t num_choices =
      options.top_k > 0 ? std::min(options.top_k, model.options.vocabulary) : model.options.vocabulary;
  while (static_cast<int64_t>(tokens.size() - prompt) < options.length) {
    const auto seen = std::min(tokens.size(), static_cast<size_t>(model.options.context));
    const td::Tensor input = td::empty({1, static_cast<int64_t>(seen)}, {td::kInt64});
    std::copy(tokens.end() - static_cast<std::ptrdiff_t>(seen), tokens.end(), input.data<int64_t>());
    const td::Tensor logits = model(input.to(device))[0][-1] / options.temperature;  // of the next character
    const auto likeliest = td::topk(logits, num_choices);
    const td::Tensor choice = td::multinomial(td::softmax(likeliest.values, 0), 1);
    tokens.push_back(likeliest.indices[choice.item<int64_t>()].item<int64_t>());
  }
  model.train(was_training);
  return vocabulary.decode(std::span(tokens).subspan(prompt));
}

}  // namespace examples

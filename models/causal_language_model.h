// Networks that predict the next token, and generation of text with them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/attention.h>
#include <tandem/nn/module.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace models {

/// Options of CausalLanguageModel::generate, with the names and defaults of transformers' GenerationConfig.
struct GenerateOptions {
  int64_t max_new_tokens = 20;               ///< at most this number of tokens is generated
  bool do_sample = false;                    ///< sample tokens; false: take the most likely token (greedy)
  double temperature = 1;                    ///< divides the logits, with do_sample
  int64_t top_k = 50;                        ///< sample from the k most likely tokens, with do_sample; 0: all
  std::optional<int64_t> eos_token_id = {};  ///< ends a sequence; by default sequences do not end early
  Generator* generator = nullptr;            ///< generator of do_sample; null: default_generator(device)
};

/// Samples a token from softmax(logits / temperature), restricted to the `top_k` largest logits (0: all): logits [V] ->
/// int64 [1], or [N, V] -> [N, 1]. Throws ValueError unless temperature is positive and top_k at least 0.
TANDEM_API Tensor sample_token(const Tensor& logits, double temperature = 1, int64_t top_k = 0,
                               Generator* generator = nullptr);

/// A network that predicts the next token from all tokens before it; the base of Gpt2 and Llama.
class TANDEM_API CausalLanguageModel : public nn::Layer {
 public:
  /// tokens int64 [N, T] -> logits [N, T, vocabulary] of the tokens after them. Throws ShapeError for other shapes, and
  /// ValueError if T exceeds the number of positions of the model.
  Tensor forward(const Tensor& tokens) override;
  using Layer::operator();
  /// Logits of tokens that follow the tokens of the caches; extends the caches. There is one cache per layer
  /// (make_caches()). Throws StateError if the call would be recorded for backward.
  Tensor operator()(const Tensor& tokens, std::vector<nn::KeyValueCache>& caches);
  /// Empty caches for operator(), for at most `max_length` positions. Throws ValueError unless it is at least 1.
  std::vector<nn::KeyValueCache> make_caches(int64_t max_length) const;

  /// Continues sequences of equal length: input_ids int64 [N, T], T >= 1 -> [N, T + n], n <= max_new_tokens, the
  /// input_ids followed by the generated tokens. Uses key-value caches, in evaluation mode, without recording. A
  /// sequence that has ended is padded with eos_token_id until all sequences have ended.
  ///
  /// Throws ShapeError for another shape, and ValueError for options out of range or if T + max_new_tokens - 1 exceeds
  /// the number of positions of the model.
  Tensor generate(const Tensor& input_ids, const GenerateOptions& options = {});

 protected:
  /// `num_layers`: number of layers with a cache. `max_positions`: length of the longest sequence.
  CausalLanguageModel(int64_t num_layers, int64_t max_positions)
      : num_layers_(num_layers), max_positions_(max_positions) {}
  /// The vectors from which logits() computes the logits, [N, T, ...]. The first token has position `begin`, which is
  /// the length of the caches, one per layer; 0 if `caches` is null. The caller has checked the arguments.
  virtual Tensor hidden_states(const Tensor& tokens, int64_t begin, std::vector<nn::KeyValueCache>* caches) = 0;
  /// [N, T, ...] -> [N, T, vocabulary].
  virtual Tensor logits(const Tensor& hidden) = 0;

 private:
  Tensor checked_hidden_states(const Tensor& tokens, std::vector<nn::KeyValueCache>* caches);

  int64_t num_layers_, max_positions_;
};

/// A linear layer without bias, x [..., in] -> [..., out], whose weight may be a parameter of another layer too.
class TANDEM_API LanguageModelHead : public nn::Layer {
 public:
  /// `tied`: weight [out, in].
  explicit LanguageModelHead(const Tensor& tied) : weight(add_parameter("weight", tied)) {}
  Tensor forward(const Tensor& x) override;

  Tensor& weight;  ///< [out, in]
};

}}}  // namespace tandem::v0::models

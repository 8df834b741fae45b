// Samples text from a trained model.
#pragma once

#include <tandem/tandem.h>

#include <cstdint>
#include <string>

namespace examples {

struct SampleOptions {
  int64_t length = 0;         ///< characters to sample
  std::string prompt = "\n";  ///< text that is continued
  double temperature = 0.8;   ///< divides the logits
  int64_t top_k = 40;         ///< sample from the k most likely characters; 0: from all
};

/// Returns `length` characters that continue the prompt, sampled one by one with the device's default generator. Each
/// is predicted from the last `context` characters; `model` maps tokens [1, T] to logits [1, T, vocabulary]. Throws
/// ValueError if the prompt is empty or has a character that is not in the vocabulary.
std::string sample(tandem::nn::Layer& model, int64_t context, const tandem::text::CharVocabulary& vocabulary,
                   const SampleOptions& options, tandem::Device device);

}  // namespace examples

// Writing with a trained model.
#pragma once

#include <tandem/examples/models/gpt.h>
#include <tandem/tandem.h>

#include <cstdint>
#include <string>

namespace examples {

struct SampleOptions {
  int64_t length = 0;         ///< characters to write
  std::string prompt = "\n";  ///< what they follow
  double temperature = 0.8;   ///< scores are divided by it
  int64_t top_k = 40;         ///< draw from so many likeliest characters; 0: from all
};

/// Continues the prompt with characters drawn one by one from the model's probabilities, by the device's default
/// generator.  Throws ValueError for a prompt that is empty or has a character that the vocabulary lacks.
std::string sample(models::Gpt& model, const tandem::data::CharVocabulary& vocabulary, const SampleOptions& options,
                   tandem::Device device);

}  // namespace examples

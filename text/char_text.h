// Texts of characters, for small language models.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>
#include <tandem/text/token_dataset.h>

namespace tandem { inline namespace v0 { namespace text {

/// Reads the bytes of a regular file. Throws IoError with the path and the system's reason.
TANDEM_API std::string read_text(const std::string& path);

/// A vocabulary of the distinct bytes of a text, numbered from 0 in ascending order. Any file can be encoded with at
/// most 256 tokens; in ASCII text each character is a token. decode(encode(x)) == x.
class TANDEM_API CharVocabulary {
 public:
  /// The vocabulary of `text`.
  explicit CharVocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }  ///< number of distinct bytes
  /// Byte i is the byte of token i.
  const std::string& characters() const { return characters_; }
  /// Throws ValueError, with the byte and its position, if a byte is not in the vocabulary.
  std::vector<uint16_t> encode(std::string_view text) const;
  /// Throws IndexError, with the token and its position, if a token is outside [0, size()).
  std::string decode(std::span<const int64_t> tokens) const;

 private:
  std::string characters_;
  std::array<int16_t, 256> number_of_;  ///< -1: not in the vocabulary
};

/// Part of a text.
enum class TextSplit {
  kTrain,       ///< the first 90 % of the text
  kValidation,  ///< the rest
};

/// A TokenDataset of one split of a text, with the vocabulary of the whole text:
///
///     const std::string novel = text::read_text(path);
///     text::CharTextDataset train(novel, text::TextSplit::kTrain, {.context = 128});
///     text::CharTextDataset validation(novel, text::TextSplit::kValidation, {.context = 128, .stride = 128});
class TANDEM_API CharTextDataset : public data::Dataset {
 public:
  /// Throws the errors of TokenDataset, for instance if the split is too short.
  CharTextDataset(std::string_view text, TextSplit split, TokenOptions options = {});

  const CharVocabulary& vocabulary() const { return vocabulary_; }  ///< of the whole text
  int64_t size() const override { return tokens_.size(); }
  data::Example get(int64_t index) const override { return tokens_.get(index); }
  data::Batch get_batch(std::span<const int64_t> indices) const override { return tokens_.get_batch(indices); }

 private:
  CharVocabulary vocabulary_;
  TokenDataset tokens_;
};

}}}  // namespace tandem::v0::text
